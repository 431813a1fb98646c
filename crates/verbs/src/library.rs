//! The loading of libibverbs at run time.

#![allow(unsafe_code)] // loads a library

use std::{ffi::c_int, sync::OnceLock};

use crate::ffi::Libibverbs;

/// The name of the library, unless `HYDRANT_VERBS_LIBRARY` overrides it.
pub const SYSTEM_LIBRARY: &str = "libibverbs.so.1";

/// Returns the library, opened once. The error says why it could not be opened.
pub(crate) fn library() -> Result<&'static Libibverbs, &'static str> {
    static LIBRARY: OnceLock<Result<Libibverbs, String>> = OnceLock::new();
    (LIBRARY.get_or_init(open).as_ref()).map_err(String::as_str)
}

fn open() -> Result<Libibverbs, String> {
    let name = std::env::var_os("HYDRANT_VERBS_LIBRARY").unwrap_or_else(|| SYSTEM_LIBRARY.into());
    // SAFETY: the constructor of libibverbs has no conditions.
    let library = unsafe { libloading::Library::new(&name) };
    let opened = library.and_then(|library| {
        let fork = fork_support(&library);
        // SAFETY: the functions have the types of the library's header, in their default versions.
        let library = unsafe { Libibverbs::from_library(library) };
        library.map(|library| (library, fork))
    });
    let (library, fork) = opened.map_err(|cause| {
        format!("{cause}; install libibverbs (Debian: apt install libibverbs1 ibverbs-providers)")
    })?;
    // A child of `fork` must not take pinned pages with it. Newer kernels guarantee that. For older
    // ones the library marks all registered memory, with two system calls for each registration.
    // The call must come before any registration.
    // SAFETY: no device is open yet.
    if fork != Some(UNNEEDED) && unsafe { library.ibv_fork_init() } != 0 {
        tracing::warn!("libibverbs cannot make fork safe: do not fork in a job");
    }
    Ok(library)
}

/// `IBV_FORK_UNNEEDED` (ibv_is_fork_initialized(3)): fork is safe without help of the library.
const UNNEEDED: c_int = 2;

/// The answer of `ibv_is_fork_initialized`, which exists since rdma-core 35.
fn fork_support(library: &libloading::Library) -> Option<c_int> {
    type IsForkInitialized = unsafe extern "C" fn() -> c_int;
    // SAFETY: the function has this type: it takes nothing and returns an enumeration.
    let symbol = unsafe { library.get::<IsForkInitialized>(b"ibv_is_fork_initialized\0") };
    let is_fork_initialized = symbol.ok()?;
    // SAFETY: it may be called at any time.
    Some(unsafe { is_fork_initialized() })
}
