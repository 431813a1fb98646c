//! Finding the program a user named.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::{Event, LaunchError, Spec, workspace};

/// Returns the file to run for [`Spec::program`].
///
/// A path is taken as given. A name is looked for in [`Spec::beside`], where the programs of [`Spec::workspace`] are
/// built as needed, and then in `PATH`.
///
/// # Errors
/// [`LaunchError`] if there is no such file, if it may not be run or if it could not be built.
pub fn program(spec: &Spec, report: &mut dyn FnMut(Event)) -> Result<PathBuf, LaunchError> {
    let name = spec.program.as_os_str();
    if name.as_bytes().contains(&b'/') {
        return given(name);
    }
    let mut looked = Vec::new();
    if !name.is_empty()
        && let Some(beside) = &spec.beside
    {
        let own = spec
            .workspace
            .as_deref()
            .and_then(|root| workspace::WorkspaceProgram::find(name, beside, root));
        if let Some(own) = own {
            own.build_if_stale(report)?;
        }
        let path = beside.join(name);
        if path.is_file() {
            return runnable(path);
        }
        looked.push(path);
    }
    in_path(name, looked)
}

/// Checks that this host has the program of a remote shell. `shell` is its command line. A first word that the local
/// shell must expand is not looked for.
///
/// # Errors
/// [`LaunchError::NoRemoteShell`] if there is no such program, or it may not be run.
pub(super) fn remote_shell(shell: &OsStr) -> Result<(), LaunchError> {
    let mut words = (shell.as_bytes().split(u8::is_ascii_whitespace)).filter(|it| !it.is_empty());
    let Some(word) = words.next() else {
        return Ok(());
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./+-@:".contains(byte);
    if !word.iter().all(is_plain) {
        return Ok(());
    }
    let word = OsStr::from_bytes(word);
    let found = if word.as_bytes().contains(&b'/') {
        given(word)
    } else {
        in_path(word, Vec::new())
    };
    found
        .map(drop)
        .map_err(|source| LaunchError::NoRemoteShell {
            shell: shell.to_owned(),
            source: Box::new(source),
        })
}

/// Returns the file of a path.
fn given(name: &OsStr) -> Result<PathBuf, LaunchError> {
    let path = PathBuf::from(name);
    if path.exists() {
        runnable(path)
    } else {
        Err(not_found(name, vec![path]))
    }
}

fn in_path(name: &OsStr, mut looked: Vec<PathBuf>) -> Result<PathBuf, LaunchError> {
    let mut refused = None;
    let path = env::var_os("PATH").unwrap_or_default();
    for directory in env::split_paths(&path).filter(|_| !name.is_empty()) {
        let candidate = directory.join(name);
        if candidate.is_file() {
            // As in a shell, a file that may not be run hides none behind it.
            match runnable(candidate.clone()) {
                Ok(path) => return Ok(path),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if !looked.contains(&candidate) {
            looked.push(candidate);
        }
    }
    Err(refused.unwrap_or_else(|| not_found(name, looked)))
}

fn not_found(name: &OsStr, looked: Vec<PathBuf>) -> LaunchError {
    LaunchError::NotFound {
        program: name.to_owned(),
        looked,
    }
}

fn runnable(path: PathBuf) -> Result<PathBuf, LaunchError> {
    if !path.is_file() {
        return Err(LaunchError::NotAFile(path));
    }
    match rustix::fs::access(&path, Access::EXEC_OK) {
        Ok(()) => Ok(with_slash(path)),
        Err(source) => Err(LaunchError::NotExecutable {
            path,
            source: source.into(),
        }),
    }
}

/// A path that nobody looks up again: one from an empty or relative `PATH` entry may have no slash.
fn with_slash(path: PathBuf) -> PathBuf {
    if path.as_os_str().as_bytes().contains(&b'/') {
        path
    } else {
        Path::new(".").join(path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn find(spec: &Spec) -> Result<PathBuf, LaunchError> {
        program(spec, &mut |_| {})
    }

    #[test]
    fn remote_shells_that_do_not_exist_are_refused() {
        for shell in ["sh", "sh -c", " /bin/sh", "$SHELL -c", "'my shell' x", ""] {
            remote_shell(OsStr::new(shell)).expect(shell);
        }
        for (shell, reason) in [
            ("no-such-shell -x", "`no-such-shell` was not found"),
            ("/no/such/shell", "`/no/such/shell` was not found"),
            ("/tmp", "is not a file"),
        ] {
            let error = remote_shell(OsStr::new(shell))
                .expect_err(shell)
                .to_string();
            let named = error.contains(&format!("the remote shell `{shell}`"));
            assert!(named && error.contains(reason), "{error}");
            assert!(error.contains("HYDRANT_RSH"), "{error}");
        }
    }

    #[test]
    fn beside_comes_before_path() {
        let directory = tempfile::tempdir().unwrap();
        let mut spec = Spec::new(1, "true");
        assert!(find(&spec).unwrap().ends_with("bin/true"));
        spec.beside = Some(directory.path().into());
        assert!(find(&spec).unwrap().ends_with("bin/true"));
        let own = directory.path().join("true");
        fs::write(&own, "#!/bin/sh\n").unwrap();
        assert!(matches!(find(&spec), Err(LaunchError::NotExecutable { path, .. }) if path == own));
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(&spec).unwrap(), own);
    }

    #[test]
    fn what_is_nowhere_says_where_it_was_looked_for() {
        let mut spec = Spec::new(1, "no-such-program");
        spec.beside = Some("/beside".into());
        let error = find(&spec).unwrap_err();
        assert_eq!(error.status(), 127);
        let text = error.to_string();
        assert!(
            text.contains("/beside/no-such-program") && text.contains("/bin/no-such-program"),
            "{text}"
        );
        let error = find(&Spec::new(1, "./no/such")).unwrap_err();
        assert!(
            matches!(error, LaunchError::NotFound { looked, .. } if looked == [Path::new("./no/such")])
        );
        assert!(matches!(
            find(&Spec::new(1, "")),
            Err(LaunchError::NotFound { .. })
        ));
        assert!(matches!(
            find(&Spec::new(1, "/tmp/")),
            Err(LaunchError::NotAFile(_))
        ));
    }
}
