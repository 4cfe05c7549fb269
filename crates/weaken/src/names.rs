//! The names.

macro_rules! mitigations {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A mitigation. What it does and what misses it stands in `security/mitigations.toml`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is described where its proof is, in security/mitigations.toml")]
        pub enum Mitigation { $($name,)* }

        impl Mitigation {
            /// Every one.
            pub const ALL: &'static [Mitigation] = &[$(Mitigation::$name,)*];

            /// As it is named in `security/mitigations.toml`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Mitigation::$name => $text,)* }
            }
        }
    };
}

mitigations! {
    // What is around a cell.
    PidNamespace = "pid_namespace",
    MountNamespace = "mount_namespace",
    NetworkNamespace = "network_namespace",
    IpcNamespace = "ipc_namespace",
    UtsNamespace = "uts_namespace",
    UserNamespace = "user_namespace",
    CgroupNamespace = "cgroup_namespace",
    OldRootDetached = "old_root_detached",
    ReadOnlyRoot = "read_only_root",
    NoSetUserId = "no_set_user_id",
    NoDeviceFiles = "no_device_files",
    NoProgramsInSharedMemory = "no_programs_in_shared_memory",
    ReadOnlyProc = "read_only_proc",
    MaskedProc = "masked_proc",
    FewDevices = "few_devices",
    WorkspaceBytes = "workspace_bytes",
    WorkspaceInodes = "workspace_inodes",
    TemporaryBytes = "temporary_bytes",
    HostIdPerSession = "host_id_per_session",
    // What its processes may do.
    GroupsLeftByCells = "groups_left_by_cells",
    GroupsLeftByTheFleet = "groups_left_by_the_fleet",
    InotifyInstances = "inotify_instances",
    InotifyWatches = "inotify_watches",
    CoreFiles = "core_files",
    OpenFiles = "open_files",
    PendingSignals = "pending_signals",
    MessageQueues = "message_queues",
    LockedMemory = "locked_memory",
    AddressSpace = "address_space",
    ProcessesOfAUser = "processes_of_a_user",
    MemoryOfTheCell = "memory_of_the_cell",
    ProcessesOfTheCell = "processes_of_the_cell",
    CpuOfTheCell = "cpu_of_the_cell",
    CommandsInTheCgroup = "commands_in_the_cgroup",
    InterpretersInTheCgroup = "interpreters_in_the_cgroup",
    BoundingSetOfCommands = "bounding_set_of_commands",
    CapabilitiesOfInit = "capabilities_of_init",
    BoundingSetOfInterpreters = "bounding_set_of_interpreters",
    CapabilitiesOfInterpreters = "capabilities_of_interpreters",
    UserOfInterpreters = "user_of_interpreters",
    NoNewPrivilegesOfCells = "no_new_privileges_of_cells",
    InitNotDumpable = "init_not_dumpable",
    NewbornNotDumpable = "newborn_not_dumpable",
    FilterOfCommands = "filter_of_commands",
    FilterOfInterpreters = "filter_of_interpreters",
    RuleOfClone = "rule_of_clone",
    RuleOfIoctl = "rule_of_ioctl",
    RuleOfPrlimit = "rule_of_prlimit",
    RuleOfSocket = "rule_of_socket",
    RuleOfSocketpair = "rule_of_socketpair",
    RuleOfPersonality = "rule_of_personality",
    DescriptorsOfInit = "descriptors_of_init",
    DescriptorsOfInterpreters = "descriptors_of_interpreters",
    SessionOfInterpreters = "session_of_interpreters",
    SelfCheckOfInterpreters = "self_check_of_interpreters",
    KilledAtRelease = "killed_at_release",
    // The server's own processes.
    FleetUserNamespace = "fleet_user_namespace",
    FleetPidNamespace = "fleet_pid_namespace",
    FleetMountNamespace = "fleet_mount_namespace",
    FleetNetworkNamespace = "fleet_network_namespace",
    FleetIpcNamespace = "fleet_ipc_namespace",
    FleetUtsNamespace = "fleet_uts_namespace",
    KeeperDiesWithTheWarden = "keeper_dies_with_the_warden",
    CapabilitiesOfTheKeeper = "capabilities_of_the_keeper",
    NoNewPrivilegesOfTheKeeper = "no_new_privileges_of_the_keeper",
    FilterOfTheKeeper = "filter_of_the_keeper",
    CapabilitiesOfZygotes = "capabilities_of_zygotes",
    CapabilitiesOfTheWarden = "capabilities_of_the_warden",
    NoNewPrivilegesOfTheWarden = "no_new_privileges_of_the_warden",
    LandlockOfTheWarden = "landlock_of_the_warden",
    FilterOfTheWarden = "filter_of_the_warden",
    DaemonInTheFleet = "daemon_in_the_fleet",
    CapabilitiesOfTheDaemon = "capabilities_of_the_daemon",
    NoNewPrivilegesOfTheDaemon = "no_new_privileges_of_the_daemon",
    DaemonNotDumpable = "daemon_not_dumpable",
    CoreFilesOfTheDaemon = "core_files_of_the_daemon",
    LandlockOfTheDaemon = "landlock_of_the_daemon",
    FilterOfTheDaemon = "filter_of_the_daemon",
    LandlockOfThePuller = "landlock_of_the_puller",
    FilterOfThePuller = "filter_of_the_puller",
    // Sessions without namespaces.
    GuardsRules = "guards_rules",
    SessionsRules = "sessions_rules",
    SessionsFilter = "sessions_filter",
    RulesOfTheNetwork = "rules_of_the_network",
    RulesOfSignals = "rules_of_signals",
    FilterInCompany = "filter_in_company",
    SessionsIds = "sessions_ids",
    SessionsUser = "sessions_user",
    SessionsCapabilities = "sessions_capabilities",
    SessionsFileSize = "sessions_file_size",
    GuardNotDumpable = "guard_not_dumpable",
    DescriptorsOfTheGuard = "descriptors_of_the_guard",
    DescriptorsOfSessions = "descriptors_of_sessions",
    // What keeps workspaces apart.
    ZygotesApart = "zygotes_apart",
    // What the daemon takes from sessions.
    AnswersByNonce = "answers_by_nonce",
    OutputBytes = "output_bytes",
    PathsBeneathTheRoot = "paths_beneath_the_root",
    RegularFilesOnly = "regular_files_only",
    // The door.
    HeadBytes = "head_bytes",
    HeadTime = "head_time",
    BodyBytes = "body_bytes",
    BodyTime = "body_time",
    UnreadTime = "unread_time",
    Connections = "connections",
    QueryBytes = "query_bytes",
    FormParts = "form_parts",
    FormHeaders = "form_headers",
    BearerToken = "bearer_token",
    OriginNeedsAToken = "origin_needs_a_token",
}

