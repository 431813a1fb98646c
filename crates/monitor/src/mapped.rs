//! The mappings of this process.
//!
//! Linux 6.11 answers a question about one address (`PROCMAP_QUERY`). Older kernels only list all mappings
//! (`/proc/self/maps`), which takes milliseconds in a process with thousands of them.

#![allow(unsafe_code)] // a reference to what is never freed

use std::{
    fs::File,
    io::{BufRead, BufReader},
    iter, ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire},
    },
};

use hydrant_conduit::fork::CreatorProcess;
use rustix::fs::fstat;

use crate::{ffi, userfault::control};

/// The file that lists the mappings, and that answers questions.
const MAPS: &str = "/proc/self/maps";

/// A mapping whose pages may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappedRange {
    /// The address of the first byte.
    pub start: u64,
    /// The address behind the last byte.
    pub end: u64,
    /// True if its pages may be written, too.
    pub is_writable: bool,
    /// True if it is a segment of System V shared memory. The kernel tells nobody when such a segment is detached.
    pub is_system_v: bool,
}

/// The begin of the name of a mapping of System V shared memory.
const SYSTEM_V: &[u8] = b"/SYSV";
/// The most bytes of a mapping's name, as the kernel limits them.
const MOST_NAME: usize = libc::PATH_MAX as usize;

/// Returns the readable mappings with bytes between two addresses, in order.
///
/// The kernel is asked for each mapping when the iterator gets there, so what other threads map and unmap meanwhile may
/// be seen or not. There are none where `/proc` is not mounted.
pub fn mapped_ranges(start: u64, end: u64) -> impl Iterator<Item = MappedRange> {
    let mut ranges = match MapsFile::of_process() {
        Some(file) => Ranges::Asked(file),
        None => Ranges::listed(),
    };
    let mut next = start;
    iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let found = ranges.first_from(next).filter(|found| found.start < end);
        next = found.map_or(end, |found| found.end);
        found
    })
}

/// The ways to find mappings.
enum Ranges {
    /// The kernel is asked for one at a time.
    Asked(&'static MapsFile),
    /// The list of all is read.
    Listed(Option<BufReader<File>>),
}

impl Ranges {
    fn listed() -> Self {
        Self::Listed(File::open(MAPS).ok().map(BufReader::new))
    }

    /// Returns the first readable mapping that ends behind an address. The addresses of later calls are not lower.
    fn first_from(&mut self, addr: u64) -> Option<MappedRange> {
        if let Self::Asked(file) = self {
            match file.first_from(addr) {
                Ok(found) => return found,
                Err(QueryRefused) => *self = Self::listed(),
            }
        }
        let Self::Listed(Some(lines)) = self else {
            return None;
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            // A file's name need not be text.
            if lines.read_until(b'\n', &mut line).ok()? == 0 {
                return None;
            }
            if let Some(found) = parse(&line).filter(|found| found.end > addr) {
                return Some(found);
            }
        }
    }
}

/// Parses a line such as `7f00a000-7f00c000 rw-p 00000000 00:00 0`. Returns `None` for memory that is not readable.
fn parse(line: &[u8]) -> Option<MappedRange> {
    let mut words = line.split(|byte| *byte == b' ');
    let range = str::from_utf8(words.next()?).ok()?;
    let rights = words.next()?;
    let (start, end) = range.split_once('-')?;
    let found = MappedRange {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_writable: rights.get(1) == Some(&b'w'),
        // Nothing before the name has a slash.
        is_system_v: (line.iter().position(|byte| *byte == b'/'))
            .is_some_and(|name| line[name..].starts_with(SYSTEM_V)),
    };
    rights.starts_with(b"r").then_some(found)
}

/// The kernel answers no questions, or the file is another one.
struct QueryRefused;

/// An open [`MAPS`], which names the memory of the process that opened it for ever.
struct MapsFile {
    file: File,
    origin: CreatorProcess,
    /// The device and the number of the open file.
    identity: (u64, u64),
}

/// The file that this process asks, never freed. A lock could be held by a thread that a forked child lacks.
static CURRENT: AtomicPtr<MapsFile> = AtomicPtr::new(ptr::null_mut());

impl MapsFile {
    /// Returns the file of this process, and opens it at the first call. A forked child opens its own.
    fn of_process() -> Option<&'static Self> {
        let current = CURRENT.load(Acquire);
        // SAFETY: the pointer is null or was leaked by `open`, and nothing changes what it leads to.
        if let Some(file) = unsafe { current.as_ref() }
            && file.is_own()
        {
            return Some(file);
        }
        // The older descriptor is not closed: it is an ancestor's, or the program has closed it.
        let opened = Box::into_raw(Box::new(Self::open()?));
        let set = CURRENT.compare_exchange(current, opened, AcqRel, Acquire);
        match set {
            // SAFETY: the box was leaked above, and nothing changes what it holds.
            Ok(_) => Some(unsafe { &*opened }),
            Err(_) => {
                // SAFETY: the pointer comes from the box above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(opened) });
                Self::of_process()
            }
        }
    }

