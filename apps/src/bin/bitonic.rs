//! Bitonic sort; see [`hydrant_apps::bitonic`].

use std::process::ExitCode;

use hydrant_apps::{bitonic, program};

fn main() -> ExitCode {
    program::run("bitonic", bitonic::run)
}
