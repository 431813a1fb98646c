//! The program's MPI library, if it has one. This module begins and ends MPI as ARMCI does, and
//! makes communicators for ARMCI's groups.
//!
//! This crate does not link an MPI library. It finds the functions in the program, if the program
//! uses MPI. Handles are numbers in MPICH and libraries with its ABI, and addresses in Open MPI.
//! Either kind fits a register, and is stored in a word of that size.
#![allow(
    unsafe_code,
    reason = "the functions of a library that the program has must be found and called by their names"
)]

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use crate::{Error, Result};

/// `MPI_COMM_WORLD` of MPICH's ABI.
const MPICH_WORLD: usize = 0x4400_0000;
/// `MPI_COMM_NULL` of MPICH's ABI.
const MPICH_NULL: usize = 0x0400_0000;

/// `MPI_THREAD_SERIALIZED`: the lowest thread level at which any thread may call MPI, one at a
/// time.
const SERIALIZED: c_int = 2;

/// The largest tag that every MPI allows.
const MAX_TAG: usize = 32767;

type QueryFlag = unsafe extern "C" fn(*mut c_int) -> c_int;
type InitMpi = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type FinalizeMpi = unsafe extern "C" fn() -> c_int;
type QueryHandle = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type MakeHandle = unsafe extern "C" fn(usize, *mut usize) -> c_int;
type FreeHandle = unsafe extern "C" fn(*mut usize) -> c_int;
type IncludeMembers = unsafe extern "C" fn(usize, c_int, *const c_int, *mut usize) -> c_int;
type MakeOfGroup = unsafe extern "C" fn(usize, usize, c_int, *mut usize) -> c_int;

/// The handle of a communicator in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Communicator(pub(crate) usize);

/// Finds a function or object of MPI by its name, which must end with a null byte.
fn find(name: &'static str) -> Option<*mut c_void> {
    // SAFETY: only the address of the symbol is used here, so its type does not matter.
    let found = unsafe { Library::this().get::<*mut c_void>(name.as_bytes()) };
    found.ok().map(|it| it.as_raw_ptr())
}

/// As [`find`], for a function that every MPI library has.
///
/// # Errors
/// [`Error::Mpi`].
fn require(name: &'static str) -> Result<*mut c_void> {
    find(name).ok_or_else(|| Error::Mpi {
        doing: "looking for a function",
        why: format!("there is no {}", name.trim_end_matches('\0')),
    })
}

fn check(code: c_int, doing: &'static str) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::Mpi {
            doing,
            why: format!("error {code}"),
        }),
    }
}

/// Calls a function of MPI that only stores an `int`. Returns the `int`, or `None` if the function
/// is missing or fails.
fn query_flag(name: &'static str) -> Option<c_int> {
    let function = find(name)?;
    // SAFETY: the functions that are named here have this type in every MPI.
    let function = unsafe { std::mem::transmute::<*mut c_void, QueryFlag>(function) };
    let mut flag = 0;
    // SAFETY: `flag` has room for the number. `MPI_Initialized` and `MPI_Finalized` may be called
    // at any time. The other functions are called only while MPI is initialized.
    let code = unsafe { function(&raw mut flag) };
    (code == 0).then_some(flag)
}

/// Returns true if MPI is initialized and not finalized.
pub(crate) fn is_active() -> bool {
    query_flag("MPI_Initialized\0").is_some_and(|flag| flag != 0)
        && query_flag("MPI_Finalized\0").is_some_and(|flag| flag == 0)
}

