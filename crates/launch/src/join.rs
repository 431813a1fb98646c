//! Joining the job that this process belongs to.

use crate::alone::Alone;
use crate::detect::{
    FoundService, detect, process_environment, refuse_stranger, without_outer_pmi1,
};
use crate::mpi::{self, Mpi};
use crate::pmi1::{self, Pmi1};
use crate::pmix::Pmix;
use crate::{Bootstrap, BootstrapKind, Error, JoinOptions};

/// Joins the job through `kind`, with the other options at their defaults.
pub fn join(kind: BootstrapKind) -> Result<Box<dyn Bootstrap>, Error> {
    join_with(&JoinOptions {
        kind,
        ..JoinOptions::default()
    })
}

/// Joins the job as `options` say.
pub fn join_with(options: &JoinOptions) -> Result<Box<dyn Bootstrap>, Error> {
    let asked = options.kind == BootstrapKind::Mpi || options.mpi_communicator.is_some();
    if asked || (options.kind == BootstrapKind::Auto && mpi::is_initialized()) {
        // MPI has joined already, even for a job of one. It also ends the session on its
        // descriptor.
        let mpi = Mpi::init(options.mpi_communicator)?;
        if mpi.world_size() == 1 && options.kind != BootstrapKind::Alone {
            let lookup = without_outer_pmi1(process_environment, pmi1::is_open);
            refuse_stranger(mpi.library(), lookup)?;
        }
        return Ok(Box::new(mpi));
    }
    let found = if options.kind == BootstrapKind::Auto {
        let lookup = without_outer_pmi1(process_environment, pmi1::is_open);
        detect(options.kind, lookup)?
    } else {
        detect(options.kind, process_environment)?
    };
    tracing::debug!(?found, "joining");
    Ok(match found {
        FoundService::Alone => Box::new(Alone::default()),
        FoundService::Pmi1Fd { fd, rank, size } => {
            Box::new(Pmi1::inherited(fd, rank, size, options)?)
        }
        FoundService::Pmi1Port { address, id } => Box::new(Pmi1::connect(&address, id, options)?),
        FoundService::Pmix => Box::new(Pmix::init(options)?),
    })
}
