//! Opening libibverbs.

#![allow(unsafe_code)] // loads a library

use std::{ffi::c_int, sync::OnceLock};

use crate::ffi::Libibverbs;

/// The name of libibverbs, unless `HYDRANT_VERBS_LIBRARY` says another.
pub const SYSTEM_LIBRARY: &str = "libibverbs.so.1";

/// libibverbs, opened once; or why it is not there.
pub(crate) fn library() -> Result<&'static Libibverbs, &'static str> {
    static LIBRARY: OnceLock<Result<Libibverbs, String>> = OnceLock::new();
    (LIBRARY.get_or_init(open).as_ref()).map_err(String::as_str)
}

fn open() -> Result<Libibverbs, String> {
    let name = std::env::var_os("HYDRANT_VERBS_LIBRARY").unwrap_or_else(|| SYSTEM_LIBRARY.into());
    // SAFETY: libibverbs has no constructor that asks anything of its user, and the functions
    // have the types that its header gives them; their default versions are taken.
    let opened = unsafe {
        libloading::Library::new(&name).and_then(|library| {
            let fork = fork_support(&library);
            Libibverbs::from_library(library).map(|library| (library, fork))
        })
    };
    let (library, fork) = opened.map_err(|cause| {
        format!("{cause}; install libibverbs (Debian: apt install libibverbs1 ibverbs-providers)")
    })?;
    // A child of fork shall not take pinned pages with it. Newer kernels see to that; for older
    // ones the library marks all memory that is registered, two system calls for each. It comes
    // before anything is registered.
    // SAFETY: no device is open yet.
    if fork != Some(UNNEEDED) && unsafe { library.ibv_fork_init() } != 0 {
        tracing::warn!("libibverbs cannot make fork safe: do not fork in a job");
    }
    Ok(library)
}

/// Fork is safe without the library's doing: `IBV_FORK_UNNEEDED` (ibv_is_fork_initialized(3)).
const UNNEEDED: c_int = 2;

/// What `ibv_is_fork_initialized` says, which came with rdma-core 35.
fn fork_support(library: &libloading::Library) -> Option<c_int> {
    type IsForkInitialized = unsafe extern "C" fn() -> c_int;
    // SAFETY: that is its type, an enumeration; it may be called at any time.
    unsafe {
        let ask = library
            .get::<IsForkInitialized>(b"ibv_is_fork_initialized\0")
            .ok()?;
        Some(ask())
    }
}
