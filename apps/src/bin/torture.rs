//! Everything that the API can do, at random, checked; see [`hydrant_apps::torture`].

use std::process::ExitCode;

fn main() -> ExitCode {
    hydrant_apps::torture::main()
}
