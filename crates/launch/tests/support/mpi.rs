//! A program of MPI that needs no MPI compiler: it loads the library, whose functions are then found as in a program
//! that is linked to it.

#![allow(unsafe_code, reason = "calls a library of C")]

use std::{ffi::c_int, ptr};

use hydrant_launch::{Error, Kind, join};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// Returns whether there is such a library.
pub(crate) fn can_load(library: &str) -> bool {
    // SAFETY: every program of MPI runs the same initializers.
    unsafe { Library::open(Some(library), RTLD_NOW) }.is_ok()
}

/// The functions that begin and end an MPI.
struct Mpi {
    init: Symbol<unsafe extern "C" fn(*mut c_int, *mut *mut *mut i8) -> c_int>,
    finalize: Symbol<unsafe extern "C" fn() -> c_int>,
}

impl Mpi {
    fn load(library: &str) -> Self {
        // SAFETY: as above.
        let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.expect("the library of MPI");
        // SAFETY: the function has this type in every MPI.
        let init = unsafe { library.get(b"MPI_Init\0") }.expect("MPI_Init");
        // SAFETY: likewise.
        let finalize = unsafe { library.get(b"MPI_Finalize\0") }.expect("MPI_Finalize");
        // It stays loaded as long as the process.
        std::mem::forget(library);
        Self { init, finalize }
    }

    fn init(&self) {
        // SAFETY: it is called once, and takes no arguments.
        assert_eq!(unsafe { (self.init)(ptr::null_mut(), ptr::null_mut()) }, 0);
    }

    fn finalize(&self) {
        // SAFETY: MPI was begun, and is not used from here on.
        assert_eq!(unsafe { (self.finalize)() }, 0);
    }
}

/// Begins MPI, joins, reports its rank, and ends MPI.
pub(crate) fn join_beside(library: &str) -> Result<String, Error> {
    let mpi = Mpi::load(library);
    mpi.init();
    let joined = join(Kind::Auto);
    let said = joined.map(|me| format!("{} {} {}", me.name(), me.rank(), me.size()));
    mpi.finalize();
    said
}

/// Joins, begins MPI, leaves, and ends MPI.
pub(crate) fn join_before(library: &str) -> Result<String, Error> {
    let mpi = Mpi::load(library);
    let mut me = join(Kind::Auto)?;
    me.fence()?;
    mpi.init();
    let said = format!("{} {} {}", me.name(), me.rank(), me.size());
    me.finalize()?;
    mpi.finalize();
    Ok(said)
}
