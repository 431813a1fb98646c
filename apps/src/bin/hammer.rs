//! Ranks that work on each other until something breaks; see [`hydrant_apps::hammer`].

use std::process::ExitCode;

fn main() -> ExitCode {
    hydrant_apps::hammer::main()
}
