//! `hydrant completions`: scripts that let a shell complete this command.

use std::io::{self, Write};

use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// The arguments of `hydrant completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to write for.
    shell: Shell,
}

/// Prints the script of `command` for the shell.
pub(crate) fn print(args: &CompletionsArgs, mut command: Command) -> io::Result<()> {
    // The script is written at once, because the generator panics when its reader closes the pipe.
    let mut script = Vec::new();
    generate(args.shell, &mut command, "hydrant", &mut script);
    io::stdout().lock().write_all(&script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_names_the_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            generate(
                shell,
                &mut Command::new("hydrant").subcommand(Command::new("bench")),
                "hydrant",
                &mut script,
            );
            assert!(
                String::from_utf8(script).unwrap().contains("bench"),
                "{shell}"
            );
        }
    }
}
