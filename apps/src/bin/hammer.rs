//! Ranks that access each other's memory until a fault; see [`hydrant_apps::hammer`].

use std::process::ExitCode;

fn main() -> ExitCode {
    hydrant_apps::hammer::main()
}
