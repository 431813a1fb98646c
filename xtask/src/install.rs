//! Installs the ARMCI library with its headers, and the commands that start and measure programs.

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
}

/// The built files: the path below `release` in the target folder, and the path below the prefix.
const BUILT: [(&str, &str); 4] = [
    ("hydrant", "bin/hydrant"),
    ("hydrant-bench", "bin/hydrant-bench"),
    ("libarmci.so", "lib/libarmci.so"),
    ("libarmci.a", "lib/libarmci.a"),
];
const HEADERS: [&str; 5] = ["armci.h", "message.h", "gpc.h", "parmci.h", "armcix.h"];

/// Builds and installs. Returns the row that lists the files.
pub(crate) fn report(arguments: &Arguments) -> CheckRow {
    timed("install", || install(&arguments.prefix))
}

fn install(prefix: &Path) -> Result<Vec<String>, Error> {
    run(cargo("build --release -p hydrant-cli -p hydrant-bench"))?;
    // The strategy `foresight` tells the call sites of C programs apart by their call stacks.
    run(cargo(
        "rustc --release -p hydrant-armci --lib -- -C force-frame-pointers=yes",
    ))?;
    let prefix = absolute(prefix).map_err(|source| cannot("find", prefix, source))?;
    let built = target_folder().join("release");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/armci/include");
    let mut installed = Vec::new();
    for (from, to) in BUILT {
        installed.push(copy(&built.join(from), &prefix.join(to))?);
    }
    for header in HEADERS {
        let to = prefix.join("include").join(header);
        installed.push(copy(&headers.join(header), &to)?);
    }
    let description = prefix.join("lib/pkgconfig/armci.pc");
    make_folder_of(&description)?;
    fs::write(&description, package(&prefix)).map_err(|it| cannot("write", &description, it))?;
    installed.push(description.display().to_string());
    Ok(installed)
}

/// The text of the pkg-config file.
fn package(prefix: &Path) -> String {
    format!(
        "prefix={}\n\
         includedir=${{prefix}}/include\n\
         libdir=${{prefix}}/lib\n\
         \n\
         Name: armci\n\
         Description: ARMCI on Hydrant: one-sided remote memory\n\
         Version: {}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -larmci\n\
         Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc\n",
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
