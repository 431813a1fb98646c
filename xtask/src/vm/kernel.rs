//! Debian's stock kernel: fetched once, unpacked, never installed. The files that a machine needs
//! are kept below `target/vm/kernel/VERSION`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use super::memory_file::memory_file;
use super::package::{self, Scratch, output};
use crate::command::target_folder;
use crate::tool::program_path;

/// The package that depends on the newest kernel of the release.
const NEWEST: &str = "linux-image-amd64";

/// The kernel modules of the guest: the host's file system first, then soft-RoCE with the checksums
/// that it picks at run time, then networks.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_console",
    "9p",
    "9pnet_virtio",
    "overlay",
    "crc32_generic",
    "crc32_pclmul",
    "crc32c_generic",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "veth",
    "virtio_net",
    "sch_netem",
];

/// The file in a kept kernel that lists the modules it was kept with.
const KEPT_WITH: &str = "modules.txt";

/// A kernel ready to boot.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// The image that QEMU boots.
    pub(crate) image: PathBuf,
    /// The files of the modules, in load order.
    pub(crate) modules: Vec<PathBuf>,
}

/// The kernel kept from an earlier run, or one fetched now.
pub(crate) fn find_or_fetch() -> Result<Kernel, Error> {
    let kept = target_folder().join("vm/kernel");
    match newest_kept(&kept) {
        Some(kernel) => Ok(kernel),
        None => fetch(&kept),
    }
}

fn newest_kept(kept: &Path) -> Option<Kernel> {
    let folders = fs::read_dir(kept).ok()?.flatten();
    let usable = folders.filter_map(|it| {
        let made = it.metadata().and_then(|it| it.modified()).ok()?;
        Some((made, Kernel::open(&it.path())?))
    });
    usable
        .max_by_key(|(made, _)| *made)
        .map(|(_, kernel)| kernel)
}

impl Kernel {
    fn open(folder: &Path) -> Option<Kernel> {
        let kept_with = fs::read_to_string(folder.join(KEPT_WITH)).ok()?;
        if kept_with != MODULES.join("\n") {
            return None;
        }
        let modules = fs::read_dir(folder.join("modules")).ok()?;
        let mut modules: Vec<_> = modules.flatten().map(|it| it.path()).collect();
        modules.sort();
        Some(Kernel {
            image: folder.join("vmlinux"),
            modules,
        })
    }
}

fn fetch(kept: &Path) -> Result<Kernel, Error> {
    eprintln!("vm: fetching Debian's kernel, once");
    let name = newest_package()?;
    let scratch = Scratch::new(kept)?;
    let version = package::fetch(&name, scratch.path())?;
    let all = scratch.path().join("all");
    let release = release(&name);

    let chosen = scratch.path().join("chosen");
    let modules = chosen.join("modules");
    fs::create_dir_all(&modules).map_err(Error::file("make", &modules))?;
    for (index, file) in load_order(&all, release)?.iter().enumerate() {
        let base = file.file_name().unwrap_or_default().to_string_lossy();
        let kept = modules.join(format!("{index:02}-{base}"));
        fs::copy(file, kept).map_err(Error::file("copy", file))?;
    }
    let compressed = all.join(format!("boot/vmlinuz-{release}"));
    unpack_image(&compressed, &chosen.join("vmlinux"))?;
    let kept_with = chosen.join(KEPT_WITH);
    fs::write(&kept_with, MODULES.join("\n")).map_err(Error::file("write", &kept_with))?;

    fs::create_dir_all(kept).map_err(Error::file("make", kept))?;
    let place = kept.join(version);
    // A kernel that another run put there meanwhile is as good; an outdated one must go.
    if Kernel::open(&place).is_none() {
        let _ = fs::remove_dir_all(&place);
        fs::rename(&chosen, &place).map_err(Error::file("make", &place))?;
    }
    Kernel::open(&place).ok_or_else(|| Error::Unusable(format!("no kernel in {}", place.display())))
}

fn newest_package() -> Result<String, Error> {
    let ask = || {
        let mut command = Command::new("apt-cache");
        command.args(["depends", NEWEST]);
        output(command)
    };
    let said = match ask() {
        Ok(said) => said,
        Err(_) => {
            package::update_lists()?;
            ask()?
        }
    };
    let said = String::from_utf8_lossy(&said).into_owned();
    real_package(&said).ok_or(Error::NoKernelPackage {
        package: NEWEST,
        said,
    })
}