    fn open() -> Option<Self> {
        // The library opens files close-on-exec.
        let file = File::open(MAPS).ok()?;
        Some(Self {
            identity: identity(&file)?,
            file,
            origin: CreatorProcess::here(),
        })
    }

    /// Returns whether the file still names the memory of this process: it is no parent's, and the program has not
    /// closed the descriptor, whose number may be another file's then.
    fn is_own(&self) -> bool {
        self.origin.is_here() && identity(&self.file) == Some(self.identity)
    }

    fn first_from(&self, addr: u64) -> Result<Option<MappedRange>, QueryRefused> {
        let mut name = [0_u8; MOST_NAME];
        let mut query = ffi::MappingQuery {
            size: size_of::<ffi::MappingQuery>() as u64,
            query_flags: ffi::COVERING_OR_NEXT | ffi::READABLE,
            query_addr: addr,
            name_size: MOST_NAME as u32,
            name_addr: name.as_mut_ptr().expose_provenance() as u64,
            ..ffi::MappingQuery::default()
        };
        match control(&self.file, ffi::FIND_MAPPING, &mut query) {
            Ok(()) => Ok(Some(MappedRange {
                start: query.start,
                end: query.end,
                is_writable: query.flags & ffi::WRITABLE != 0,
                is_system_v: query.name_size != 0 && name.starts_with(SYSTEM_V),
            })),
            Err(cause) if cause.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(_) => Err(QueryRefused),
        }
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    let found = fstat(file).ok()?;
    Some((found.st_dev as _, found.st_ino as _))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd};

