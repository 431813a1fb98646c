//! The rank's side of an MPI library that the program initialized before it joined.
//!
//! A launcher lets a process join once, and MPI has joined already. MPI's ranks are therefore the
//! job's ranks, and MPI's collectives exchange their values. Hydrant does not link the library: a
//! program that uses MPI has its functions loaded. A handle is a number in MPICH and its
//! derivatives, and an address of a variable in Open MPI. Linux calling conventions pass either in
//! a whole register.
#![allow(
    unsafe_code,
    reason = "the functions of a library that the program has must be found and called by their names"
)]

use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};

use hydrant_base::words::values;
use libloading::os::unix::Library as Loaded;

use crate::{Bootstrap, Error, check_key, check_rank, check_value, detect::Library};

const SERVICE: &str = "MPI";

/// `MPI_COMM_WORLD` and `MPI_BYTE` of MPICH's ABI.
const MPICH: MpiHandles = MpiHandles {
    world: 0x4400_0000,
    byte: 0x4c00_010d,
};

#[derive(Clone, Copy)]
struct MpiHandles {
    /// The communicator of the job's ranks.
    world: usize,
    byte: usize,
}

type Flag = unsafe extern "C" fn(*mut c_int) -> c_int;
type OfRanks = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type AllGather =
    unsafe extern "C" fn(*const c_void, c_int, usize, *mut c_void, c_int, usize, usize) -> c_int;
type Abort = unsafe extern "C" fn(usize, c_int) -> c_int;

/// A rank that MPI serves.
pub(crate) struct Mpi {
    rank: u32,
    size: u32,
    /// The number of all processes of MPI.
    world_size: u32,
    handles: MpiHandles,
    all_gather: AllGather,
    abort: Abort,
    put: HashSet<String>,
    /// Pairs that this rank put since the last fence.
    fresh: Vec<(String, Vec<u8>)>,
    /// Values that all ranks put before the last fence, by rank and key.
    values: HashMap<(u32, String), Vec<u8>>,
}

/// Returns true if the program has initialized MPI and has not finalized it.
pub(crate) fn is_initialized() -> bool {
    flag_of(b"MPI_Initialized\0") && !flag_of(b"MPI_Finalized\0")
}

/// Returns true if an MPI of MPICH's kind was initialized, even if it was finalized since. Such an
/// MPI uses the PMI-1 descriptor in the environment, even if others use it too. It says goodbye
/// there when it ends.
pub(crate) fn speaks_pmi1_itself() -> bool {
    flag_of(b"MPI_Initialized\0") && library() == Library::Mpich
}

/// Calls an MPI function that is allowed at any time, and returns the flag it sets.
fn flag_of(name: &[u8]) -> bool {
    // SAFETY: a function of that name has this type in every MPI.
    let function = unsafe { Loaded::this().get::<Flag>(name) };
    function.is_ok_and(|function| {
        let mut flag = 0;
        // SAFETY: the function writes one `c_int` into `flag`, and may be called at any time.
        let code = unsafe { function(&raw mut flag) };
        code == 0 && flag != 0
    })
}

/// Returns the kind of the program's MPI, MPICH if there is none.
fn library() -> Library {
    // SAFETY: only the symbol's presence is checked; nothing reads through the pointer.
    match unsafe { Loaded::this().get::<*mut c_void>(b"ompi_mpi_comm_world\0") } {
        Ok(_) => Library::OpenMpi,
        Err(_) => Library::Mpich,
    }
}

