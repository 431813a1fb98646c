//! The `hydrant` command.
fn main() {}
