//! Whether the tier `gvisor` can be had: a sandbox is started as a server would, and ends.

use std::path::Path;

use serde::Serialize;

use crate::facts::Facts;
use crate::tier::Missing;

/// How the trial went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GvisorTrial {
    /// Nobody has tried.
    #[default]
    Untried,
    /// A program ran in a sandbox, to its end.
    Works,
    /// It ended with this, in `runsc`'s words.
    Failed(String),
}

/// What the tier misses here.
pub(crate) fn missing(facts: &Facts) -> Result<(), Vec<Missing>> {
    let mut missing = Vec::new();
    if facts.user.id != 0 {
        missing.push(Missing::new("`runsc` is started by root alone here", "run the server as root"));
    }
    match (&facts.runsc, &facts.gvisor) {
        (Some(_), _) if facts.user.id != 0 => {}
        (None, _) => missing.push(Missing::new(
            "gVisor's program `runsc` is not in PATH",
            "install it (Debian: `apt-get install runsc`)",
        )),
        (Some(_), GvisorTrial::Works) => {}
        (Some(_), GvisorTrial::Untried) => {
            missing.push(Missing::new("nobody has tried to start a sandbox", "run `ringfence doctor`"));
        }
        (Some(runsc), GvisorTrial::Failed(why)) => missing.push(Missing::new(
            format!("{} cannot start a sandbox: {why}", runsc.path.display()),
            "root with CAP_SYS_ADMIN and CAP_SYS_PTRACE, and a container whose filter allows tracing and mounts \
             (`--cap-add SYS_ADMIN --cap-add SYS_PTRACE --security-opt seccomp=unconfined`)",
        )),
    }
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

/// Runs `program --version` in a sandbox of `runsc`'s.
pub(crate) fn try_it(runsc: &Path, program: &Path) -> GvisorTrial {
    match ringfence_jail::try_sandbox(runsc, program) {
        Ok(()) => GvisorTrial::Works,
        Err(why) => GvisorTrial::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runsc::Runsc;

    #[test]
    fn what_is_missing_is_named() {
        let runsc = Some(Runsc { path: "/usr/bin/runsc".into(), ..Runsc::default() });
        let facts = Facts { runsc, gvisor: GvisorTrial::Works, ..Facts::default() };
        assert_eq!(missing(&facts), Ok(()));
        let none = missing(&Facts { runsc: None, ..facts.clone() }).unwrap_err();
        assert!(none[0].what.contains("not in PATH"), "{none:?}");
        let failed = missing(&Facts { gvisor: GvisorTrial::Failed("no ptrace".into()), ..facts.clone() }).unwrap_err();
        assert!(failed[0].what.contains("/usr/bin/runsc cannot start a sandbox: no ptrace"), "{failed:?}");
        let mut other = facts;
        other.user.id = 1000;
        assert!(missing(&other).unwrap_err()[0].lift.contains("root"));
    }
}
