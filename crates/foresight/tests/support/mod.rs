//! Reads traces, which are kept as archives with a file for each rank.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};

use hydrant_foresight::trace::{RankTrace, Trace};

/// Reads the archive at `path`; the names of its members do not matter.
pub(crate) fn read(path: &Path) -> Result<Trace, Box<dyn Error>> {
    let packed =
        std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let unpacked = ruzstd::decoding::StreamingDecoder::new(packed)?;
    let mut archive = tar::Archive::new(unpacked);
    let mut files = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path()?.display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.push(RankTrace::parse(&name, &bytes)?);
    }
    Ok(Trace::new(files)?)
}

/// The path of a benchmark's trace.
#[allow(dead_code)] // examples read those they are given
pub(crate) fn path(benchmark: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    folder.join(format!("{benchmark}.S.4.tar.zst"))
}
