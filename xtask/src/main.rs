//! Every check, runnable by hand: `cargo xtask <name>`.
fn main() {}
