//! What users see of programs that depend on `hydrant` alone.

use std::process::{Command, Output};

/// Runs a program as a job of one, with nothing of a launcher's or Hydrant's in its environment
/// but what is given.
fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in std::env::vars() {
        let foreign = ["PMI", "SLURM", "OMPI", "HYDRANT", "RUST_LOG"];
        if foreign.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    let variables = variables.iter().copied();
    (command.envs(variables).output()).expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn plain_data_is_derived_without_bytemuck() {
    let output = run(env!("CARGO_BIN_EXE_plain_data"), &[], &[]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn an_error_that_leaves_main_is_a_sentence() {
    let output = run(env!("CARGO_BIN_EXE_fails"), &[], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        "Error: 3 elements at index 6 are out of bounds: there are 8\n"
    );
}
