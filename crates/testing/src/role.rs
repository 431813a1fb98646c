//! The command that starts this binary in a role.

use std::env;

/// The program and the arguments that start this binary in a role.
///
/// # Panics
/// If the path of the binary is not UTF-8.
pub fn role(arguments: &[&str]) -> Vec<String> {
    let binary = env::current_exe().expect("the test binary has a path");
    let binary = binary.into_os_string().into_string();
    let mut command = vec![binary.expect("the path is UTF-8"), "--role".to_owned()];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    command
}
