//! Whether the tier `confined` can be had: Landlock as new as it needs, filters, and ids for root. Pure.

use crate::attempt::Tried;
use crate::facts::Facts;
use crate::tier::Missing;

/// The version of Landlock that is needed, of Linux 6.12: the first that keeps signals and abstract sockets inside.
pub(crate) const LANDLOCK_ABI_MIN: u32 = 6;
/// What a server that is root needs to give each session an id: sessions never run as root.
const OF_ROOT: [&str; 7] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SETPCAP"];

/// What the tier misses here.
pub(crate) fn missing(facts: &Facts) -> Result<(), Vec<Missing>> {
    let mut missing = Vec::new();
    let linux = "Linux 6.12 or later, with `landlock` among the security modules (`lsm=landlock,...`)";
    match facts.landlock_abi {
        Some(abi) if abi >= LANDLOCK_ABI_MIN => {}
        Some(abi) => missing.push(Missing::new(
            format!("Landlock version {LANDLOCK_ABI_MIN} is needed, and this kernel has {abi}"),
            linux,
        )),
        None => missing.push(Missing::new(
            format!("Landlock version {LANDLOCK_ABI_MIN} is needed, and there is none"),
            format!("{linux}; in a container, a seccomp profile that allows its calls"),
        )),
    }
    if let Tried::Refused(_) = facts.seccomp.filter {
        missing.push(Missing::new("no seccomp filter can be loaded", "a kernel with CONFIG_SECCOMP_FILTER"));
    }
    let lacks = |name: &&&str| !facts.user.capabilities.contains(*name);
    let lacking: Vec<String> = OF_ROOT.iter().filter(lacks).map(|name| format!("CAP_{name}")).collect();
    if facts.user.id == 0 && !lacking.is_empty() {
        missing.push(Missing::new(
            format!("root lacks {}, so that sessions would be root as well", lacking.join(", ")),
            "run as an ordinary user (`--user 1000`), or leave the container its default capabilities",
        ));
    }
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::User;

    fn facts(abi: Option<u32>, id: u32, capabilities: &[&'static str]) -> Facts {
        let user = User { id, capabilities: capabilities.to_vec(), capabilities_missing: 0 };
        Facts { landlock_abi: abi, user, ..Facts::default() }
    }

    #[test]
    fn what_is_too_old_or_lacking_is_named() {
        assert_eq!(missing(&facts(Some(6), 1000, &[])), Ok(()));
        assert_eq!(missing(&facts(Some(7), 0, &OF_ROOT)), Ok(()));
        assert!(missing(&facts(Some(4), 1000, &[])).unwrap_err()[0].what.contains("this kernel has 4"));
        assert!(missing(&facts(None, 1000, &[])).unwrap_err()[0].what.contains("there is none"));
        let root = missing(&facts(Some(6), 0, &OF_ROOT[1..])).unwrap_err();
        assert!(root[0].what.contains("CAP_CHOWN") && !root[0].what.contains("CAP_KILL"), "{root:?}");
    }
}
