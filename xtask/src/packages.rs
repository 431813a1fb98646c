//! The packages of the workspace, as cargo knows them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{cargo, output};
use crate::error::Error;

/// One package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The folder, relative to the workspace.
    pub(crate) folder: PathBuf,
    /// The names of its dependencies, apart from those of tests.
    pub(crate) imports: Vec<String>,
    /// The names of all its dependencies, of any kind.
    pub(crate) depends_on: Vec<String>,
    /// True if it has a library that others or tests can use.
    pub(crate) has_library: bool,
    /// Its library and its programs.
    pub(crate) roots: Vec<Root>,
}

/// One crate of a package: its library, or a program.
#[derive(Debug)]
pub(crate) struct Root {
    /// The package's name, with the program's name where there are several.
    pub(crate) key: String,
    /// The root file, relative to the workspace.
    pub(crate) file: PathBuf,
}

/// Every package of the workspace.
pub(crate) fn all() -> Result<Vec<Package>, Error> {
    let printed = output(cargo("metadata --no-deps --format-version 1 --offline"))?;
    let understood: Result<Value, _> = serde_json::from_slice(&printed);
    let metadata = understood.map_err(|error| Error::NotRead {
        what: format!("cargo metadata: {error}"),
    })?;
    let workspace = text(&metadata["workspace_root"]);
    let packages = array(&metadata["packages"]).iter();
    Ok(packages
        .map(|it| package(it, Path::new(workspace)))
        .collect())
}

fn package(value: &Value, workspace: &Path) -> Package {
    let name = text(&value["name"]).to_owned();
    let below = |file: &Value| {
        let file = Path::new(text(file));
        file.strip_prefix(workspace).unwrap_or(file).to_owned()
    };
    let kind = |target: &Value| text(&target["kind"][0]).to_owned();
    let shipped = |it: &&Value| ["lib", "bin", "proc-macro"].contains(&kind(it).as_str());
    let targets: Vec<&Value> = array(&value["targets"]).iter().filter(shipped).collect();
    let root = |target: &&Value| {
        let own = targets.len() == 1 || kind(target) != "bin";
        let program = text(&target["name"]);
        Root {
            key: if own {
                name.clone()
            } else {
                format!("{name}-{program}")
            },
            file: below(&target["src_path"]),
        }
    };
    let roots = targets.iter().map(root).collect();
    let has_library = targets.iter().any(|it| kind(it) != "bin");
    let dependencies = array(&value["dependencies"]);
    let named = |it: &Value| text(&it["name"]).to_owned();
    // The kind of an ordinary dependency is null.
    let imports = dependencies.iter().filter(|it| text(&it["kind"]) != "dev");
    let manifest = below(&value["manifest_path"]);
    Package {
        folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
        imports: imports.map(named).collect(),
        depends_on: dependencies.iter().map(named).collect(),
        has_library,
        roots,
        name,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
