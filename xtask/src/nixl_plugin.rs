//! Builds the NIXL backend plugin, `libplugin_HYDRANT.so`, and tries it with NIXL's wheel (docs/nixl.md).
//!
//! The plugin is one file: the C++ of `tools/nixl` and the static library of Hydrant's C interface.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use crate::command::{at_root, cargo, output, run, target_folder};
use crate::error::Error;
use crate::report::{CheckRow, timed};
use crate::wheels::{cannot, environment};

/// The arguments of `cargo xtask nixl-plugin`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Arguments {
    /// Copies the plugin into this folder
    #[arg(long)]
    into: Option<PathBuf>,

    /// Creates an engine in the NIXL of this Python, in a process of its own, and refuses the build if that fails
    #[arg(long, value_name = "PYTHON")]
    check: Option<PathBuf>,

    /// Runs the tests with NIXL's wheel, in a virtual environment below the target folder
    #[arg(long)]
    test: bool,

    /// Measures NIXL over Hydrant beside NIXL over UCX, in that environment
    #[arg(long)]
    measure: bool,

    /// Measures over TCP between two network namespaces, and not on one host
    #[arg(long, requires = "measure")]
    two_hosts: bool,

    /// Builds without the optimizations of a release
    #[arg(long)]
    dev: bool,
}

/// The wheel that the plugin is tried with.
const WHEEL: &str = "nixl-cu12==1.5.1";
/// The name of the plugin's file, by which NIXL finds it.
const PLUGIN: &str = "libplugin_HYDRANT.so";
/// The libraries of the system that the static library needs.
const SYSTEM_LIBRARIES: &str = "-lutil -lrt -lpthread -lm -ldl";
/// The symbols that the plugin exports.
const EXPORTS: &str = "{ global: nixl_plugin_init; nixl_plugin_fini; local: *; };\n";

/// Builds the plugin, and tries it as the arguments say.
pub(crate) fn report(arguments: &Arguments) -> CheckRow {
    timed("nixl-plugin", || work(arguments))
}

fn work(arguments: &Arguments) -> Result<Vec<String>, Error> {
    let plugin = build(arguments.dev)?;
    let mut notes = vec![plugin.display().to_string()];
    if let Some(python) = &arguments.check {
        notes.push(check(python.as_os_str().to_owned(), &plugin)?);
    }
    if arguments.test || arguments.measure {
        let python = environment("nixl/venv", Some(WHEEL))?;
        notes.push(check(python.clone().into(), &plugin)?);
        let installed = install(&python, &plugin)?;
        if arguments.test {
            test(&python, &installed)?;
        }
        if arguments.measure {
            let mut words = vec!["tools/nixl/measure.py"];
            words.extend(arguments.two_hosts.then_some("--two-hosts"));
            let measured = output(script(&python, &words))?;
            let text = String::from_utf8_lossy(&measured).into_owned();
            notes.extend(text.lines().map(str::to_owned));
        }
    }
    if let Some(folder) = &arguments.into {
        fs::create_dir_all(folder).map_err(|source| cannot("make", folder, source))?;
        notes.push(
            replace(&plugin, &folder.join(PLUGIN))?
                .display()
                .to_string(),
        );
    }
    Ok(notes)
}

/// Builds the plugin, and copies it into an environment with NIXL's wheel. Returns the Python there.
pub(crate) fn with_wheel() -> Result<PathBuf, Error> {
    let python = environment("nixl/venv", Some(WHEEL))?;
    install(&python, &build(false)?)?;
    Ok(python)
}

