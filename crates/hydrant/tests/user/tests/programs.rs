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

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn logs(subscriber: &str, variables: &[(&str, &str)]) -> Output {
    run(env!("CARGO_BIN_EXE_logs"), &[subscriber], variables)
}

#[test]
fn plain_data_is_derived_without_bytemuck() {
    let output = run(env!("CARGO_BIN_EXE_plain_data"), &[], &[]);
    assert!(output.status.success(), "{}", stderr_of(&output));
}

#[test]
fn an_error_that_leaves_main_is_a_sentence() {
    let output = run(env!("CARGO_BIN_EXE_fails"), &[], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr_of(&output),
        "Error: 3 elements at index 6 are out of bounds: there are 8\n"
    );
}

/// In every profile: a level that is left out when Hydrant is compiled would be out of reach.
#[test]
fn the_subscriber_of_the_program_hears_all_levels() {
    let output = logs("own", &[("HYDRANT_LOG", "off")]);
    let said = stderr_of(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("a word of the program's own"), "{said}");
    assert!(said.contains("hydrant_launch"), "{said}");
}

#[test]
fn without_a_subscriber_nothing_is_logged_and_none_is_installed() {
    let output = logs("none", &[("HYDRANT_LOG", "debug")]);
    assert!(output.status.success());
    assert_eq!(stderr_of(&output), "");
}

#[test]
fn log_to_stderr_does_what_hydrant_log_says() {
    let detailed = logs("hydrant", &[("HYDRANT_LOG", "hydrant_launch=debug")]);
    assert!(
        stderr_of(&detailed).contains("hydrant_launch"),
        "{detailed:?}"
    );
    // The output is no terminal.
    assert!(!stderr_of(&detailed).contains('\u{1b}'), "{detailed:?}");
    assert!(!stderr_of(&detailed).contains("a word of"), "{detailed:?}");
    let quiet = logs("hydrant", &[]);
    assert!(quiet.status.success());
    assert_eq!(stderr_of(&quiet), "");
}

#[test]
fn log_to_stderr_refuses_what_is_no_filter() {
    let output = logs("hydrant", &[("HYDRANT_LOG", "=[")]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr_of(&output);
    assert!(
        said.starts_with("Error: HYDRANT_LOG==[ is not valid: expected a log filter"),
        "{said}"
    );
}

#[test]
fn log_to_stderr_leaves_the_subscriber_of_the_program() {
    let output = logs("both", &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr_of(&output);
    assert!(
        said.contains("the log has its subscriber already"),
        "{said}"
    );
}
