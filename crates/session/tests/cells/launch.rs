//! A keeper that is this same program, over the bare image of this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_image::Store;
use ringfence_interp::{WORKER_SOURCE, ZYGOTE_SOURCE};
use ringfence_jail::{KeeperConfig, Launched};
use ringfence_op::{CellLimits, RootSpec};

/// The body of this program when it is started as the keeper.
pub(crate) fn keeper() -> ExitCode {
    let fd = |number| ringfence_sys::process::adopt(number).expect("an inherited descriptor");
    ringfence_jail::keeper_main(fd(3), fd(4))
}

/// Starts a keeper and goes into its fleet; the process must still have one thread.
pub(crate) fn launch(state_dir: PathBuf, limits: CellLimits) -> (Launched, RootSpec) {
    let held = ringfence_image::prepare(&Store::at(&state_dir), "bare", None, &mut ()).expect("the bare image");
    let root = ringfence_image::root_of(&held.entry, limits.cpu_millis).expect("its root");
    let images = vec![root.clone()];
    let mut config = KeeperConfig::new(images, ZYGOTE_SOURCE.to_owned(), WORKER_SOURCE.to_owned(), state_dir);
    config.limits = limits;
    let launched = ringfence_jail::launch(&config).expect("a keeper");
    ringfence_jail::enter_fleet(&launched).expect("the fleet's namespace");
    (launched, root)
}
