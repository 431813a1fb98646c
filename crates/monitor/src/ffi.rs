//! The kernel's interfaces of userfaultfd (`linux/userfaultfd.h`) and of questions about mappings (`linux/fs.h`), as far as
//! the monitor uses them.

/// The version of the interface.
pub(crate) const API: u64 = 0xaa;

/// Events for memory that moves by `mremap`.
pub(crate) const EVENT_REMAP: u64 = 1 << 2;
/// Events for pages that are removed by `madvise`, while the mapping stays.
pub(crate) const EVENT_REMOVE: u64 = 1 << 3;
/// Events for memory that is unmapped.
pub(crate) const EVENT_UNMAP: u64 = 1 << 6;
/// Shared memory and huge pages can be watched in write-protect mode (Linux 5.19).
pub(crate) const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
/// Pages that are not there yet can be write-protected (Linux 6.4); asynchronous mode needs it.
pub(crate) const WP_UNPOPULATED: u64 = 1 << 13;
/// Asynchronous write protection (Linux 6.7), which mappings of files permit, too.
pub(crate) const WP_ASYNC: u64 = 1 << 15;

/// `userfaultfd(2)`: faults within the kernel are not handled, so no privilege is needed (Linux 5.11).
pub(crate) const USER_MODE_ONLY: libc::c_int = 1;

/// Mode of a range: write protection. No page is protected by that alone.
pub(crate) const MODE_WP: u64 = 1 << 1;

/// A message about memory that moved.
pub(crate) const REMAPPED: u8 = 0x14;
/// A message about pages that are about to be removed.
pub(crate) const REMOVED: u8 = 0x15;
/// A message about memory that was unmapped.
pub(crate) const UNMAPPED: u8 = 0x16;

/// `struct uffdio_api`.
#[repr(C)]
pub(crate) struct ApiRequest {
    pub(crate) api: u64,
    pub(crate) features: u64,
    pub(crate) ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
pub(crate) struct RegisterRequest {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) mode: u64,
    pub(crate) ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
pub(crate) struct ProtectRequest {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) mode: u64,
}

/// `struct uffd_msg`, with the words of its union.
#[repr(C)]
#[derive(Default)]
pub(crate) struct EventMessage {
    pub(crate) event: u8,
    pub(crate) reserved: [u8; 7],
    /// Start and end of a range; or the old address, the new address and the length.
    pub(crate) words: [u64; 3],
}

/// The mapping may be read.
pub(crate) const READABLE: u64 = 1 << 0;
/// The mapping may be written.
pub(crate) const WRITABLE: u64 = 1 << 1;
/// The question is for the mapping that holds the address, or the next one with the rights asked for.
pub(crate) const COVERING_OR_NEXT: u64 = 1 << 4;

/// `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MappingQuery {
    pub(crate) size: u64,
    pub(crate) query_flags: u64,
    pub(crate) query_addr: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) flags: u64,
    /// The page size, the offset, and the number and the device of the file, which nobody asks for.
    pub(crate) file: [u64; 4],
    /// The room for the name; then the bytes of the name with its end, or 0 if it has none.
    pub(crate) name_size: u32,
    pub(crate) build_id_size: u32,
    pub(crate) name_addr: u64,
    pub(crate) build_id_addr: u64,
}

const _: () = assert!(size_of::<MappingQuery>() == 104);
const _: () = assert!(size_of::<ApiRequest>() == 24);
const _: () = assert!(size_of::<RegisterRequest>() == 32);
const _: () = assert!(size_of::<ProtectRequest>() == 24);
const _: () = assert!(size_of::<EventMessage>() == 32);

/// The number of an `ioctl` on a userfaultfd that reads and writes `T`.
const fn request<T>(number: u32) -> u32 {
    of_kind::<T>(API as u32, number)
}

/// The number of an `ioctl` on files of a kind that reads and writes `T`.
const fn of_kind<T>(kind: u32, number: u32) -> u32 {
    const READ_AND_WRITE: u32 = 3;
    READ_AND_WRITE << 30 | (size_of::<T>() as u32) << 16 | kind << 8 | number
}

/// `UFFDIO_API`.
pub(crate) const AGREE: u32 = request::<ApiRequest>(0x3f);
/// `UFFDIO_REGISTER`.
pub(crate) const REGISTER: u32 = request::<RegisterRequest>(0x00);
/// `UFFDIO_WRITEPROTECT`.
pub(crate) const PROTECT: u32 = request::<ProtectRequest>(0x06);
/// `USERFAULTFD_IOC_NEW`, on the device `/dev/userfaultfd`.
pub(crate) const NEW: u32 = (API as u32) << 8;
/// `PROCMAP_QUERY`, on `/proc/PID/maps` (Linux 6.11).
pub(crate) const FIND_MAPPING: u32 = of_kind::<MappingQuery>(b'f' as u32, 17);

const _: () = assert!(FIND_MAPPING == 0xc068_6611);
const _: () = assert!(AGREE == 0xc018_aa3f && REGISTER == 0xc020_aa00 && PROTECT == 0xc018_aa06);
