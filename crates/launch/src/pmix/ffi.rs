//! The few functions of libpmix that a rank needs, found at run time.
//!
//! The layouts are those of `pmix_common.h`, which the PMIx standard's ABI fixes for versions 2 to
//! 5. `tests/foreign.rs` compares them with a C compiler's where the headers are installed.
#![allow(unsafe_code, reason = "libpmix is C, and is opened at run time")]

use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::Error;

const MAX_NSPACE: usize = 255;
const MAX_KEY: usize = 511;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const SCOPE_GLOBAL: u8 = 3;
const TYPE_BOOL: u16 = 1;
const TYPE_UINT32: u16 = 14;
const TYPE_BYTE_OBJECT: u16 = 27;
const SUCCESS: c_int = 0;

/// The status of a get for a key that the rank did not put.
pub(super) const NOT_FOUND: c_int = -46;

const JOB_SIZE: &CStr = c"pmix.job.size";
const COLLECT_DATA: &CStr = c"pmix.collect";
const IMMEDIATE: &CStr = c"pmix.immediate";

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PmixProc {
    nspace: [u8; MAX_NSPACE + 1],
    pub(super) rank: u32,
}

impl PmixProc {
    /// Another process of the same job.
    pub(super) fn with_rank(&self, rank: u32) -> PmixProc {
        PmixProc { rank, ..*self }
    }
}

/// `pmix_byte_object_t`
#[repr(C)]
#[derive(Clone, Copy)]
struct ByteObject {
    bytes: *mut u8,
    size: usize,
}

/// The union in `pmix_value_t`, with the members that this module uses.
#[repr(C)]
union PmixData {
    flag: bool,
    uint32: u32,
    object: ByteObject,
    /// As large as the largest member of the union, `pmix_envar_t`.
    all: [u64; 3],
}

/// `pmix_value_t`
#[repr(C)]
struct PmixValue {
    kind: u16,
    data: PmixData,
}

/// `pmix_info_t`
#[repr(C)]
struct Info {
    key: [u8; MAX_KEY + 1],
    flags: u32,
    value: PmixValue,
}

const _: () = {
    assert!(size_of::<PmixProc>() == 260);
    assert!(size_of::<PmixValue>() == 32);
    assert!(size_of::<Info>() == 552);
    assert!(mem::offset_of!(PmixValue, data) == 8);
    assert!(mem::offset_of!(Info, flags) == 512);
    assert!(mem::offset_of!(Info, value) == 520);
};

impl Info {
    /// Makes a directive with the value `true`.
    fn directive(name: &CStr) -> Info {
        let mut key = [0; MAX_KEY + 1];
        key[..name.count_bytes()].copy_from_slice(name.to_bytes());
        let mut data = PmixData { all: [0; 3] };
        data.flag = true;
        Info {
            key,
            flags: 0,
            value: PmixValue {
                kind: TYPE_BOOL,
                data,
            },
        }
    }
}

/// A PMIx status other than success, with libpmix's text for it.
#[derive(Debug)]
pub(super) struct PmixStatus {
    pub(super) code: c_int,
    pub(super) text: String,
}

