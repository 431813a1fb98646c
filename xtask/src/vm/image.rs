//! The initramfs: busybox, the modules, and the scripts that make the guest.
//!
//! The archive is written here rather than by `cpio`, which needs a folder of files and, for the
//! console's node, root. The format is `newc` of cpio(5), as the kernel describes it in
//! Documentation/driver-api/early-userspace/buffer-format.rst.

use std::fs::{self, File};
use std::path::Path;

use super::Error;
use super::kernel::Kernel;
use super::memory_file::memory_file;

/// A file for the guest: its path without the first slash, and its content.
pub(crate) type GuestFile = (String, Vec<u8>);

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CONSOLE: u32 = 0o020_600;

/// The initramfs of one machine, in memory, so that no end leaves a file.
pub(crate) struct Initramfs {
    /// The file that QEMU reads, by the path of its descriptor.
    pub(crate) file: File,
}

impl Initramfs {
    /// Busybox, the kernel's modules in their order, and `entries`.
    pub(crate) fn new(kernel: &Kernel, entries: &[GuestFile]) -> Result<Initramfs, Error> {
        let mut archive = Archive::default();
        for folder in ["bin", "dev", "modules", "vm"] {
            archive.add(folder, FOLDER, &[]);
        }
        archive.add("dev/console", CONSOLE, &[]);
        archive.add("bin/busybox", PROGRAM, &busybox()?);
        for module in &kernel.modules {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            let bytes = fs::read(module).map_err(Error::file("read", module))?;
            archive.add(&format!("modules/{name}"), PROGRAM, &bytes);
        }
        for (path, bytes) in entries {
            archive.add(path, PROGRAM, bytes);
        }

        let file = memory_file(&archive.finish())?;
        Ok(Initramfs { file })
    }
}

/// The static busybox. A dynamic one would lack its libraries in the guest.
fn busybox() -> Result<Vec<u8>, Error> {
    let path = crate::tool::program_path("busybox");
    fs::read(&path).map_err(Error::file("read", Path::new(&path)))
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    count: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.count += 1;
        // The console is character device 5:1; the numbers mean nothing for others.
        let device = if mode == CONSOLE { [5, 1] } else { [0, 0] };
        let lengths = [content.len(), name.len() + 1];
        let [size, name_size] = lengths.map(|it| u32::try_from(it).expect("files are small"));
        let [major, minor] = device;
        // Magic, inode, mode, owner, group, links, time, size, device, device of the node, name,
        // sum.
        let fields = [
            self.count, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_starts_where_the_kernel_looks_for_it() {
        let mut archive = Archive::default();
        archive.add("a", PROGRAM, b"1");
        assert_eq!(archive.bytes.len() % 4, 0);
        assert_eq!(&archive.bytes[..14], b"07070100000001");
        assert_eq!(archive.bytes.len(), 110 + 2 + 4);
    }
}
