//! Programs of Hydrant's own workspace, built when they are missing or stale.
//!
//! From a fresh clone `cargo run --release -- run -n 4 cannon` builds the
//! `hydrant` command alone; this builds `cannon` beside it. Whether a built
//! program is older than its sources is read off the list of them that cargo
//! leaves next to it (`cannon.d`), which costs no run of cargo.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use super::{Event, LaunchError};

/// The package of the program `hydrant bench`, which has its name.
const BENCH: &str = "hydrant-bench";

/// The package of all other programs.
const APPS: &str = "hydrant-apps";

/// A program of the workspace, and where its build goes.
#[derive(Debug)]
pub(super) struct WorkspaceProgram {
    name: String,
    package: &'static str,
    binary: PathBuf,
    workspace: PathBuf,
    target: PathBuf,
    triple: Option<String>,
    profile: String,
}

impl WorkspaceProgram {
    /// The program `name`, if the workspace has its source and `beside` is where cargo puts binaries.
    pub(super) fn find(name: &OsStr, beside: &Path, workspace: &Path) -> Option<WorkspaceProgram> {
        let name = name.to_str()?;
        let package = package(name, workspace)?;
        // TARGET/PROFILE, or TARGET/TRIPLE/PROFILE when cross-compiled.
        let profile = beside.file_name()?.to_str()?.to_owned();
        let parent = beside.parent()?;
        let (target, triple) = if parent.join("CACHEDIR.TAG").is_file() {
            (parent, None)
        } else {
            let target = parent
                .parent()
                .filter(|t| t.join("CACHEDIR.TAG").is_file())?;
            (target, Some(parent.file_name()?.to_str()?.to_owned()))
        };
        Some(WorkspaceProgram {
            name: name.to_owned(),
            package,
            binary: beside.join(name),
            workspace: workspace.into(),
            target: target.into(),
            triple,
            profile,
        })
    }

    /// Builds it, unless it is built and newer than all its sources.
    pub(super) fn build_if_stale(&self, report: &mut dyn FnMut(Event)) -> Result<(), LaunchError> {
        if self.is_fresh() {
            return Ok(());
        }
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.arg("build");
        match self.profile.as_str() {
            "debug" => {}
            "release" => drop(command.arg("--release")),
            other => drop(command.args(["--profile", other])),
        }
        command.args(["-p", self.package, "--bin", &self.name]);
        let shown = shown(&command);
        command.arg("--target-dir").arg(&self.target);
        if let Some(triple) = &self.triple {
            command.args(["--target", triple]);
        }
        report(Event::Building {
            program: self.binary.clone(),
            command: shown.clone(),
        });
        let ended = command
            .current_dir(&self.workspace)
            .stdin(Stdio::null())
            .status();
        let failed = |why: String| {
            Err(LaunchError::NotBuilt {
                program: self.name.clone().into(),
                command: shown,
                why,
            })
        };
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => failed(status.to_string()),
            Err(error) => failed(error.to_string()),
        }
    }

    fn is_fresh(&self) -> bool {
        let Ok(built) = modified(&self.binary) else {
            return false;
        };
        // Without the list it came from somewhere else than cargo, and is taken as it is.
        let Ok(list) = fs::read_to_string(self.binary.with_extension("d")) else {
            return true;
        };
        sources(&list)
            .all(|source| modified(Path::new(&source)).is_ok_and(|changed| changed <= built))
    }
}

/// Returns the package of a program, if the workspace has its source.
fn package(name: &str, workspace: &Path) -> Option<&'static str> {
    let has = |source: &str| workspace.join(source).is_file();
    if name == BENCH {
        return has("crates/bench/src/main.rs").then_some(BENCH);
    }
    let is_app =
        has(&format!("apps/src/bin/{name}.rs")) || has(&format!("apps/src/bin/{name}/main.rs"));
    is_app.then_some(APPS)
}

fn modified(path: &Path) -> std::io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}

/// The files right of the colon in a makefile's rule, where a blank in a name is `\ `.
fn sources(rule: &str) -> impl Iterator<Item = String> {
    const BLANK: &str = "\0";
    let rule = rule
        .lines()
        .next()
        .unwrap_or_default()
        .replace("\\ ", BLANK);
    let files = rule
        .split_once(": ")
        .map(|(_, files)| files.to_owned())
        .unwrap_or_default();
    files
        .split_ascii_whitespace()
        .map(|file| file.replace(BLANK, " "))
        .collect::<Vec<_>>()
        .into_iter()
}

/// A command as a user would type it.
fn shown(command: &Command) -> String {
    let words = command
        .get_args()
        .map(|word| word.to_string_lossy().into_owned());
    std::iter::once("cargo".to_owned())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_of_a_rule() {
        let rule = "/t/cannon: /w/apps/src/bin/cannon.rs /w/a\\ b.rs\n\n/w/other: x\n";
        assert_eq!(
            sources(rule).collect::<Vec<_>>(),
            ["/w/apps/src/bin/cannon.rs", "/w/a b.rs"]
        );
        assert_eq!(sources("").count(), 0);
    }

    #[test]
    fn a_program_is_fresh_while_its_sources_are_older() {
        let root = tempfile::tempdir().unwrap();
        let (workspace, target) = (root.path().join("w"), root.path().join("t"));
        let (sources, beside) = (workspace.join("apps/src/bin"), target.join("release"));
        fs::create_dir_all(&sources).unwrap();
        fs::create_dir_all(&beside).unwrap();
        let find = || WorkspaceProgram::find(OsStr::new("app"), &beside, &workspace);
        let source = sources.join("app.rs");
        fs::write(&source, "").unwrap();
        assert!(find().is_none(), "no tag, so not a target directory");
        fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
        let program = find().unwrap();
        assert_eq!(
            (program.profile.as_str(), &program.triple),
            ("release", &None)
        );
        assert!(WorkspaceProgram::find(OsStr::new("other"), &beside, &workspace).is_none());

        assert!(!program.is_fresh(), "it is missing");
        fs::write(beside.join("app"), "").unwrap();
        assert!(
            program.is_fresh(),
            "it is there, and nobody knows its sources"
        );
        fs::write(beside.join("app.d"), format!("app: {}\n", source.display())).unwrap();
        let age = |path: &Path, seconds| {
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
                .unwrap();
        };
        age(&source, 100);
        age(&beside.join("app"), 200);
        assert!(program.is_fresh());
        age(&source, 300);
        assert!(!program.is_fresh());
        fs::remove_file(&source).unwrap();
        assert!(!program.is_fresh());
    }

    #[test]
    fn a_cross_build_is_known_by_its_triple() {
        let root = tempfile::tempdir().unwrap();
        let beside = root.path().join("x86_64-unknown-linux-gnu/debug");
        fs::create_dir_all(root.path().join("apps/src/bin/app")).unwrap();
        fs::create_dir_all(&beside).unwrap();
        fs::write(root.path().join("apps/src/bin/app/main.rs"), "").unwrap();
        fs::write(root.path().join("CACHEDIR.TAG"), "").unwrap();
        let program = WorkspaceProgram::find(OsStr::new("app"), &beside, root.path()).unwrap();
        assert_eq!(program.triple.as_deref(), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(program.target, root.path());
    }
}
