//! `examples/platform.sh`: control plane, two front doors, three backends and two workspaces, with a rotation and kills.

use std::path::Path;
use std::process::Command;

#[test]
fn the_whole_platform_holds() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("examples/platform.sh");
    let output = Command::new(script).env("RINGFENCE", env!("CARGO_BIN_EXE_ringfence")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with("the platform holds\n"), "{}", text(&output.stdout));
}
