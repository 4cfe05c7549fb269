//! Why there is no keeper, in words for the operator.

use std::io;
use std::process::ExitStatus;

use crate::step::StepName;

/// Why the keeper did not start, or the daemon did not get into the fleet.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// The program could not be started again as the keeper.
    #[error("cannot start the keeper ({program})")]
    Start {
        /// What was to be started.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The keeper ended, or its socket did, before it said that it is ready.
    #[error("the keeper ended while starting ({status})")]
    Died {
        /// How it ended.
        status: ExitStatus,
    },
    /// It said nothing for too long.
    #[error("the keeper was not ready within {seconds} s")]
    Slow {
        /// The time given.
        seconds: u64,
    },
    /// Its socket failed.
    #[error("cannot hear from the keeper")]
    Link(#[source] io::Error),
    /// One of its steps failed.
    #[error("the keeper cannot {step}{}{}", detail_part(.detail), advice_part(*.step, .source))]
    Setup {
        /// Which.
        step: StepName,
        /// The paths or values concerned; may be empty.
        detail: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// A process of the server's own could not give up what it is not to have.
    #[error("cannot {doing}")]
    Enter {
        /// What was tried.
        doing: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl JailError {
    /// What the operator can do about it, where that is known.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            JailError::Setup { step, source, .. } => advice(*step, source.raw_os_error().unwrap_or(0)),
            _ => None,
        }
    }
}

fn detail_part(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(" ({detail})") }
}

fn advice_part(step: StepName, source: &io::Error) -> String {
    advice(step, source.raw_os_error().unwrap_or(0)).map(|advice| format!("; {advice}")).unwrap_or_default()
}

/// What the operator can do about it.
fn advice(step: StepName, errno: i32) -> Option<&'static str> {
    use libc::{EACCES, EINVAL, ENOENT, ENOSPC, ENOSYS, EPERM, EUSERS};
    Some(match (step, errno) {
        (StepName::CloneKeeper, ENOSPC | EUSERS) => {
            "user namespaces are used up or switched off: set `sysctl user.max_user_namespaces=15000` (and \
             user.max_pid_namespaces, user.max_mnt_namespaces, user.max_net_namespaces alike)"
        }
        (StepName::CloneKeeper, EPERM | EACCES) => {
            "unprivileged user namespaces are forbidden here: set `sysctl kernel.unprivileged_userns_clone=1` (Debian) \
             or `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu), or run as root, or, in a container, \
             give it CAP_SYS_ADMIN"
        }
        (StepName::CloneKeeper, ENOSYS) => {
            "clone3 is not available: Linux 5.3 or later is needed, and a seccomp profile that allows it"
        }
        (StepName::FleetMap | StepName::FleetIds, EPERM | EACCES | EINVAL) => {
            "the host ids of the fleet cannot be mapped from here: choose an id range that /proc/self/uid_map covers, \
             or run as an ordinary user; with AppArmor also `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
        }
        (StepName::KeeperRoot | StepName::ImageRoot, EPERM | EACCES) => {
            "mounting inside a user namespace is forbidden here: with AppArmor set \
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
        }
        (StepName::KeeperProc, EPERM) => {
            "a new /proc is refused where the present one is masked, as in a container: start it with CAP_SYS_ADMIN \
             (Docker: `--cap-add SYS_ADMIN`, with AppArmor `--security-opt apparmor=unconfined`), or with an unmasked \
             one (`--security-opt systempaths=unconfined`)"
        }
        (StepName::OpenBinds, ENOENT | EACCES) => {
            "the image names a folder that is not there or cannot be entered by this user"
        }
        (StepName::KeeperRoot | StepName::ImageRoot | StepName::OpenBinds, ENOSYS) => {
            "the kernel lacks the mount calls that are needed: Linux 5.12 or later"
        }
        (StepName::ExecKeeper, EACCES) => "the program's file cannot be executed by the fleet's ids",
        (StepName::StartZygote | StepName::ZygoteReady, _) => {
            "the image's Python did not start; what it printed stands above"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_says_what_to_do() {
        let error = JailError::Setup {
            step: StepName::CloneKeeper,
            detail: String::new(),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        };
        let text = error.to_string();
        assert!(text.contains("user.max_user_namespaces"), "{text}");
        assert!(!text.contains("No space left"), "the source is not repeated: {text}");
    }
}