/// Initializes MPI, if the program has MPI and has not initialized it yet. Returns true if it did.
///
/// # Errors
/// [`Error::Mpi`].
///
/// # Safety
/// 1. The arguments are null, or those of the program's `main`.
pub(crate) unsafe fn begin(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Result<bool> {
    let (Some(0), Some(init)) = (query_flag("MPI_Initialized\0"), find("MPI_Init\0")) else {
        return Ok(false);
    };
    // SAFETY: `MPI_Init` has this type in every MPI.
    let init = unsafe { std::mem::transmute::<*mut c_void, InitMpi>(init) };
    // SAFETY: MPI is not initialized. The arguments are null, or those of the program's `main`, by
    // the caller's condition 1.
    check(unsafe { init(argc, argv) }, "initializing it")?;
    Ok(true)
}

/// Finalizes MPI, if it is initialized.
///
/// # Errors
/// [`Error::Mpi`].
pub(crate) fn end() -> Result<()> {
    if !is_active() {
        return Ok(());
    }
    let finalize = require("MPI_Finalize\0")?;
    // SAFETY: `MPI_Finalize` has this type in every MPI.
    let finalize = unsafe { std::mem::transmute::<*mut c_void, FinalizeMpi>(finalize) };
    // SAFETY: MPI is initialized and not finalized.
    check(unsafe { finalize() }, "ending it")
}

/// Returns true if this thread may call MPI now.
pub(crate) fn may_call() -> bool {
    is_active()
        && (query_flag("MPI_Query_thread\0").is_some_and(|level| level >= SERIALIZED)
            || query_flag("MPI_Is_thread_main\0").is_some_and(|flag| flag != 0))
}

impl Communicator {
    /// Returns true if handles are addresses, and false if they are `int`s.
    pub(crate) fn is_wide() -> bool {
        find("ompi_mpi_comm_world\0").is_some()
    }

    /// The communicator of all processes in MPI.
    pub(crate) fn world() -> Self {
        let handle = find("ompi_mpi_comm_world\0");
        Self(handle.map_or(MPICH_WORLD, |handle| handle.addr()))
    }

    /// The null communicator.
    pub(crate) fn null() -> Self {
        let handle = find("ompi_mpi_comm_null\0");
        Self(handle.map_or(MPICH_NULL, |handle| handle.addr()))
    }

    /// The number of the communicator's processes, and this process's rank in it.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn size_and_rank(self) -> Result<(u32, u32)> {
        let ask = |name, doing| -> Result<u32> {
            let found = require(name)?;
            // SAFETY: both functions have this type in every MPI.
            let function = unsafe { std::mem::transmute::<*mut c_void, QueryHandle>(found) };
            let mut number = 0;
            // SAFETY: MPI is initialized, and `number` has room. The code that made this value promises that
            // the handle is a communicator.
            check(unsafe { function(self.0, &raw mut number) }, doing)?;
            Ok(u32::try_from(number).unwrap_or(0))
        };
        Ok((
            ask("MPI_Comm_size\0", "asking for the size of a communicator")?,
            ask("MPI_Comm_rank\0", "asking for the rank in a communicator")?,
        ))
    }

    /// Makes a communicator of the same processes. Collective over them.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn duplicate(self) -> Result<Self> {
        let made = make("MPI_Comm_dup\0", self.0, "duplicating a communicator")?;
        Ok(Self(made))
    }

    /// Makes a communicator of some of this communicator's processes, by their ranks. Collective
    /// over these processes alone.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn of_members(self, members: &[usize]) -> Result<Self> {
        let doing = "making a communicator of a group";
        let include = require("MPI_Group_incl\0")?;
        let make_of_group = require("MPI_Comm_create_group\0")?;
        let numbers: Vec<c_int> = members.iter().map(|member| *member as c_int).collect();
        // The tag keeps apart groups that different threads make at the same time.
        let tag = members
            .iter()
            .fold(0, |tag: usize, member| (tag * 31 + member + 1) % MAX_TAG);
        let mut whole = make("MPI_Comm_group\0", self.0, doing)?;
        let (mut part, mut made) = (0, 0);
        // SAFETY: `MPI_Group_incl` has this type in every MPI.
        let include = unsafe { std::mem::transmute::<*mut c_void, IncludeMembers>(include) };
        // SAFETY: `MPI_Comm_create_group` has this type in every MPI.
        let make_of_group =
            unsafe { std::mem::transmute::<*mut c_void, MakeOfGroup>(make_of_group) };
        let number = numbers.len() as c_int;
        // SAFETY: MPI is initialized, `numbers` has `number` entries, and `part` has room for a handle.
        let code = unsafe { include(whole, number, numbers.as_ptr(), &raw mut part) };
        let outcome = check(code, doing).and_then(|()| {
            // SAFETY: MPI is initialized, `part` was made above, and `made` has room for a handle.
            let code = unsafe { make_of_group(self.0, part, tag as c_int, &raw mut made) };
            free("MPI_Group_free\0", &mut part)?;
            check(code, doing)
        });
        free("MPI_Group_free\0", &mut whole)?;
        outcome.map(|()| Self(made))
    }

    /// Frees the communicator, if this thread may call MPI.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn free(mut self) -> Result<()> {
        if may_call() {
            free("MPI_Comm_free\0", &mut self.0)
        } else {
            Ok(())
        }
    }
}

/// Calls a function that makes a handle from a communicator.
fn make(name: &'static str, of: usize, doing: &'static str) -> Result<usize> {
    let found = require(name)?;
    // SAFETY: the functions that are named here have this type in every MPI.
    let make = unsafe { std::mem::transmute::<*mut c_void, MakeHandle>(found) };
    let mut made = 0;
    // SAFETY: MPI is initialized, `of` is a communicator, and `made` has room for the longest handle.
    check(unsafe { make(of, &raw mut made) }, doing)?;
    Ok(made)
}

fn free(name: &'static str, handle: &mut usize) -> Result<()> {
    let found = require(name)?;
    // SAFETY: the functions that are named here have this type in every MPI.
    let free = unsafe { std::mem::transmute::<*mut c_void, FreeHandle>(found) };
    // SAFETY: MPI is initialized, and MPI made the handle.
    check(unsafe { free(&raw mut *handle) }, "freeing a handle")
}
