//! One target, named by `FUZZ_TARGET`, under libFuzzer. `crates/fuzz/run` starts it.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<ringfence_fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
        ringfence_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
    });
    target(data);
});
