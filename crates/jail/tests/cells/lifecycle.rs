use crate::Test;
use crate::driver::*;
use std::process::ExitCode;
pub const TESTS: &[Test] = &[("echo", echo)];
fn echo() {
    let mut keeper = Keeper::start(&config(vec![host_root()]));
    eprintln!("{:?}", keeper.launched);
    let mut cell = keeper.cell(0);
    let ran = cell.run("echo hi; id; cat /proc/self/status | grep -E 'Cap|Secc|NoNew'; cat /proc/self/mounts; ls -l / /dev /workspace -d; cat /proc/self/cgroup");
    eprintln!("{} {} {}", ran.status, ran.out, ran.err);
    keeper.destroy(cell.number);
    assert_eq!(keeper.end(), 0);
}
pub fn inside_the_fleet() -> ExitCode {
    ExitCode::FAILURE
}
pub fn hold_cells() -> ExitCode {
    ExitCode::FAILURE
}
