//! Installs the libraries for C with their headers, and the commands that start and measure programs.

use std::fs;
use std::path::{Path, PathBuf, absolute};

use crate::command::{cargo, run, target_folder};
use crate::error::Error;
use crate::report::{CheckRow, timed};

/// The arguments of `cargo xtask install`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Arguments {
    /// The folder to install into: it gets bin, include, lib and lib/pkgconfig
    #[arg(long)]
    prefix: PathBuf,

    /// Installs what tests have built, without the optimizations of a release
    #[arg(long)]
    dev: bool,
}

/// The packages whose release needs no further flags.
const PACKAGES: &str = "-p hydrant-cli -p hydrant-bench -p hydrant-capi -p hydrant-mooncake";

/// The built files: the path below the profile's folder, and the path below the prefix.
const BUILT: [(&str, &str); 8] = [
    ("hydrant", "bin/hydrant"),
    ("hydrant-bench", "bin/hydrant-bench"),
    ("libarmci.so", "lib/libarmci.so"),
    ("libarmci.a", "lib/libarmci.a"),
    ("libhydrant_capi.so", "lib/libhydrant.so"),
    ("libhydrant_capi.a", "lib/libhydrant.a"),
    ("libtransfer_engine.so", "lib/libtransfer_engine.so"),
    ("libtransfer_engine.a", "lib/libtransfer_engine.a"),
];
/// The headers, below `crates`.
const HEADERS: [&str; 7] = [
    "armci/include/armci.h",
    "armci/include/message.h",
    "armci/include/gpc.h",
    "armci/include/parmci.h",
    "armci/include/armcix.h",
    "capi/include/hydrant.h",
    "mooncake/include/transfer_engine_c.h",
];

/// The libraries for C: the name and the description.
const LIBRARIES: [(&str, &str); 3] = [
    ("armci", "ARMCI on Hydrant: one-sided remote memory"),
    (
        "hydrant",
        "Hydrant: one-sided remote memory for parallel jobs",
    ),
    (
        "transfer_engine",
        "Mooncake's transfer engine on Hydrant: memory of peers that come and go",
    ),
];
/// The libraries of the system that they need if they are linked statically.
const SYSTEM_LIBRARIES: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Builds and installs. Returns the row that lists the files.
pub(crate) fn report(arguments: &Arguments) -> CheckRow {
    timed("install", || install(arguments))
}

fn install(arguments: &Arguments) -> Result<Vec<String>, Error> {
    let prefix = &arguments.prefix;
    let folder = if arguments.dev {
        run(cargo(&format!("build {PACKAGES} -p hydrant-armci")))?;
        "debug"
    } else {
        run(cargo(&format!("build --release {PACKAGES}")))?;
        // The strategy `foresight` tells the call sites of C programs apart by their call stacks.
        run(cargo(
            "rustc --release -p hydrant-armci --lib -- -C force-frame-pointers=yes",
        ))?;
        "release"
    };
    let prefix = absolute(prefix).map_err(|source| cannot("find", prefix, source))?;
    let built = target_folder().join(folder);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut installed = Vec::new();
    for (from, to) in BUILT {
        installed.push(copy(&built.join(from), &prefix.join(to))?);
    }
    for header in HEADERS {
        let name = Path::new(header).file_name().unwrap_or_default();
        let to = prefix.join("include").join(name);
        installed.push(copy(&crates.join(header), &to)?);
    }
    for (name, what) in LIBRARIES {
        let description = prefix.join(format!("lib/pkgconfig/{name}.pc"));
        make_folder_of(&description)?;
        let text = package(&prefix, name, what);
        fs::write(&description, text).map_err(|it| cannot("write", &description, it))?;
        installed.push(description.display().to_string());
    }
    Ok(installed)
}

/// The text of the pkg-config file of a library. The variable `static_libs` links with the static one, although the
/// shared one lies beside it.
fn package(prefix: &Path, name: &str, what: &str) -> String {
    format!(
        "prefix={}\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\
         static_libs=${{libdir}}/lib{name}.a {SYSTEM_LIBRARIES}\n\
         \n\
         Name: {name}\n\
         Description: {what}\n\
         Version: {}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -l{name}\n\
         Libs.private: {SYSTEM_LIBRARIES}\n",
        prefix.display(),
        env!("CARGO_PKG_VERSION"),
    )
}

fn copy(from: &Path, to: &Path) -> Result<String, Error> {
    make_folder_of(to)?;
    // A new file replaces the old one, so a library that a program has open does not change under
    // it.
    match fs::remove_file(to) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(cannot("replace", to, source));
        }
        _ => {}
    }
    fs::copy(from, to).map_err(|source| cannot("copy to", to, source))?;
    Ok(to.display().to_string())
}

fn make_folder_of(file: &Path) -> Result<(), Error> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(|source| cannot("make", folder, source))
}

fn cannot(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Install {
        doing,
        path: path.into(),
        source,
    }
}
