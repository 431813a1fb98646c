//! The loading of libfabric at run time.
//!
//! The library exports each function in several versions, whose structures differ. The default version is the newest,
//! so `dlsym` would return functions for structures that `ffi` does not have. This module asks for the versions of
//! libfabric 1.17 by `dlvsym`. Libraries up to 2.6 have them.

#![allow(unsafe_code)] // loads a library

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    sync::OnceLock,
};

use crate::{
    ffi::{fi_fabric_attr, fi_info, fid_fabric},
    signals::SignalActions,
};

/// The name of the library, unless `HYDRANT_OFI_LIBRARY` overrides it.
pub const SYSTEM_LIBRARY: &str = "libfabric.so.1";

/// The version of the interface that this crate speaks: 1.17.
pub(crate) const INTERFACE: u32 = 1 << 16 | 17;

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi_info,
    *mut *mut fi_info,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut fi_info);
type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
type OpenFabric =
    unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions that libfabric exports. All others are in the tables of its objects.
pub(crate) struct Libfabric {
    pub(crate) fi_getinfo: GetInfo,
    pub(crate) fi_freeinfo: FreeInfo,
    pub(crate) fi_dupinfo: DupInfo,
    pub(crate) fi_fabric: OpenFabric,
    fi_strerror: ErrorText,
    /// The version of the library: major, minor.
    version: (u32, u32),
}

/// Returns the library, opened once. The error says why it could not be opened.
pub(crate) fn library() -> Result<&'static Libfabric, &'static str> {
    static LIBRARY: OnceLock<Result<Libfabric, String>> = OnceLock::new();
    (LIBRARY.get_or_init(open).as_ref()).map_err(String::as_str)
}

/// Returns the version of libfabric on this host.
///
/// # Errors
/// The reason why the library could not be opened.
pub fn version() -> Result<(u32, u32), &'static str> {
    Ok(library()?.version)
}

impl Libfabric {
    /// Returns the text of an error number of libfabric, which may be negative.
    pub(crate) fn error_text(&self, number: isize) -> String {
        let number = c_int::try_from(number.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: the function takes any number, and returns a string that is never freed.
        let text = unsafe { (self.fi_strerror)(number) };
        if text.is_null() {
            return format!("error {number}");
        }
        // SAFETY: the pointer leads to a string with a terminating zero.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} (error {number})", text.to_string_lossy())
    }
}

fn open() -> Result<Libfabric, String> {
    let name = std::env::var_os("HYDRANT_OFI_LIBRARY").unwrap_or_else(|| SYSTEM_LIBRARY.into());
    let c_name = CString::new(name.as_bytes()).map_err(|_| "a name with a zero byte".to_owned())?;
    let actions = SignalActions::now();
    // SAFETY: the constructor of libfabric has no conditions.
    let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    actions.restore();
    if handle.is_null() {
        let cause = loading_error();
        let remedy = if std::env::var_os("HYDRANT_OFI_LIBRARY").is_some() {
            "HYDRANT_OFI_LIBRARY names that file: correct it, or unset it for the system's"
        } else {
            "install libfabric (Debian: apt install libfabric1), or set HYDRANT_OFI_LIBRARY to its path"
        };
        return Err(format!("{cause}; {remedy}"));
    }
    let find = |symbol: &CStr, version: &CStr| {
        // SAFETY: the handle is an open library, and both strings end with a zero.
        let found = unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
        if found.is_null() {
            return Err(format!(
                "{} has no {} of version {}: libfabric 1.17 or newer is needed",
                name.display(),
                symbol.to_string_lossy(),
                version.to_string_lossy(),
            ));
        }
        Ok(found)
    };
    let get_info = find(c"fi_getinfo", c"FABRIC_1.3")?;
    let free_info = find(c"fi_freeinfo", c"FABRIC_1.3")?;
    let dup_info = find(c"fi_dupinfo", c"FABRIC_1.3")?;
    let open_fabric = find(c"fi_fabric", c"FABRIC_1.1")?;
    let version = find(c"fi_version", c"FABRIC_1.0")?;
    let error_text = find(c"fi_strerror", c"FABRIC_1.0")?;
    // SAFETY: `fi_version` has this type.
    let version = unsafe { std::mem::transmute::<*mut c_void, Version>(version) };
    // SAFETY: the function takes nothing and may be called at any time.
    let version = unsafe { version() };
    let version = (version >> 16, version & 0xffff);
    if version < (1, 17) {
        let (major, minor) = version;
        return Err(format!(
            "{} is libfabric {major}.{minor}: 1.17 or newer is needed",
            name.display()
        ));
    }
    Ok(Libfabric {
        // SAFETY: `fi_getinfo` of FABRIC_1.3 has this type.
        fi_getinfo: unsafe { std::mem::transmute::<*mut c_void, GetInfo>(get_info) },
        // SAFETY: `fi_freeinfo` of FABRIC_1.3 has this type.
        fi_freeinfo: unsafe { std::mem::transmute::<*mut c_void, FreeInfo>(free_info) },
        // SAFETY: `fi_dupinfo` of FABRIC_1.3 has this type.
        fi_dupinfo: unsafe { std::mem::transmute::<*mut c_void, DupInfo>(dup_info) },
        // SAFETY: `fi_fabric` of FABRIC_1.1 has this type.
        fi_fabric: unsafe { std::mem::transmute::<*mut c_void, OpenFabric>(open_fabric) },
        // SAFETY: `fi_strerror` of FABRIC_1.0 has this type.
        fi_strerror: unsafe { std::mem::transmute::<*mut c_void, ErrorText>(error_text) },
        version,
    })
}

fn loading_error() -> String {
    // SAFETY: the call returns the thread's last error.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the library cannot be loaded".to_owned();
    }
    // SAFETY: the pointer leads to a string that stays until the thread's next call of these
    // functions.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
