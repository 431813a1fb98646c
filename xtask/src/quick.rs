//! The quick checks of a change in progress, on the crates that it touches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::check::Check;
use crate::command::{at_root, output};
use crate::error::Error;
use crate::packages::{self, Package};
use crate::report::{CheckRow, timed};
use crate::tool::{Tool, lacking, missing};
use crate::{cargo, prose, runners};

/// The branch that a change is compared with.
const BRANCH: &str = "main";

/// Files that affect the build of every crate.
const EVERYBODYS: [&str; 2] = ["Cargo.toml", "Cargo.lock"];

/// Formats, orders, lints and tests what changed since the branch left `main`.
pub(crate) fn report() -> Vec<CheckRow> {
    let mut rows = vec![
        Check::Fmt.report(),
        Check::Rooms.report(),
        Check::Prose(prose::Arguments::default()).report(),
    ];
    match touched_packages() {
        Ok(touched) => {
            rows.push(on(Check::Clippy, &touched.linted, cargo::clippy_of));
            rows.push(on(
                Check::Unit(runners::Unit::default()),
                &touched.changed,
                |packages| runners::quick(packages, touched.library),
            ));
        }
        Err(error) => rows.push(timed("changes", || Err(error))),
    }
    rows
}

/// Runs a check on these packages alone.
fn on(
    check: Check,
    packages: &[String],
    work: impl FnOnce(&[String]) -> Result<Vec<String>, Error>,
) -> CheckRow {
    timed(check.name(), || {
        if packages.is_empty() {
            return Ok(vec!["no crate has changed".into()]);
        }
        let tools: Vec<Tool> = missing(check.needs());
        if !tools.is_empty() {
            return Err(lacking(&tools));
        }
        let mut notes = work(packages)?;
        notes.push(packages.join(", "));
        Ok(notes)
    })
}

/// The packages that a change touches.
#[derive(Debug, PartialEq, Eq)]
struct Touched {
    /// The packages whose files changed.
    changed: Vec<String>,
    /// True if one of them has a library.
    library: bool,
    /// The changed packages, and all that depend on them.
    linted: Vec<String>,
}

fn touched_packages() -> Result<Touched, Error> {
    Ok(among(&packages::all()?, &changed_files()?))
}

/// The files that differ from the point where this branch left `main`, or from the last commit
/// where there is no `main`. Files that git does not know yet are included.
fn changed_files() -> Result<Vec<PathBuf>, Error> {
    let base = lines(&["merge-base", "HEAD", BRANCH]);
    let base = base.ok().and_then(|it| it.into_iter().next());
    let base = base.as_deref().unwrap_or("HEAD");
    let mut files = lines(&["diff", "--name-only", base])?;
    files.extend(lines(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(files.iter().map(PathBuf::from).collect())
}

fn lines(arguments: &[&str]) -> Result<Vec<String>, Error> {
    let mut git = at_root("git");
    git.args(arguments);
    let printed = output(git)?;
    let printed = String::from_utf8_lossy(&printed);
    Ok(printed.lines().map(str::to_owned).collect())
}

fn among(packages: &[Package], files: &[PathBuf]) -> Touched {
    let changed: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| owner(packages, file))
        .collect();
    let mut linted = changed.clone();
    if files.iter().any(|file| is_everybodys(file)) {
        linted.extend(packages.iter().map(|it| it.name.as_str()));
    }
    loop {
        let depends = |it: &&Package| it.depends_on.iter().any(|it| linted.contains(it.as_str()));
        let more = packages.iter().filter(depends);
        let more: Vec<_> = more.map(|it| it.name.as_str()).collect();
        let before = linted.len();
        linted.extend(more);
        if linted.len() == before {
            break;
        }
    }
    let has_library = |it: &Package| it.has_library && changed.contains(it.name.as_str());
    let library = packages.iter().any(has_library);
    let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    Touched {
        changed: owned(changed),
        library,
        linted: owned(linted),
    }
}

fn is_everybodys(file: &Path) -> bool {
    EVERYBODYS.iter().any(|it| file == Path::new(it))
}

/// The package whose folder `file` is in: the innermost folder.
fn owner<'a>(packages: &'a [Package], file: &Path) -> Option<&'a str> {
    let around = packages.iter().filter(|it| file.starts_with(&it.folder));
    let innermost = around.max_by_key(|it| it.folder.components().count());
    innermost.map(|it| it.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched_packages(files: &[&str]) -> (String, String) {
        let package = |name: &str, folder: &str, depends_on: &[&str]| Package {
            name: name.into(),
            folder: folder.into(),
            imports: vec![],
            depends_on: depends_on.iter().map(|it| (*it).to_owned()).collect(),
            has_library: true,
            roots: vec![],
        };
        let packages = [
            package("low", "crates/low", &[]),
            package("high", "crates/high", &["low"]),
            package("user", "crates/high/tests/user", &["high"]),
            package("beside", "beside", &[]),
        ];
        let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let touched = among(&packages, &files);
        (touched.changed.join(" "), touched.linted.join(" "))
    }

    #[test]
    fn those_that_depend_on_a_change_are_linted_and_not_tested() {
        let (changed, linted) = touched_packages(&["crates/low/src/lib.rs"]);
        assert_eq!(changed, "low");
        assert_eq!(linted, "high low user");
    }

    #[test]
    fn a_file_belongs_to_the_innermost_package() {
        let (changed, linted) =
            touched_packages(&["crates/high/tests/user/src/lib.rs", "README.md"]);
        assert_eq!(changed, "user");
        assert_eq!(linted, "user");
    }

    #[test]
    fn a_change_of_the_whole_build_lints_every_package() {
        let (changed, linted) = touched_packages(&["Cargo.lock"]);
        assert_eq!(changed, "");
        assert_eq!(linted, "beside high low user");
    }
}
