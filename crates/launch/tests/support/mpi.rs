//! A program of MPI that needs no MPI compiler. It loads the library, whose functions are then
//! found as in a program that links it.

#![allow(unsafe_code, reason = "calls a library of C")]

use std::{ffi::c_int, ptr};

use hydrant_launch::{BootstrapKind, Error, JoinOptions, join, join_with};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// Returns true if the library can be loaded.
pub(crate) fn can_load(library: &str) -> bool {
    // SAFETY: the initializers that run are those that every program of MPI runs.
    unsafe { Library::open(Some(library), RTLD_NOW) }.is_ok()
}

/// The functions that initialize and finalize an MPI.
struct Mpi {
    init: Symbol<unsafe extern "C" fn(*mut c_int, *mut *mut *mut i8) -> c_int>,
    finalize: Symbol<unsafe extern "C" fn() -> c_int>,
    /// The C handle of `MPI_COMM_SELF`.
    only_self: usize,
}

/// `MPI_COMM_SELF` of MPICH's ABI.
const MPICH_SELF: usize = 0x4400_0001;

impl Mpi {
    fn load(library: &str) -> Self {
        // SAFETY: the initializers that run are those that every program of MPI runs.
        let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.expect("the library of MPI");
        // SAFETY: the function has this type in every MPI.
        let init = unsafe { library.get(b"MPI_Init\0") }.expect("MPI_Init");
        // SAFETY: the function has this type in every MPI.
        let finalize = unsafe { library.get(b"MPI_Finalize\0") }.expect("MPI_Finalize");
        // SAFETY: only the symbol's address is used.
        let only_self = unsafe { library.get::<*mut c_int>(b"ompi_mpi_comm_self\0") };
        let only_self = only_self.map_or(MPICH_SELF, |it| it.as_raw_ptr().addr());
        // The library stays loaded for the life of the process.
        std::mem::forget(library);
        Self {
            init,
            finalize,
            only_self,
        }
    }

    fn init(&self) {
        // SAFETY: the function is called once; null pointers mean no arguments.
        assert_eq!(unsafe { (self.init)(ptr::null_mut(), ptr::null_mut()) }, 0);
    }

    fn finalize(&self) {
        // SAFETY: MPI was initialized, and nothing uses it from here on.
        assert_eq!(unsafe { (self.finalize)() }, 0);
    }
}

/// Initializes MPI, joins, reports the rank, and finalizes MPI. `how` the process joins: by the
/// `auto` choice, by `mpi` explicitly, or as a job of its own by the communicator of it `self`.
pub(crate) fn join_beside(library: &str, how: &str) -> Result<String, Error> {
    let mpi = Mpi::load(library);
    mpi.init();
    let joined = match how {
        "self" => join_with(&JoinOptions {
            mpi_communicator: Some(mpi.only_self),
            ..JoinOptions::default()
        }),
        kind => join(kind.parse()?),
    };
    let said = joined.map(|me| format!("{} {} {}", me.name(), me.rank(), me.size()));
    mpi.finalize();
    said
}

/// Joins, initializes MPI, leaves, and finalizes MPI.
pub(crate) fn join_before(library: &str) -> Result<String, Error> {
    let mpi = Mpi::load(library);
    let mut me = join(BootstrapKind::Auto)?;
    me.fence()?;
    mpi.init();
    let said = format!("{} {} {}", me.name(), me.rank(), me.size());
    me.finalize()?;
    mpi.finalize();
    Ok(said)
}
