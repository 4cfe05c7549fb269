//! A keeper that is this same program, over the bare image of this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use ringfence_image::{ImageKind, Progress, Wanted};
use ringfence_interp::{WORKER_SOURCE, ZYGOTE_SOURCE};
use ringfence_jail::{KeeperConfig, Launched};
use ringfence_op::{CellLimits, RootSpec};

struct Quiet;

impl Progress for Quiet {
    fn step(&mut self, _: &str) {}
    fn count(&mut self, _: usize, _: usize, _: &str) {}
}

/// The body of this program when it is started as the keeper.
pub(crate) fn keeper() -> ExitCode {
    let fd = |number| ringfence_sys::process::adopt(number).expect("an inherited descriptor");
    ringfence_jail::keeper_main(fd(3), fd(4))
}

/// Starts a keeper and goes into its fleet; the process must still have one thread.
pub(crate) fn launch(state_dir: PathBuf, limits: CellLimits) -> (Launched, RootSpec) {
    let wanted =
        Wanted { kind: ImageKind::Bare, state_dir: state_dir.clone(), python: None, cpu_millis: limits.cpu_millis };
    let image = ringfence_image::prepare(&wanted, &mut Quiet).expect("the bare image");
    let images = vec![image.root.clone()];
    let mut config = KeeperConfig::new(images, ZYGOTE_SOURCE.to_owned(), WORKER_SOURCE.to_owned(), state_dir);
    config.limits = limits;
    let launched = ringfence_jail::launch(&config).expect("a keeper");
    ringfence_jail::enter_fleet(&launched).expect("the fleet's namespace");
    (launched, image.root)
}
