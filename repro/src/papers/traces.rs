//! The traces of real programs that experiments replay: those that come with the command, and those
//! of a folder.

use std::path::{Path, PathBuf};

use hydrant_traces::trace::Trace;

use super::ReproduceError;

/// The archives that come with the command: the small NAS Parallel Benchmarks.
const OWN: [(&str, &[u8]); 8] = [
    ("bt.S.4", include_bytes!("../../traces/data/bt.S.4.tar.zst")),
    ("cg.W.4", include_bytes!("../../traces/data/cg.W.4.tar.zst")),
    ("ft.A.4", include_bytes!("../../traces/data/ft.A.4.tar.zst")),
    ("ft.S.4", include_bytes!("../../traces/data/ft.S.4.tar.zst")),
    ("ft.W.4", include_bytes!("../../traces/data/ft.W.4.tar.zst")),
    ("is.A.4", include_bytes!("../../traces/data/is.A.4.tar.zst")),
    ("is.S.4", include_bytes!("../../traces/data/is.S.4.tar.zst")),
    ("lu.S.4", include_bytes!("../../traces/data/lu.S.4.tar.zst")),
];

/// A trace and its name.
pub(super) struct Recorded {
    /// The name, such as `ft.A.4`: the program, the class of the problem, the ranks.
    pub(super) name: String,
    /// The recorded communication.
    pub(super) trace: Trace,
}

impl Recorded {
    /// The program, in lower case.
    pub(super) fn program(&self) -> String {
        let program = self.name.split('.').next().unwrap_or_default();
        program.to_lowercase()
    }

    /// The class of the problem, if the name has one.
    fn class(&self) -> Option<&str> {
        self.name.split('.').nth(1)
    }
}

/// The traces to replay.
pub(super) struct Traces {
    all: Vec<Recorded>,
    /// True for the traces that come with the command.
    is_own: bool,
}

impl Traces {
    /// The traces that come with the command.
    pub(super) fn own() -> Result<Self, ReproduceError> {
        let unpack = |&(name, packed): &(&str, &[u8])| {
            Ok(Recorded {
                name: name.to_owned(),
                trace: hydrant_traces::unpack(name, packed)?,
            })
        };
        Ok(Self {
            all: OWN
                .iter()
                .map(unpack)
                .collect::<Result<_, ReproduceError>>()?,
            is_own: true,
        })
    }

    /// All traces of a folder: archives, and folders with a file for each rank.
    pub(super) fn of(folder: &Path) -> Result<Self, ReproduceError> {
        let wrong = |why| ReproduceError::Traces {
            folder: folder.to_owned(),
            why,
        };
        let entries = std::fs::read_dir(folder).map_err(|why| wrong(why.to_string()))?;
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in entries {
            let path = entry.map_err(|why| wrong(why.to_string()))?.path();
            if is_trace(&path) {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            return Err(wrong(
                "it holds neither an archive, .tar or .tar.zst, nor a folder with .pmt files"
                    .to_owned(),
            ));
        }
        paths.sort();
        let read = |path: &PathBuf| {
            Ok(Recorded {
                name: name_of(path),
                trace: hydrant_traces::read(path)?,
            })
        };
        Ok(Self {
            all: paths
                .iter()
                .map(read)
                .collect::<Result<_, ReproduceError>>()?,
            is_own: false,
        })
    }

    /// All traces of a folder. Of the command's own traces, only the largest problem of each
    /// program, or the smallest in a quick run.
    pub(super) fn all(&self, quick: bool) -> impl Iterator<Item = &Recorded> {
        let is_wanted = move |it: &&Recorded| {
            let of_program = self.is_own.then(|| self.of_program(&it.program(), quick));
            of_program.flatten().is_none_or(|of| of.name == it.name)
        };
        let is_small = move |it: &&Recorded| !self.is_own || !quick || it.class() == Some("S");
        self.all.iter().filter(is_small).filter(is_wanted)
    }

    /// The trace of a program and a class.
    pub(super) fn find(&self, program: &str, class: &str) -> Option<&Recorded> {
        let mut all = self.all.iter();
        all.find(|it| it.program() == program && it.class() == Some(class))
    }

    /// The largest problem of a program, or the smallest in a quick run.
    pub(super) fn of_program(&self, program: &str, quick: bool) -> Option<&Recorded> {
        let those = self.all.iter().filter(|it| it.program() == program);
        if quick {
            those.min_by_key(|it| size(it))
        } else {
            those.max_by_key(|it| size(it))
        }
    }
}

/// The bytes that a trace communicates.
pub(super) fn size(of: &Recorded) -> u64 {
    let records = of.trace.ranks().iter().flat_map(|it| it.records());
    records.map(|it| it.bytes).fold(0, u64::saturating_add)
}

fn is_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".tar") || name.ends_with(".tar.zst") {
        return true;
    }
    // The folder itself is one trace.
    let mut files = std::fs::read_dir(path).into_iter().flatten().flatten();
    files.any(|file| file.path().extension().is_some_and(|it| it == "pmt"))
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    name.strip_suffix(".tar").unwrap_or(name).to_owned()
}