/// Libpmix, open for the life of the process.
pub(super) struct Libpmix {
    init: unsafe extern "C" fn(*mut PmixProc, *mut Info, usize) -> c_int,
    put: unsafe extern "C" fn(u8, *const c_char, *mut PmixValue) -> c_int,
    commit: unsafe extern "C" fn() -> c_int,
    fence: unsafe extern "C" fn(*const PmixProc, usize, *const Info, usize) -> c_int,
    get: unsafe extern "C" fn(
        *const PmixProc,
        *const c_char,
        *const Info,
        usize,
        *mut *mut PmixValue,
    ) -> c_int,
    abort: unsafe extern "C" fn(c_int, *const c_char, *mut PmixProc, usize) -> c_int,
    finalize: unsafe extern "C" fn(*const Info, usize) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Libpmix {
    /// Opens `path`, or the first of the usual names that the loader finds.
    pub(super) fn open(path: Option<&Path>) -> Result<Libpmix, Error> {
        let tried: Vec<PathBuf> = match path {
            Some(path) => vec![path.to_owned()],
            None => vec!["libpmix.so.2".into(), "libpmix.so".into()],
        };
        let mut why = String::new();
        for name in &tried {
            // SAFETY: opening runs the library's initializers, which have no requirements. The
            // library is the system's libpmix or the path of the user.
            match unsafe { Library::new(name) }.and_then(Libpmix::symbols) {
                Ok(pmix) => return Ok(pmix),
                Err(e) => {
                    // The loader's own text is in the source.
                    why = e
                        .source()
                        .map_or_else(|| e.to_string(), |said| said.to_string());
                }
            }
        }
        Err(Error::NoLibpmix { tried, why })
    }

    fn symbols(library: Library) -> Result<Libpmix, libloading::Error> {
        /// The function `name` of libpmix.
        ///
        /// # Safety
        /// 1. `pmix.h` declares `name` with the type `F`.
        /// 2. The library stays open as long as the function is used.
        unsafe fn find<F: Copy>(library: &Library, name: &CStr) -> Result<F, libloading::Error> {
            // SAFETY: conditions 1 and 2.
            unsafe { library.get(name) }.map(|function| *function)
        }
        let pmix = Libpmix {
            // SAFETY: 1. as in `pmix.h`. 2. the library is never closed (below).
            init: unsafe { find(&library, c"PMIx_Init") }?,
            // SAFETY: as for `init`.
            put: unsafe { find(&library, c"PMIx_Put") }?,
            // SAFETY: as for `init`.
            commit: unsafe { find(&library, c"PMIx_Commit") }?,
            // SAFETY: as for `init`.
            fence: unsafe { find(&library, c"PMIx_Fence") }?,
            // SAFETY: as for `init`.
            get: unsafe { find(&library, c"PMIx_Get") }?,
            // SAFETY: as for `init`.
            abort: unsafe { find(&library, c"PMIx_Abort") }?,
            // SAFETY: as for `init`.
            finalize: unsafe { find(&library, c"PMIx_Finalize") }?,
            // SAFETY: as for `init`.
            error_string: unsafe { find(&library, c"PMIx_Error_string") }?,
        };
        // Libpmix starts threads of its own and cannot be unloaded under them.
        mem::forget(library);
        Ok(pmix)
    }

    /// Joins, and returns this process's name, which holds its rank.
    pub(super) fn init(&self) -> Result<PmixProc, PmixStatus> {
        let mut me = PmixProc {
            nspace: [0; MAX_NSPACE + 1],
            rank: 0,
        };
        // SAFETY: `me` is a pmix_proc_t that the call may write; a null pointer with 0 infos is
        // allowed.
        self.check(unsafe { (self.init)(&mut me, ptr::null_mut(), 0) })?;
        Ok(me)
    }

    /// Returns the number of ranks in the job of `me`.
    pub(super) fn job_size(&self, me: &PmixProc) -> Result<u32, PmixStatus> {
        let whole_job = me.with_rank(RANK_WILDCARD);
        self.get_with(&whole_job, JOB_SIZE, &[], |value| {
            if value.kind != TYPE_UINT32 {
                return None;
            }
            // SAFETY: `kind` says that libpmix wrote this member of the union.
            Some(unsafe { value.data.uint32 })
        })
    }

    /// Puts bytes that every rank of the job can get after a commit and a fence.
    pub(super) fn put(&self, key: &CStr, value: &[u8]) -> Result<(), PmixStatus> {
        let object = ByteObject {
            bytes: value.as_ptr().cast_mut(),
            size: value.len(),
        };
        let mut value = PmixValue {
            kind: TYPE_BYTE_OBJECT,
            data: PmixData { object },
        };
        // SAFETY: the key ends in a zero. The value is a byte object whose bytes outlive the call.
        // Libpmix copies the bytes and does not write to them.
        self.check(unsafe { (self.put)(SCOPE_GLOBAL, key.as_ptr(), &mut value) })
    }

    /// Waits for every rank of the job and collects their values.
    pub(super) fn fence(&self) -> Result<(), PmixStatus> {
        // SAFETY: the function takes no arguments.
        self.check(unsafe { (self.commit)() })?;
        let collect = [Info::directive(COLLECT_DATA)];
        // SAFETY: no processes mean the whole job. `collect` is an array of `collect.len()`
        // pmix_info_t.
        self.check(unsafe { (self.fence)(ptr::null(), 0, collect.as_ptr(), collect.len()) })
    }

    /// Returns the bytes that `from` put, or a status. Does not wait for a later put.
    pub(super) fn get(&self, from: &PmixProc, key: &CStr) -> Result<Vec<u8>, PmixStatus> {
        self.get_with(from, key, &[Info::directive(IMMEDIATE)], |value| {
            if value.kind != TYPE_BYTE_OBJECT {
                return None;
            }
            // SAFETY: `kind` says that libpmix wrote this member of the union.
            let object = unsafe { value.data.object };
            if object.bytes.is_null() {
                return Some(Vec::new());
            }
            // SAFETY: libpmix wrote `size` bytes at `bytes` and gave them to this process.
            let bytes = unsafe { std::slice::from_raw_parts(object.bytes, object.size) }.to_vec();
            // SAFETY: libpmix allocated them with malloc, and nothing uses them afterwards.
            unsafe { libc::free(object.bytes.cast::<c_void>()) };
            Some(bytes)
        })
    }

    /// Gets a value, passes it to `read`, and frees it.
    fn get_with<R>(
        &self,
        from: &PmixProc,
        key: &CStr,
        infos: &[Info],
        read: impl FnOnce(&PmixValue) -> Option<R>,
    ) -> Result<R, PmixStatus> {
        let mut value: *mut PmixValue = ptr::null_mut();
        // SAFETY: the key ends in a zero, `infos` is an array of `infos.len()` pmix_info_t, and the
        // call may write the pointer `value`.
        self.check(unsafe {
            (self.get)(from, key.as_ptr(), infos.as_ptr(), infos.len(), &mut value)
        })?;
        // SAFETY: on success the pointer is null, or points to a pmix_value_t that this process
        // owns until it frees it.
        let read = unsafe { value.as_ref() }.and_then(read);
        // SAFETY: libpmix allocated the value with malloc, and nothing uses it afterwards. `read`
        // frees the bytes that it points to. `free` accepts a null pointer.
        unsafe { libc::free(value.cast::<c_void>()) };
        read.ok_or_else(|| PmixStatus {
            code: SUCCESS,
            text: "a value of an unexpected type".into(),
        })
    }

    /// Ends the job.
    pub(super) fn abort(&self, status: i32, why: &CStr) -> Result<(), PmixStatus> {
        // SAFETY: the text ends in a zero; no processes mean the whole job.
        self.check(unsafe { (self.abort)(status, why.as_ptr(), ptr::null_mut(), 0) })
    }

    /// Leaves the job.
    pub(super) fn finalize(&self) -> Result<(), PmixStatus> {
        // SAFETY: a null pointer with 0 infos is allowed.
        self.check(unsafe { (self.finalize)(ptr::null(), 0) })
    }

    fn check(&self, code: c_int) -> Result<(), PmixStatus> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number is a valid argument.
        let text = unsafe { (self.error_string)(code) };
        let text = if text.is_null() {
            c"no words for it"
        } else {
            // SAFETY: the string ends in a zero, and libpmix owns it and never frees it.
            unsafe { CStr::from_ptr(text) }
        };
        Err(PmixStatus {
            code,
            text: text.to_string_lossy().into_owned(),
        })
    }
}

/// Converts `text` for C, up to its first zero.
pub(super) fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().take_while(|&b| b != 0).collect();
    CString::new(bytes).unwrap_or_default()
}
