//! Opening libibverbs.

#![allow(unsafe_code)] // loads a library

use std::sync::OnceLock;

use crate::ffi::Libibverbs;

/// The library's name, unless `HYDRANT_VERBS_LIBRARY` says another.
const NAME: &str = "libibverbs.so.1";

/// libibverbs, opened once; or why it is not there.
pub(crate) fn library() -> Result<&'static Libibverbs, &'static str> {
    static LIBRARY: OnceLock<Result<Libibverbs, String>> = OnceLock::new();
    (LIBRARY.get_or_init(open).as_ref()).map_err(String::as_str)
}

fn open() -> Result<Libibverbs, String> {
    let name = std::env::var_os("HYDRANT_VERBS_LIBRARY").unwrap_or_else(|| NAME.into());
    // SAFETY: libibverbs has no constructor that asks anything of its user, and the functions
    // have the types that its header gives them; their default versions are taken.
    let opened = unsafe {
        libloading::Library::new(&name).and_then(|library| Libibverbs::from_library(library))
    };
    let library = opened.map_err(|cause| {
        format!("{cause}; install libibverbs (Debian: apt install libibverbs1 ibverbs-providers)")
    })?;
    // A child of fork shall not take pinned pages with it on kernels that would let it; on newer
    // ones this does nothing. It comes before anything is registered.
    // SAFETY: no device is open yet.
    if unsafe { library.ibv_fork_init() } != 0 {
        tracing::warn!("libibverbs cannot make fork safe: do not fork in a job");
    }
    Ok(library)
}
