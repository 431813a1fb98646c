//! Debian's stock kernels: fetched once, unpacked, never installed. The files that a machine needs
//! are kept below `target/vm/kernel/VERSION`, those of sid's kernel below `target/vm/kernel-sid`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;
use super::memory_file::memory_file;
use super::package::{Packages, Scratch, output};
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

/// Modules that newer kernels lack, because the algorithm is built in.
const OFTEN_BUILT_IN: [&str; 3] = ["crc32_generic", "crc32_pclmul", "crc32c_generic"];

/// The packages that newer kernels are divided into, before their release.
const PARTS: [&str; 3] = ["linux-base-", "linux-binary-", "linux-modules-"];

/// The kernel that a machine boots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum KernelChoice {
    /// The newest of the release that this machine has.
    #[default]
    Stable,
    /// The newest of Debian's unstable distribution.
    Sid,
    /// One that is in a folder: `vmlinux`, and its modules in load order in `modules`.
    Folder(PathBuf),
}

impl From<&str> for KernelChoice {
    fn from(name: &str) -> Self {
        match name {
            "stable" => KernelChoice::Stable,
            "sid" => KernelChoice::Sid,
            folder => KernelChoice::Folder(folder.into()),
        }
    }
}

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
pub(crate) fn find_or_fetch(choice: &KernelChoice) -> Result<Kernel, Error> {
    let machines = target_folder().join("vm");
    let (kept, packages) = match choice {
        KernelChoice::Stable => (machines.join("kernel"), Packages::OfThisMachine),
        KernelChoice::Sid => {
            let lists = machines.join("sid");
            (machines.join("kernel-sid"), Packages::Sid(lists))
        }
        KernelChoice::Folder(folder) => return Kernel::in_folder(folder),
    };
    match newest_kept(&kept) {
        Some(kernel) => Ok(kernel),
        None => fetch(&kept, &packages),
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
        Kernel::in_folder(folder).ok()
    }

    fn in_folder(folder: &Path) -> Result<Kernel, Error> {
        let (image, modules) = (folder.join("vmlinux"), folder.join("modules"));
        fs::metadata(&image).map_err(Error::file("read", &image))?;
        let found = fs::read_dir(&modules).map_err(Error::file("read", &modules))?;
        let mut modules: Vec<_> = found.flatten().map(|it| it.path()).collect();
        modules.sort();
        Ok(Kernel { image, modules })
    }
}

fn fetch(kept: &Path, packages: &Packages) -> Result<Kernel, Error> {
    eprintln!("vm: fetching Debian's kernel, once");
    let name = newest_package(packages)?;
    let scratch = Scratch::new(kept)?;
    let version = packages.fetch(&name, scratch.path())?;
    let all = scratch.path().join("all");
    let release = release(&name);
    let compressed = match find_image(&all, release) {
        Some(compressed) => compressed,
        None => {
            for part in PARTS {
                packages.fetch(&format!("{part}{release}"), scratch.path())?;
            }
            let missing = || Error::Unusable(format!("{name} has no image of a kernel"));
            find_image(&all, release).ok_or_else(missing)?
        }
    };
    join_folders(&all)?;

    let chosen = scratch.path().join("chosen");
    let modules = chosen.join("modules");
    fs::create_dir_all(&modules).map_err(Error::file("make", &modules))?;
    for (index, file) in load_order(&all, release)?.iter().enumerate() {
        let base = file.file_name().unwrap_or_default().to_string_lossy();
        let mut bytes = fs::read(file).map_err(Error::file("read", file))?;
        if base.ends_with(".xz") {
            bytes = unpack("xz", &bytes)?;
        }
        let base = base.trim_end_matches(".xz");
        let kept = modules.join(format!("{index:02}-{base}"));
        fs::write(&kept, bytes).map_err(Error::file("write", &kept))?;
    }
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

/// The compressed kernel of unpacked packages. Newer ones have it beside its modules.
fn find_image(all: &Path, release: &str) -> Option<PathBuf> {
    let places = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
        format!("lib/modules/{release}/vmlinuz"),
    ];
    let mut places = places.iter().map(|place| all.join(place));
    places.find(|place| place.exists())
}

/// Newer packages unpack into `usr/lib`, which on a whole system is `lib`, too.
fn join_folders(all: &Path) -> Result<(), Error> {
    let lib = all.join("lib");
    if lib.exists() {
        return Ok(());
    }
    std::os::unix::fs::symlink("usr/lib", &lib).map_err(Error::file("make", &lib))
}

fn newest_package(packages: &Packages) -> Result<String, Error> {
    let ask = || {
        let mut command = packages.command("apt-cache");
        command.args(["depends", NEWEST]);
        output(command)
    };
    let said = match ask() {
        Ok(said) if !said.is_empty() => said,
        _ => {
            packages.update_lists()?;
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
        let said = match output(resolve) {
            Err(_) if OFTEN_BUILT_IN.contains(&module) => continue,
            said => said?,
        };
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
        Some(payload) if payload.starts_with(b"\xfd7zXZ\0") => unpack("xz", payload)?,
        // Without the program, the guest unpacks itself.
        Some(payload) if payload.starts_with(b"\x28\xb5\x2f\xfd") => {
            unpack("zstd", payload).unwrap_or(bytes)
        }
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

fn unpack(program: &str, packed: &[u8]) -> Result<Vec<u8>, Error> {
    let mut command = Command::new(program_path(program));
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
    fn a_kernel_is_chosen_by_name_or_by_folder() {
        assert_eq!(KernelChoice::from("stable"), KernelChoice::default());
        assert_eq!(KernelChoice::from("sid"), KernelChoice::Sid);
        let folder = KernelChoice::Folder("kernels/mine".into());
        assert_eq!(KernelChoice::from("kernels/mine"), folder);
        let missing = find_or_fetch(&"/no/such/kernel".into()).unwrap_err();
        assert!(missing.to_string().contains("/no/such/kernel/vmlinux"));
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