impl Mpi {
    /// Joins through the program's MPI: all its processes, or those of a communicator. Collective
    /// over these processes.
    pub(crate) fn init(communicator: Option<usize>) -> Result<Self, Error> {
        if !is_initialized() {
            return Err(Error::LauncherUnusable {
                seen: "MPI was asked for".into(),
                why: "the program has not initialized it, or ended it already".into(),
                fix: "call MPI_Init before the job is joined".into(),
            });
        }
        let this = Loaded::this();
        let lacks = |name: &str| Error::Protocol {
            service: SERVICE,
            doing: "joining".into(),
            got: format!("no function {name}"),
        };
        let find = |name: &'static str| {
            // SAFETY: only the symbol's address is used here.
            let found = unsafe { this.get::<*mut c_void>(name.as_bytes()) };
            found.map(|it| it.as_raw_ptr()).map_err(|_| lacks(name))
        };
        let handles = match (find("ompi_mpi_comm_world\0"), find("ompi_mpi_byte\0")) {
            (Ok(world), Ok(byte)) => MpiHandles {
                world: world.addr(),
                byte: byte.addr(),
            },
            _ => MPICH,
        };
        let world = handles.world;
        let handles = MpiHandles {
            world: communicator.unwrap_or(world),
            ..handles
        };
        let rank = find("MPI_Comm_rank\0")?;
        // SAFETY: the function of this name has this type in every MPI.
        let rank = unsafe { std::mem::transmute::<*mut c_void, OfRanks>(rank) };
        let size = find("MPI_Comm_size\0")?;
        // SAFETY: the function of this name has this type in every MPI.
        let size = unsafe { std::mem::transmute::<*mut c_void, OfRanks>(size) };
        let all_gather = find("MPI_Allgather\0")?;
        // SAFETY: the function of this name has this type in every MPI.
        let all_gather = unsafe { std::mem::transmute::<*mut c_void, AllGather>(all_gather) };
        let abort = find("MPI_Abort\0")?;
        // SAFETY: the function of this name has this type in every MPI.
        let abort = unsafe { std::mem::transmute::<*mut c_void, Abort>(abort) };
        let ask = |function: OfRanks, of: usize, doing: &str| {
            let mut found = 0;
            // SAFETY: MPI is initialized, and the function writes one `c_int` into `found`.
            let code = unsafe { function(of, &raw mut found) };
            check(code, doing)?;
            u32::try_from(found).map_err(|_| lacks("that gives a number"))
        };
        let (rank, world_size, size) = (
            ask(rank, handles.world, "asking for the rank")?,
            ask(size, world, "asking for the number of all processes")?,
            ask(size, handles.world, "asking for the size")?,
        );
        check_rank(rank, size)?;
        Ok(Self {
            rank,
            size,
            world_size,
            handles,
            all_gather,
            abort,
            put: HashSet::new(),
            fresh: Vec::new(),
            values: HashMap::new(),
        })
    }

    /// Returns the number of all processes of MPI, which may be more than the job's ranks.
    pub(crate) fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Returns the kind of the program's MPI.
    pub(crate) fn library(&self) -> Library {
        library()
    }

    /// Returns the bytes of every rank, in the order of ranks. Every rank passes the same number of
    /// bytes.
    fn all_gather(&self, mine: &[u8]) -> Result<Vec<u8>, Error> {
        let len = c_int::try_from(mine.len()).map_err(|_| Error::Protocol {
            service: SERVICE,
            doing: "exchanging the values of the ranks".into(),
            got: format!("{} bytes of one rank", mine.len()),
        })?;
        let mut all = vec![0_u8; mine.len() * self.size as usize];
        let MpiHandles { world, byte } = self.handles;
        // SAFETY: MPI is initialized. Each rank passes `len` bytes, and `all` has room for `len`
        // bytes of each rank.
        let code = unsafe {
            (self.all_gather)(
                mine.as_ptr().cast(),
                len,
                byte,
                all.as_mut_ptr().cast(),
                len,
                byte,
                world,
            )
        };
        check(code, "exchanging the values of the ranks")?;
        Ok(all)
    }
}

fn check(code: c_int, doing: &str) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::Refused {
        service: SERVICE,
        doing: doing.into(),
        why: format!("error {code}"),
    })
}

impl Bootstrap for Mpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        check_value(key, value)?;
        if !self.put.insert(key.into()) {
            return Err(Error::KeyTaken { key: key.into() });
        }
        self.fresh.push((key.into(), value.into()));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Error> {
        let broken = |got: String| Error::Protocol {
            service: SERVICE,
            doing: "exchanging the values of the ranks".into(),
            got,
        };
        let unreadable = |cause: postcard::Error| broken(cause.to_string());
        let mut mine = postcard::to_stdvec(&std::mem::take(&mut self.fresh)).map_err(unreadable)?;
        let lengths = self.all_gather(&(mine.len() as u64).to_le_bytes())?;
        let lengths: Vec<usize> = (values(&lengths))
            .map(|length: Result<u64, _>| length.unwrap_or(0) as usize)
            .collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        mine.resize(most, 0);
        let all = self.all_gather(&mine)?;
        for ((rank, theirs), length) in (0..).zip(all.chunks_exact(most)).zip(lengths) {
            let theirs = theirs
                .get(..length)
                .ok_or_else(|| broken("too few bytes".into()))?;
            let theirs: Vec<(String, Vec<u8>)> =
                postcard::from_bytes(theirs).map_err(unreadable)?;
            let theirs = theirs.into_iter();
            (self.values).extend(theirs.map(|(key, value)| ((rank, key), value)));
        }
        Ok(())
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        check_rank(from, self.size)?;
        let value = self.values.get(&(from, key.to_owned())).cloned();
        value.ok_or_else(|| Error::NoSuchKey {
            from,
            key: key.into(),
        })
    }

    fn abort(&mut self, status: i32, why: &str) {
        tracing::error!(status, why, "aborting the job through MPI");
        if is_initialized() {
            // SAFETY: MPI is initialized. The function ends the process, as intended.
            unsafe { (self.abort)(self.handles.world, status) };
        }
    }

    /// Does nothing: the program finalizes MPI itself, later.
    fn finalize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