/// The package that contains the kernel, from the output of `apt-cache depends`.
fn real_package(said: &str) -> Option<String> {
    let depends = said.lines().filter_map(|line| {
        let line = line.trim_start().trim_start_matches('|');
        line.strip_prefix("Depends: ")
    });
    let mut kernels = depends.filter(|name| !release(name).is_empty());
    kernels.next().map(str::to_owned)
}

/// The release that `uname -r` will print: the package is named after it.
fn release(package: &str) -> &str {
    package.strip_prefix("linux-image-").unwrap_or_default()
}

/// The files that loading [`MODULES`] takes, dependencies first, without duplicates.
fn load_order(root: &Path, release: &str) -> Result<Vec<PathBuf>, Error> {
    let mut index = Command::new(program_path("depmod"));
    index.arg("-b").arg(root).arg(release);
    output(index)?;

    let mut files = Vec::new();
    for module in MODULES {
        let mut resolve = Command::new(program_path("modprobe"));
        resolve.args(["--show-depends", "-S", release, "-d"]);
        resolve.arg(root).arg(module);
        let said = output(resolve)?;
        for file in files_named(&String::from_utf8_lossy(&said)) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// The files in the output of `modprobe --show-depends`. `builtin` lines name none.
fn files_named(said: &str) -> Vec<PathBuf> {
    let inserted = said.lines().filter_map(|it| it.strip_prefix("insmod "));
    let files = inserted.filter_map(|it| it.split_whitespace().next());
    files.map(PathBuf::from).collect()
}

/// Unpacks the kernel proper, which QEMU can start directly. A guest that unpacks itself takes four
/// seconds where processors are emulated.
fn unpack_image(compressed: &Path, image: &Path) -> Result<(), Error> {
    let bytes = fs::read(compressed).map_err(Error::file("read", compressed))?;
    let unpacked = match payload(&bytes) {
        Some(payload) if payload.starts_with(b"\xfd7zXZ\0") => unxz(payload)?,
        // QEMU takes a file of another compression as it is.
        _ => bytes,
    };
    fs::write(image, unpacked).map_err(Error::file("write", image))
}

/// The compressed kernel within a bzImage, by the header of the x86 boot protocol
/// (Documentation/arch/x86/boot.rst). There `payload_offset` counts from the end of the
/// real-mode part, and the last four bytes of the payload are its unpacked length.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let magic = image.get(0x202..0x206)?;
    let sectors = usize::from(*image.get(0x1f1)?);
    if magic != b"HdrS" {
        return None;
    }
    let start = (sectors + 1) * 512 + number(0x248)?;
    let end = start.checked_add(number(0x24c)?)?.checked_sub(4)?;
    image.get(start..end)
}

fn unxz(packed: &[u8]) -> Result<Vec<u8>, Error> {
    let mut command = Command::new("xz");
    command
        .args(["--decompress", "--stdout"])
        .stdin(memory_file(packed)?);
    output(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_what_the_newest_package_depends_on() {
        let said = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(real_package(said).unwrap(), "linux-image-6.1.0-56-amd64");
        let said = "x\n  PreDepends: a\n |Depends: other\n |Depends: linux-image-7-amd64\n";
        assert_eq!(real_package(said).unwrap(), "linux-image-7-amd64");
        assert_eq!(real_package("x\n  Depends: dpkg\n"), None);
        assert_eq!(release("linux-image-6.1.0-56-amd64"), "6.1.0-56-amd64");
    }

    #[test]
    fn modules_are_what_modprobe_would_insert() {
        let said = "builtin crc32\ninsmod /r/virtio.ko \ninsmod /r/9p.ko nodebug=1\n";
        assert_eq!(
            files_named(said),
            [Path::new("/r/virtio.ko"), Path::new("/r/9p.ko")]
        );
    }

    #[test]
    fn the_payload_is_cut_out_to_the_byte() {
        let mut image = vec![0; 4096];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&12_u32.to_le_bytes());
        image[1040..1048].copy_from_slice(b"payload!");
        assert_eq!(payload(&image), Some(&b"payload!"[..]));

        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&image), None);
        assert_eq!(payload(b"short"), None);
    }
}
