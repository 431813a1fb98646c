//! The program's MPI library, if it has one: begun and ended as in ARMCI, with communicators for ARMCI's groups.
//!
//! This crate does not link the library: a program that uses MPI has its functions. Handles are numbers in MPICH and
//! its kin, and addresses in Open MPI. Either fits a whole register, and is stored in room for the longer.
#![allow(
    unsafe_code,
    reason = "the functions of a library that the program has must be found and called by their names"
)]

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use crate::{Error, Result};

/// `MPI_COMM_WORLD` and `MPI_COMM_NULL` of MPICH's ABI.
const MPICH_WORLD: usize = 0x4400_0000;
const MPICH_NULL: usize = 0x0400_0000;

/// The lowest thread level at which any thread may call MPI, one at a time: `MPI_THREAD_SERIALIZED`.
const SERIALIZED: c_int = 2;

/// Every MPI allows tags up to this one.
const MOST_TAG: usize = 32767;

type Asks = unsafe extern "C" fn(*mut c_int) -> c_int;
type Begins = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Ends = unsafe extern "C" fn() -> c_int;
type OfHandle = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type Makes = unsafe extern "C" fn(usize, *mut usize) -> c_int;
type Frees = unsafe extern "C" fn(*mut usize) -> c_int;
type Includes = unsafe extern "C" fn(usize, c_int, *const c_int, *mut usize) -> c_int;
type MakesOf = unsafe extern "C" fn(usize, usize, c_int, *mut usize) -> c_int;

/// A communicator's handle in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Communicator(pub(crate) usize);

/// Finds a function of MPI by its name, which ends with a null.
fn find(name: &'static str) -> Option<*mut c_void> {
    // SAFETY: only its address is used here.
    let found = unsafe { Library::this().get::<*mut c_void>(name.as_bytes()) };
    found.ok().map(|it| it.as_raw_ptr())
}

