//! A keeper that is this same program, over the bare image of this machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_image::Store;
use ringfence_interp::{WORKER_SOURCE, ZYGOTE_SOURCE};
use ringfence_jail::{KeeperConfig, Launched};
use ringfence_op::{Bind, CellLimits, RootSpec};

/// The body of this program when it is started as the keeper.
pub(crate) fn keeper() -> ExitCode {
    let fd = |number| ringfence_sys::process::adopt(number).expect("an inherited descriptor");
    ringfence_jail::keeper_main(fd(3), fd(4))
}

/// Starts a keeper and goes into its fleet; the process must still have one thread. Where there is a `gate`, a folder,
/// a zygote is not ready as long as there is a file `hold` in it.
pub(crate) fn launch(state_dir: PathBuf, limits: CellLimits, gate: Option<&Path>) -> (Launched, RootSpec) {
    let held = ringfence_image::prepare(&Store::at(&state_dir), "bare", None, &mut ()).expect("the bare image");
    let mut root = ringfence_image::root_of(&held.entry, limits.cpu_millis).expect("its root");
    let mut zygote = ZYGOTE_SOURCE.to_owned();
    if let Some(gate) = gate {
        root.binds.push(Bind { source: gate.to_owned(), target: "/gate".into() });
        zygote.insert_str(0, "import os, time\nwhile os.path.exists('/gate/hold'): time.sleep(0.005)\n");
    }
    let mut config = KeeperConfig::new(vec![root.clone()], zygote, WORKER_SOURCE.to_owned(), state_dir);
    config.limits = limits;
    let launched = ringfence_jail::launch(&config).expect("a keeper");
    ringfence_jail::enter_fleet(&launched).expect("the fleet's namespace");
    (launched, root)
}