    use rustix::{
        fs::{MemfdFlags, ftruncate, memfd_create},
        mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap},
    };

    use super::*;

    const PAGE: usize = 4096;

    /// Pages without rights, which are never unmapped automatically.
    fn reserve(pages: usize) -> usize {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address of new memory.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), pages * PAGE, ProtFlags::empty(), flags) };
        base.expect("addresses").expose_provenance()
    }

    fn pages(base: usize, first: usize) -> *mut std::ffi::c_void {
        ptr::with_exposed_provenance_mut(base + first * PAGE)
    }

    fn protect(base: usize, first: usize, count: usize, rights: MprotectFlags) {
        // SAFETY: nobody uses the pages of the test.
        unsafe { mprotect(pages(base, first), count * PAGE, rights) }.expect("pages of the test");
    }

    fn unmap(base: usize, first: usize, count: usize) {
        // SAFETY: nobody uses the pages of the test.
        unsafe { munmap(pages(base, first), count * PAGE) }.expect("pages of the test");
    }

    /// Maps a page of a new file that is shared.
    fn share(base: usize, first: usize) {
        let file = memfd_create(c"mapped", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, PAGE as u64).expect("a page");
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: nobody uses the pages of the test, one of which is replaced.
        unsafe { mmap(pages(base, first), PAGE, rights, flags, file.as_fd(), 0) }.expect("a page");
    }

    fn found(mut ranges: Ranges, start: u64, end: u64) -> Vec<MappedRange> {
        let mut next = start;
        iter::from_fn(|| {
            let found = ranges.first_from(next).filter(|found| found.start < end)?;
            next = found.end;
            Some(found)
        })
        .collect()
    }

    /// Returns whether the kernel must answer questions.
    fn answers() -> bool {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a version");
        let mut numbers = release.split(['.', '-']).map(|part| part.parse().ok());
        (numbers.next().flatten(), numbers.next().flatten()) >= (Some(6), Some(11))
    }

    #[test]
    fn both_ways_find_the_same() {
        const RW: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::WRITE);
        let base = reserve(16);
        // The first and the last two pages keep strangers away.
        protect(base, 2, 2, RW);
        share(base, 4); // a neighbour with the same rights
        protect(base, 5, 1, MprotectFlags::READ);
        unmap(base, 6, 2);
        protect(base, 8, 1, RW);
        // The page without rights after it is a hole, too.
        protect(base, 10, 3, MprotectFlags::READ);
        protect(base, 13, 1, MprotectFlags::READ | MprotectFlags::EXEC);
        let page = |number: usize| (base + number * PAGE) as u64;
        let range = |first, end, is_writable| MappedRange {
            start: page(first),
            end: page(end),
            is_writable,
            is_system_v: false,
        };
        let all = [
            range(2, 4, true),
            range(4, 5, true),
            range(5, 6, false),
            range(8, 9, true),
            range(10, 13, false),
            range(13, 14, false),
        ];
        let file = MapsFile::of_process().expect("/proc is mounted");
        assert_eq!(file.first_from(page(0)).is_ok(), answers());
        for first in 0..16 {
            for end in first + 1..17 {
                let (start, end) = (page(first) + 7, page(end) - 7);
                let expected: Vec<_> = (all.iter().copied())
                    .filter(|range| range.end > start && range.start < end)
                    .collect();
                assert_eq!(found(Ranges::listed(), start, end), expected);
                assert_eq!(found(Ranges::Asked(file), start, end), expected);
                assert!(mapped_ranges(start, end).eq(expected));
            }
        }
        assert_eq!(mapped_ranges(page(3), page(3)).count(), 0);
        // Behind all mappings of programs. The list names a page of the kernel there.
        assert_eq!(mapped_ranges(0x8000 << 32, 0x8001 << 32).count(), 0);
        unmap(base, 0, 6);
        unmap(base, 8, 8);
    }

    #[test]
    fn lines_of_the_kernel_are_parsed() {
        let range = |start, end, is_writable| MappedRange {
            start,
            end,
            is_writable,
            is_system_v: false,
        };
        let line = b"7f3a1000-7f3a3000 rw-p 00000000 00:00 0                          [heap]\n";
        assert_eq!(parse(line), Some(range(0x7f3a_1000, 0x7f3a_3000, true)));
        let line = b"7f3a1000-7f3a3000 r--p 00000000 08:01 12 /lib/\xff";
        assert_eq!(parse(line), Some(range(0x7f3a_1000, 0x7f3a_3000, false)));
        let line = b"7f3a1000-7f3a3000 rw-s 00000000 00:01 7     /SYSV00000000 (deleted)\n";
        assert!(parse(line).is_some_and(|found| found.is_system_v));
        assert_eq!(parse(b"7f3a1000-7f3a3000 ---p 00000000 00:00 0"), None);
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_forked_child_asks_about_its_own_memory() {
        let base = reserve(3);
        protect(base, 1, 1, MprotectFlags::READ);
        let (start, end) = ((base + PAGE) as u64, (base + 2 * PAGE) as u64);
        assert_eq!(mapped_ranges(start, end).count(), 1);
        // SAFETY: the child maps, asks, and ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "this process can have a child");
        if pid == 0 {
            protect(base, 1, 1, MprotectFlags::READ | MprotectFlags::WRITE);
            let all: Vec<_> = mapped_ranges(start, end).collect();
            let is_own = all
                == [MappedRange {
                    start,
                    end,
                    is_writable: true,
                    is_system_v: false,
                }];
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(i32::from(!is_own)) };
        }
        let mut status = -1;
        // SAFETY: the status is a local variable.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert!(!mapped_ranges(start, end).any(|found| found.is_writable));
        unmap(base, 0, 3);
    }

    #[test]
    fn both_ways_find_segments_of_system_v() {
        // SAFETY: a new segment, of which nobody else knows.
        let segment = unsafe { libc::shmget(libc::IPC_PRIVATE, PAGE, libc::IPC_CREAT | 0o600) };
        assert!(segment >= 0, "a segment");
        // SAFETY: the kernel chooses the address.
        let at = unsafe { libc::shmat(segment, ptr::null(), 0) };
        // SAFETY: the segment is the test's, and goes once it is detached.
        unsafe { libc::shmctl(segment, libc::IPC_RMID, ptr::null_mut()) };
        let start = at.expose_provenance() as u64;
        let end = start + PAGE as u64;
        let is_it = |found: Vec<MappedRange>| found.len() == 1 && found[0].is_system_v;
        assert!(is_it(mapped_ranges(start, end).collect()));
        assert!(is_it(found(Ranges::listed(), start, end)));
        // SAFETY: attached above, and nobody uses it.
        assert_eq!(unsafe { libc::shmdt(at) }, 0);
    }

    /// Prints what a question costs: `cargo test -p hydrant-monitor --lib costs -- --ignored --nocapture`.
    #[test]
    #[ignore = "for people who want numbers"]
    fn costs() {
        let base = reserve(40_000);
        let mut mapped = 0;
        for wanted in [10, 20_000] {
            for page in mapped..wanted {
                protect(base, 2 * page, 1, MprotectFlags::READ);
            }
            mapped = wanted;
            let number = fs::read_to_string(MAPS).expect("/proc").lines().count();
            let start = (base + (wanted - 1) * 2 * PAGE) as u64;
            let file = MapsFile::of_process().expect("/proc");
            let median = |of: &dyn Fn() -> Ranges| {
                let mut times: Vec<_> = (0..101)
                    .map(|_| {
                        let begun = std::time::Instant::now();
                        assert_eq!(found(of(), start, start + 1).len(), 1);
                        begun.elapsed()
                    })
                    .collect();
                times.sort();
                times[50]
            };
            let (asked, listed) = (
                median(&|| Ranges::Asked(MapsFile::of_process().unwrap_or(file))),
                median(&Ranges::listed),
            );
            println!("{number} mappings: asked {asked:?}, listed {listed:?}");
        }
        unmap(base, 0, 40_000);
    }
}
