//! The one binary `ringfence`.
fn main() {}
