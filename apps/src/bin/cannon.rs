//! Cannon's matrix multiplication; see [`hydrant_apps::cannon`].

use std::process::ExitCode;

use hydrant_apps::{cannon, program};

fn main() -> ExitCode {
    program::run("cannon", cannon::run)
}