/// As [`find`], for a function that every MPI has.
///
/// # Errors
/// [`Error::Mpi`].
fn need(name: &'static str) -> Result<*mut c_void> {
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

/// The result of a function that takes only room for a number.
fn says(name: &'static str) -> Option<c_int> {
    let function = find(name)?;
    // SAFETY: the functions that are called here have this type in every MPI.
    let function = unsafe { std::mem::transmute::<*mut c_void, Asks>(function) };
    let mut flag = 0;
    // SAFETY: the number has room. `MPI_Initialized` and `MPI_Finalized` may be called at any time. The others are
    // called while MPI is initialized.
    let code = unsafe { function(&raw mut flag) };
    (code == 0).then_some(flag)
}

/// Returns whether MPI is initialized, and not ended.
pub(crate) fn is_under_way() -> bool {
    says("MPI_Initialized\0").is_some_and(|flag| flag != 0)
        && says("MPI_Finalized\0").is_some_and(|flag| flag == 0)
}

/// Begins MPI, if the program has it and has neither begun nor ended it. Returns whether it did.
///
/// # Errors
/// [`Error::Mpi`].
pub(crate) fn begin(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Result<bool> {
    let (Some(0), Some(begins)) = (says("MPI_Initialized\0"), find("MPI_Init\0")) else {
        return Ok(false);
    };
    // SAFETY: it has this type in every MPI.
    let begins = unsafe { std::mem::transmute::<*mut c_void, Begins>(begins) };
    // SAFETY: MPI is not initialized. The arguments are null, or those of the program's `main`, as the caller of
    // ARMCI's function promises.
    check(unsafe { begins(argc, argv) }, "initializing it")?;
    Ok(true)
}

/// Ends MPI, if it is initialized.
///
/// # Errors
/// [`Error::Mpi`].
pub(crate) fn end() -> Result<()> {
    if !is_under_way() {
        return Ok(());
    }
    let ends = need("MPI_Finalize\0")?;
    // SAFETY: it has this type in every MPI.
    let ends = unsafe { std::mem::transmute::<*mut c_void, Ends>(ends) };
    // SAFETY: MPI is initialized and not ended.
    check(unsafe { ends() }, "ending it")
}

/// Returns whether this thread may call MPI now.
pub(crate) fn may_call() -> bool {
    is_under_way()
        && (says("MPI_Query_thread\0").is_some_and(|level| level >= SERIALIZED)
            || says("MPI_Is_thread_main\0").is_some_and(|flag| flag != 0))
}

impl Communicator {
    /// Returns whether the handle is an address, and not an `int`.
    pub(crate) fn is_wide() -> bool {
        find("ompi_mpi_comm_world\0").is_some()
    }

    /// The communicator of all processes of MPI.
    pub(crate) fn world() -> Self {
        let handle = find("ompi_mpi_comm_world\0");
        Self(handle.map_or(MPICH_WORLD, |handle| handle.addr()))
    }

    /// The null communicator.
    pub(crate) fn null() -> Self {
        let handle = find("ompi_mpi_comm_null\0");
        Self(handle.map_or(MPICH_NULL, |handle| handle.addr()))
    }

    /// The number of its processes, and this one's rank there.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn extent(self) -> Result<(u32, u32)> {
        let ask = |name, doing| -> Result<u32> {
            // SAFETY: both functions have this type in every MPI.
            let function = unsafe { std::mem::transmute::<*mut c_void, OfHandle>(need(name)?) };
            let mut number = 0;
            // SAFETY: MPI is initialized, the handle is a communicator by the promise of its maker, and the number
            // has room.
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

    /// Makes a communicator of some of its processes, by their numbers there. Collective over these alone.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn of_members(self, members: &[usize]) -> Result<Self> {
        let doing = "making a communicator of a group";
        let (includes, makes) = (need("MPI_Group_incl\0")?, need("MPI_Comm_create_group\0")?);
        let numbers: Vec<c_int> = members.iter().map(|member| *member as c_int).collect();
        // The tag tells apart groups that different threads make at one time.
        let tag = members
            .iter()
            .fold(0, |tag: usize, member| (tag * 31 + member + 1) % MOST_TAG);
        let mut whole = make("MPI_Comm_group\0", self.0, doing)?;
        let (mut part, mut made) = (0, 0);
        // SAFETY: it has this type in every MPI.
        let includes = unsafe { std::mem::transmute::<*mut c_void, Includes>(includes) };
        // SAFETY: as above.
        let makes = unsafe { std::mem::transmute::<*mut c_void, MakesOf>(makes) };
        let number = numbers.len() as c_int;
        // SAFETY: MPI is initialized; so many numbers are there, and room for a handle.
        let code = unsafe { includes(whole, number, numbers.as_ptr(), &raw mut part) };
        let outcome = check(code, doing).and_then(|()| {
            // SAFETY: MPI is initialized; both handles were made above, and there is room for another.
            let code = unsafe { makes(self.0, part, tag as c_int, &raw mut made) };
            free("MPI_Group_free\0", &mut part)?;
            check(code, doing)
        });
        free("MPI_Group_free\0", &mut whole)?;
        outcome.map(|()| Self(made))
    }

    /// Frees it, if MPI is initialized.
    ///
    /// # Errors
    /// [`Error::Mpi`].
    pub(crate) fn free(mut self) -> Result<()> {
        match may_call() {
            true => free("MPI_Comm_free\0", &mut self.0),
            false => Ok(()),
        }
    }
}

/// Calls a function that makes a handle of a communicator.
fn make(name: &'static str, of: usize, doing: &'static str) -> Result<usize> {
    // SAFETY: the functions that are named here have this type in every MPI.
    let makes = unsafe { std::mem::transmute::<*mut c_void, Makes>(need(name)?) };
    let mut made = 0;
    // SAFETY: MPI is initialized; `of` is a communicator, and there is room for the longest handle.
    check(unsafe { makes(of, &raw mut made) }, doing)?;
    Ok(made)
}

fn free(name: &'static str, handle: &mut usize) -> Result<()> {
    // SAFETY: the functions that are named here have this type in every MPI.
    let frees = unsafe { std::mem::transmute::<*mut c_void, Frees>(need(name)?) };
    // SAFETY: MPI is initialized, and it made the handle.
    check(unsafe { frees(&raw mut *handle) }, "freeing a handle")
}
