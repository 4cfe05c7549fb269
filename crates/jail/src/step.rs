//! Names of the steps that can fail, as they travel in `SetupFailed` and `CellFailed`.

use std::fmt;

macro_rules! step_names {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal;)*) => {
        /// A step of starting the keeper, a zygote or a cell.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum StepName { $($(#[$doc])* $name = $number,)* }

        impl StepName {
            /// The step with this number.
            #[must_use]
            pub fn from_number(number: u32) -> Option<StepName> {
                match number {
                    $($number => Some(StepName::$name),)*
                    _ => None,
                }
            }

            /// Its number on the link.
            #[must_use]
            pub fn number(self) -> u32 {
                self as u32
            }
        }

        impl fmt::Display for StepName {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(StepName::$name => $words,)* })
            }
        }
    };
}

step_names! {
    /// Reading what the daemon handed over.
    ReadConfig = 1, "read the keeper's configuration";
    /// The process has threads already.
    OneThread = 2, "find the keeper with one thread";
    /// Folders of an image.
    OpenBinds = 3, "open the image's folders";
    /// clone3 of the keeper.
    CloneKeeper = 4, "make the fleet's namespaces";
    /// uid_map, gid_map of the fleet.
    FleetMap = 5, "map the fleet's ids";
    /// setresuid and the like of the keeper.
    FleetIds = 6, "become the fleet's root";
    /// execveat of the keeper inside.
    ExecKeeper = 7, "start the keeper inside the fleet";
    /// Its own root.
    KeeperRoot = 8, "make the keeper's own root";
    /// proc of the fleet.
    KeeperProc = 9, "mount the fleet's /proc";
    /// The root of an image.
    ImageRoot = 10, "put an image's root together";
    /// Compiling the filter.
    CompileFilter = 11, "compile the seccomp filter";
    /// The zygote's start.
    StartZygote = 12, "start an image's zygote";
    /// The zygote's imports.
    ZygoteReady = 13, "wait for an image's zygote";
    /// Signals, descriptors of the keeper.
    KeeperSelf = 14, "set the keeper up";
    /// What a pulled image is said to be made of.
    PulledRoot = 15, "believe what a pulled image is made of";
    /// No room for another pulled image.
    PulledRoom = 16, "find room for another pulled image";
    /// The set is another image's, or one too many.
    ZygoteSet = 17, "find room for another set of zygotes";
    /// No such image.
    Image = 20, "find the image";
    /// The number is in use.
    Number = 21, "number the cell";
    /// No id is free.
    Id = 22, "find a free id";
    /// mkdir and limits.
    MakeCgroup = 23, "make the cell's cgroup";
    /// clone3 of init.
    CloneCell = 24, "make the cell's namespaces";
    /// Init died or was too slow.
    Answer = 25, "hear from the cell's first process";
    /// The workspace through /proc.
    OpenWorkspace = 26, "open the workspace";
    /// Entering the cgroup.
    EnterCgroup = 30, "enter the cgroup";
    /// unshare of the cgroup namespace.
    CgroupNamespace = 31, "hide the cgroups above";
    /// sethostname.
    HostName = 32, "set the host name";
    /// lo.
    Loopback = 33, "bring the loopback interface up";
    /// chdir.
    ChangeFolder = 34, "change the folder";
    /// mount of a tmpfs and the like.
    Mount = 35, "mount";
    /// bind mount over a file.
    Mask = 36, "mask a file of /proc";
    /// symlink in /tmp.
    Link = 37, "make a symbolic link";
    /// A second proc for init.
    InitProc = 38, "open init's own /proc";
    /// pivot_root.
    Pivot = 39, "change the root";
    /// umount of the old root.
    LeaveOldRoot = 40, "leave the old root";
    /// setgroups.
    LeaveGroups = 41, "leave the supplementary groups";
    /// setresgid.
    BecomeGroup = 42, "change the group id";
    /// setresuid.
    BecomeUser = 43, "change the user id";
    /// unshare of the user namespace.
    UserNamespace = 44, "make the cell's user namespace";
    /// uid_map and gid_map of the cell.
    CellMap = 45, "map the cell's ids";
    /// dup of descriptors, close_range.
    Descriptors = 46, "lay the descriptors out";
    /// setrlimit.
    ResourceLimit = 47, "set a resource limit";
    /// The bounding set.
    BoundCapabilities = 48, "drop the bounding set";
    /// capset.
    DropCapabilities = 49, "drop the capabilities";
    /// prctl.
    NoNewPrivileges = 50, "give up new privileges";
    /// prctl.
    Dumpable = 51, "set whether it can be traced";
    /// seccomp.
    LoadFilter = 52, "load the seccomp filter";
    /// execve of Python.
    ExecPython = 53, "start Python";
    /// mkdir in /tmp.
    SharedFolder = 54, "make a folder in /tmp";
    /// Files of /proc/sys/user.
    KernelCount = 55, "limit what the kernel counts for the host's user";
    /// The guard's own lock-down (`guard.py` knows the number).
    LockDown = 56, "lock the session's first process down";
    /// Landlock's version.
    Landlock = 57, "find Landlock as it is needed";
    /// Folders of a session.
    Folders = 58, "make the session's folders";
    /// Rules of a session.
    Rules = 59, "make the session's Landlock rules";
    /// The fork of a guard.
    Guard = 60, "start the session's first process";
    /// `runsc`, or what it started.
    StartSandbox = 61, "start the session's sandbox";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_names() {
        for number in 0..80 {
            if let Some(name) = StepName::from_number(number) {
                assert_eq!(name.number(), number);
                assert!(!name.to_string().is_empty());
            }
        }
        assert_eq!(StepName::from_number(0), None);
        assert_eq!(StepName::from_number(53), Some(StepName::ExecPython));
    }
}