impl Mitigation {
    /// Lines of programs in Python that carry it out: the first words of the program, and the line.
    #[must_use]
    pub const fn python_lines(self) -> &'static [(&'static str, &'static str)] {
        const ZYGOTE: &str = "\"\"\"The zygote:";
        const GUARD: &str = "\"\"\"The guard:";
        match self {
            Mitigation::InterpretersInTheCgroup => &[(ZYGOTE, "        os.write(procs, b\"0\")")],
            Mitigation::NewbornNotDumpable => &[(ZYGOTE, "    prctl(PR_SET_DUMPABLE, 0)")],
            Mitigation::BoundingSetOfInterpreters => &[(ZYGOTE, "    drop_bounding_set()")],
            Mitigation::CapabilitiesOfInterpreters => &[(ZYGOTE, "    drop_capabilities()")],
            Mitigation::UserOfInterpreters => &[
                (ZYGOTE, "    os.setresgid(identity, identity, identity)"),
                (ZYGOTE, "    os.setresuid(identity, identity, identity)"),
            ],
            Mitigation::NoNewPrivilegesOfCells => &[(ZYGOTE, "    prctl(PR_SET_NO_NEW_PRIVS, 1)")],
            Mitigation::FilterOfInterpreters => &[(ZYGOTE, "    load_seccomp(seccomp)")],
            Mitigation::SelfCheckOfInterpreters => &[(ZYGOTE, "    verify(identity)")],
            Mitigation::DescriptorsOfInterpreters => &[
                (ZYGOTE, "    os.closerange(3, kept)"),
                (ZYGOTE, "    os.closerange(kept + 1, os.sysconf(\"SC_OPEN_MAX\"))"),
            ],
            Mitigation::SessionOfInterpreters => &[(ZYGOTE, "    os.setsid()")],
            Mitigation::GuardsRules => &[(GUARD, "            restrict(outer)")],
            Mitigation::SessionsRules => &[
                (GUARD, "            restrict(self.inner)"),
                (GUARD, "                raise PermissionError(\"Landlock is not in force\")"),
            ],
            Mitigation::SessionsFilter => &[
                (GUARD, "            load_seccomp(self.seccomp)"),
                (GUARD, "                raise PermissionError(\"seccomp is not in force\")"),
            ],
            Mitigation::SessionsUser => &[
                (GUARD, "            os.setresgid(identity, identity, identity)"),
                (GUARD, "            os.setresuid(identity, identity, identity)"),
                (GUARD, "            raise PermissionError(\"the session would be root\")"),
            ],
            Mitigation::SessionsCapabilities => &[
                (GUARD, "            drop_bounding_set()"),
                (GUARD, "        drop_capabilities()"),
                (GUARD, "                raise PermissionError(f\"{name.decode()} is not empty\")"),
            ],
            Mitigation::GuardNotDumpable => &[
                (GUARD, "        prctl(PR_SET_DUMPABLE, 0)"),
                (GUARD, "        prctl(PR_SET_DUMPABLE, 0)  # a change of ids may set it anew"),
            ],
            Mitigation::DescriptorsOfTheGuard => &[(GUARD, "        self.keep_only(descriptors)")],
            Mitigation::DescriptorsOfSessions => &[
                (GUARD, "            os.closerange(3, kept)"),
                (GUARD, "            os.closerange(kept + 1, os.sysconf(\"SC_OPEN_MAX\"))"),
            ],
            _ => &[],
        }
    }
}
