//! A rank's side of an MPI library that the program initialized before it joined.
//!
//! A launcher lets a process join once, and MPI has done that: its ranks are the job's then, and what
//! they leave for each other goes by its collectives. The library is not linked: a program that uses one
//! has its functions. Of handles, MPICH and its kin have numbers and Open MPI addresses of variables; the
//! calling conventions of Linux pass either in a whole register.
#![allow(
    unsafe_code,
    reason = "the functions of a library that the program has must be found and called by their names"
)]

use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};

use libloading::os::unix::Library as Loaded;

use crate::{Bootstrap, Error, check_key, check_rank, check_value, detect::Library};

const SERVICE: &str = "MPI";

/// `MPI_COMM_WORLD` and `MPI_BYTE` of MPICH's ABI.
const MPICH: Handles = Handles {
    world: 0x4400_0000,
    byte: 0x4c00_010d,
};

#[derive(Clone, Copy)]
struct Handles {
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
    handles: Handles,
    all_gather: AllGather,
    abort: Abort,
    put: HashSet<String>,
    /// What was put since the last fence.
    fresh: Vec<(String, Vec<u8>)>,
    /// What all put before it, by rank and key.
    values: HashMap<(u32, String), Vec<u8>>,
}

/// Whether the program has initialized MPI, and has not ended it.
pub(crate) fn is_initialized() -> bool {
    says(b"MPI_Initialized\0") && !says(b"MPI_Finalized\0")
}

/// Returns whether an MPI of MPICH's kind was begun, which may have ended since. It speaks to a launcher of PMI-1 on
/// the descriptor that is in the environment, even if others do too, and says goodbye there when it ends.
pub(crate) fn says_goodbye_over_pmi1() -> bool {
    says(b"MPI_Initialized\0") && library() == Library::Mpich
}

/// The result of a function of MPI that may be called at any time.
fn says(name: &[u8]) -> bool {
    // SAFETY: the function of that name, if there is one, has this type in every MPI.
    let function = unsafe { Loaded::this().get::<Flag>(name) };
    function.is_ok_and(|function| {
        let mut flag = 0;
        // SAFETY: the flag has room; the function may be called at any time.
        let code = unsafe { function(&raw mut flag) };
        code == 0 && flag != 0
    })
}

/// The kind of the program's MPI, if it has one.
fn library() -> Library {
    // SAFETY: only the symbol's presence is checked.
    match unsafe { Loaded::this().get::<*mut c_void>(b"ompi_mpi_comm_world\0") } {
        Ok(_) => Library::OpenMpi,
        Err(_) => Library::Mpich,
    }
}

impl Mpi {
    /// Joins through the program's MPI: all its processes, or those of a communicator. Collective over them.
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
            // SAFETY: only its address is used here.
            let found = unsafe { this.get::<*mut c_void>(name.as_bytes()) };
            found.map(|it| it.as_raw_ptr()).map_err(|_| lacks(name))
        };
        let handles = match (find("ompi_mpi_comm_world\0"), find("ompi_mpi_byte\0")) {
            (Ok(world), Ok(byte)) => Handles {
                world: world.addr(),
                byte: byte.addr(),
            },
            _ => MPICH,
        };
        let handles = Handles {
            world: communicator.unwrap_or(handles.world),
            ..handles
        };
        // SAFETY: the functions of these names have these types in every MPI.
        let (rank, size, all_gather, abort) = unsafe {
            (
                std::mem::transmute::<*mut c_void, OfRanks>(find("MPI_Comm_rank\0")?),
                std::mem::transmute::<*mut c_void, OfRanks>(find("MPI_Comm_size\0")?),
                std::mem::transmute::<*mut c_void, AllGather>(find("MPI_Allgather\0")?),
                std::mem::transmute::<*mut c_void, Abort>(find("MPI_Abort\0")?),
            )
        };
        let ask = |function: OfRanks, doing: &str| {
            let mut found = 0;
            // SAFETY: MPI is initialized, and the number has room.
            let code = unsafe { function(handles.world, &raw mut found) };
            check(code, doing)?;
            u32::try_from(found).map_err(|_| lacks("that gives a number"))
        };
        let (rank, size) = (
            ask(rank, "asking for the rank")?,
            ask(size, "asking for the size")?,
        );
        check_rank(rank, size)?;
        Ok(Self {
            rank,
            size,
            handles,
            all_gather,
            abort,
            put: HashSet::new(),
            fresh: Vec::new(),
            values: HashMap::new(),
        })
    }

    /// The kind of that MPI.
    pub(crate) fn library(&self) -> Library {
        library()
    }

    /// What every rank gave, by rank; equally many bytes of each.
    fn all_gather(&self, mine: &[u8]) -> Result<Vec<u8>, Error> {
        let len = c_int::try_from(mine.len()).map_err(|_| Error::Protocol {
            service: SERVICE,
            doing: "exchanging what ranks put".into(),
            got: format!("{} bytes of one rank", mine.len()),
        })?;
        let mut all = vec![0_u8; mine.len() * self.size as usize];
        let Handles { world, byte } = self.handles;
        // SAFETY: MPI is initialized; each rank gives `len` bytes, and there is room for all.
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
        check(code, "exchanging what ranks put")?;
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
            doing: "exchanging what ranks put".into(),
            got,
        };
        let unreadable = |cause: postcard::Error| broken(cause.to_string());
        let mut mine = postcard::to_stdvec(&std::mem::take(&mut self.fresh)).map_err(unreadable)?;
        let lengths = self.all_gather(&(mine.len() as u64).to_ne_bytes())?;
        let lengths: Vec<usize> = (lengths.chunks_exact(8))
            .map(|length| length.try_into().map_or(0, u64::from_ne_bytes) as usize)
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
            // SAFETY: MPI is initialized. It ends the process, as abort is to.
            unsafe { (self.abort)(self.handles.world, status) };
        }
    }

    /// The program ends MPI by itself, later.
    fn finalize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
