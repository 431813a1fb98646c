//! Files in memory.

use std::fs::File;
use std::io::{Seek, Write};

use rustix::fs::{MemfdFlags, memfd_create};

use super::Error;

/// A file that has no name and holds `content`, to be read from its start.
pub(crate) fn memory_file(content: &[u8]) -> Result<File, Error> {
    let file = memfd_create("vm", MemfdFlags::CLOEXEC);
    let mut file = File::from(file.map_err(Error::system("make a file in memory"))?);
    let wrote = file.write_all(content).and_then(|()| file.rewind());
    wrote.map_err(Error::system("write a file in memory"))?;
    Ok(file)
}
