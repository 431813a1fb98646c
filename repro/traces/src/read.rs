//! Reads traces: archives, and folders with a file for each rank.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::trace::{self, RankTrace, Trace};

/// The reason why a trace was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened, or unpacked.
    #[error("{path}: {why}", path = .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the system, or of the unpacker.
        why: String,
    },
    /// It holds no traces of ranks.
    #[error("{} holds no .pmt file; a trace is one for each rank", .0.display())]
    Nothing(PathBuf),
    /// A file of the trace is wrong.
    #[error(transparent)]
    Trace(#[from] trace::Error),
}

/// Reads a trace: a folder of `.pmt` files, or an archive of them, `.tar` or `.tar.zst`.
pub fn read(path: &Path) -> Result<Trace, ReadError> {
    let wrong = |why: io::Error| failed(path, &why);
    let meta = fs::metadata(path).map_err(wrong)?;
    let files = if meta.is_dir() {
        of_folder(path)?
    } else {
        of_archive(path)?
    };
    if files.is_empty() {
        return Err(ReadError::Nothing(path.to_owned()));
    }
    Ok(Trace::new(files)?)
}

fn failed(path: &Path, why: &dyn std::fmt::Display) -> ReadError {
    ReadError::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn of_folder(folder: &Path) -> Result<Vec<RankTrace>, ReadError> {
    let wrong = |why: io::Error| failed(folder, &why);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if is_rank(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    let parse = |path: &PathBuf| {
        let bytes = fs::read(path).map_err(|why| failed(path, &why))?;
        Ok(RankTrace::parse(&path.display().to_string(), &bytes)?)
    };
    paths.iter().map(parse).collect()
}

fn of_archive(path: &Path) -> Result<Vec<RankTrace>, ReadError> {
    let wrong = |why: io::Error| failed(path, &why);
    let packed = io::BufReader::new(fs::File::open(path).map_err(wrong)?);
    if path.extension().is_some_and(|it| it == "zst") {
        return of_packed(path, packed);
    }
    of_tar(path, packed)
}

/// Reads a trace from an archive, `.tar.zst`, with the name `name`.
pub fn unpack(name: &str, packed: &[u8]) -> Result<Trace, ReadError> {
    Ok(Trace::new(of_packed(Path::new(name), packed)?)?)
}

fn of_packed(path: &Path, packed: impl Read) -> Result<Vec<RankTrace>, ReadError> {
    let unpacked = ruzstd::decoding::StreamingDecoder::new(packed);
    of_tar(path, unpacked.map_err(|why| failed(path, &why))?)
}

fn of_tar(path: &Path, tar: impl Read) -> Result<Vec<RankTrace>, ReadError> {
    let wrong = |why: io::Error| failed(path, &why);
    let mut files = Vec::new();
    for entry in tar::Archive::new(tar).entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let name = entry.path().map_err(wrong)?.into_owned();
        if !entry.header().entry_type().is_file() || !is_rank(&name) {
            continue;
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(wrong)?;
        files.push(RankTrace::parse(&name.display().to_string(), &bytes)?);
    }
    Ok(files)
}

fn is_rank(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "pmt")
}