/// Compiles and links. Returns the path of the plugin.
fn build(dev: bool) -> Result<PathBuf, Error> {
    let (flags, profile) = if dev {
        ("", "debug")
    } else {
        ("--release", "release")
    };
    run(cargo(&format!("build {flags} -p hydrant-capi")))?;
    let folder = target_folder().join("nixl");
    fs::create_dir_all(&folder).map_err(|source| cannot("make", &folder, source))?;
    let exports = folder.join("exports.map");
    fs::write(&exports, EXPORTS).map_err(|source| cannot("write", &exports, source))?;
    let sources = sources()?;
    let plugin = folder.join(PLUGIN);
    let mut compiler = at_root(&env::var("CXX").unwrap_or_else(|_| "g++".into()));
    compiler
        .args([
            "-std=c++20",
            "-O2",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
        ])
        .args(["-Wall", "-Wextra", "-Werror", "-Icrates/capi/include"])
        .arg(format!(
            "-DHYDRANT_NIXL_VERSION=\"{}\"",
            env!("CARGO_PKG_VERSION")
        ))
        .args(sources)
        .arg(target_folder().join(profile).join("libhydrant_capi.a"))
        .arg(format!("-Wl,--version-script={}", exports.display()))
        .args(["-Wl,--gc-sections", "-Wl,--strip-debug"])
        // Handlers of forks stay registered, so the library stays, too.
        .args(["-Wl,-z,nodelete", "-Wl,-z,defs"])
        .args(SYSTEM_LIBRARIES.split(' '))
        .arg("-o")
        .arg(&plugin);
    run(compiler)?;
    Ok(plugin)
}

/// The sources of the plugin, in the order of their names.
fn sources() -> Result<Vec<PathBuf>, Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/nixl");
    let unread = |source| cannot("read", &folder, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.extension().is_some_and(|extension| extension == "cpp") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Creates an engine in a process of `python`. A NIXL of another interface would crash there.
fn check(python: OsString, plugin: &Path) -> Result<String, Error> {
    let folder = plugin.parent().unwrap_or(plugin);
    let mut command = at_root(&python.to_string_lossy());
    command.args(["tools/nixl/check.py"]).arg(folder);
    let checked = output(command).map_err(|error| match error {
        Error::Failed {
            command, status, ..
        } => Error::Failed {
            command,
            status,
            summary: vec![format!(
                "the plugin does not fit the NIXL of {}: it fits NIXL 1.0 to 1.5",
                python.display()
            )],
        },
        other => other,
    })?;
    let text = String::from_utf8_lossy(&checked);
    let version = text.lines().last().unwrap_or_default();
    Ok(format!("fits {version} of {}", python.display()))
}

/// Copies the plugin beside those of the wheel. Returns the wheel's folder.
fn install(python: &Path, plugin: &Path) -> Result<PathBuf, Error> {
    let code = "import sysconfig;print(sysconfig.get_path('platlib'))";
    let printed = output(script(python, &["-c", code]))?;
    let packages = PathBuf::from(String::from_utf8_lossy(&printed).trim().to_owned());
    let plugins = packages.join(".nixl_cu12.mesonpy.libs/plugins");
    replace(plugin, &plugins.join(PLUGIN))?;
    Ok(packages)
}

/// Runs our tests, and NIXL's own example program.
fn test(python: &Path, packages: &Path) -> Result<(), Error> {
    let unittest = ["-m", "unittest", "discover", "-v", "-s", "tools/nixl/tests"];
    let mut tests = script(python, &unittest);
    tests.env_remove("NIXL_PLUGIN_DIR");
    run(tests)?;
    // The wheel brings it without the right to be run.
    let example = target_folder().join("nixl/nixl_example");
    replace(&packages.join("nixl_cu12.scripts/nixl_example"), &example)?;
    run_program(&example)?;
    let libraries = packages.join(".nixl_cu12.mesonpy.libs");
    let mut command = at_root(&example.to_string_lossy());
    command.arg("HYDRANT").env("LD_LIBRARY_PATH", libraries);
    run(command)
}

/// Lets a file be run as a program.
fn run_program(file: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt;
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(file, permissions).map_err(|source| cannot("change", file, source))
}

/// A call of Python whose log has only what matters.
fn script(python: &Path, arguments: &[&str]) -> Command {
    let mut command = at_root(&python.to_string_lossy());
    command.args(arguments).env("NIXL_LOG_LEVEL", "FATAL");
    command
}

/// Copies a file as a new one, so that a program that has the old one open keeps it.
fn replace(from: &Path, to: &Path) -> Result<PathBuf, Error> {
    match fs::remove_file(to) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(cannot("replace", to, source));
        }
        _ => {}
    }
    fs::copy(from, to).map_err(|source| cannot("copy to", to, source))?;
    absolute(to).map_err(|source| cannot("find", to, source))
}
