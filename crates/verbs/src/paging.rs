//! On-demand paging, tried before it is used.
//!
//! Soft-RoCE of Linux 7.2 says that it pages on demand, and ignores the offset within a page (`rxe_odp_mr_copy`). Data of
//! an access that does not begin at a page lands beside its place. So a device first moves a few bytes from one paged
//! region to another.

#![allow(unsafe_code)] // posts work; fills and reads memory that the NIC uses

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use bytemuck::Zeroable;
use hydrant_conduit::memory::PAGE;

use crate::{
    address::EndpointAddress,
    device::Port,
    ffi,
    nic::{
        CompletionChannel, CompletionQueue, ConnectAttributes, Nic, NicBuffer, QueuePair,
        RequestBatch, SharedQueue, WorkRequest, blank,
    },
};

/// How long the device may take for an access of the trial.
const PATIENCE: Duration = Duration::from_secs(5);
/// The acknowledgement timeout of the trial.
const ACK_TIMEOUT: u8 = 14;
/// The bytes of an access of the trial.
const BYTES: usize = 64;
/// The places of the trial's accesses, here and there. Each pair has an offset within a page, and one crosses a page.
const PLACES: [[usize; 2]; 3] = [[0, 8], [PAGE - 24, 0], [100, PAGE - 24]];

/// Opens the device of a port. If memory is to be paged `on_demand`, the device is tried. Returns the reason why memory is
/// pinned instead, if it is.
pub(crate) fn open(port: Port, on_demand: bool) -> io::Result<(Arc<Nic>, Option<String>)> {
    let mut nic = Nic::open(port)?;
    if !on_demand {
        return Ok((nic, None));
    }
    let refused = match nic.limits.no_paging() {
        Some(why) => Some(why.to_owned()),
        None => try_out(&nic).err(),
    };
    if refused.is_none() {
        // Nothing of the trial is left.
        let alone = Arc::get_mut(&mut nic).ok_or(io::ErrorKind::ResourceBusy)?;
        alone.on_demand = true;
    }
    Ok((nic, refused))
}

/// Moves data between two regions that are paged on demand, and looks at it.
fn try_out(nic: &Arc<Nic>) -> Result<(), String> {
    let failed = |cause: io::Error| format!("its on-demand paging does not work: {cause}");
    let trial = PagingTrial::new(nic).map_err(failed)?;
    for opcode in [ffi::IBV_WR_RDMA_WRITE, ffi::IBV_WR_RDMA_READ] {
        for places in PLACES {
            if !trial.moves(opcode, places).map_err(failed)? {
                return Err(
                    "its on-demand paging puts data in the wrong place, as soft-RoCE of Linux 7.2 does"
                        .to_owned(),
                );
            }
        }
    }
    Ok(())
}

/// Two queue pairs of one device that are connected with each other, and the memory of either side.
struct PagingTrial {
    /// Dropped before the memory.
    pairs: [QueuePair; 2],
    queue: Arc<CompletionQueue>,
    here: NicBuffer,
    there: NicBuffer,
}

impl PagingTrial {
    fn new(nic: &Arc<Nic>) -> io::Result<Self> {
        let channel = CompletionChannel::new(nic)?;
        let queue = CompletionQueue::new(&channel, 4)?;
        let shared = Arc::new(SharedQueue::new(nic, 1)?);
        let pair = || QueuePair::connected(nic, &queue, &queue, &shared, 2, 0);
        let pairs = [pair()?, pair()?];
        let address = &EndpointAddress {
            gid: nic.port.gid,
            mtu: nic.port.mtu,
            lid: nic.port.lid,
            reads: nic.limits.reads_answered.into(),
            ..EndpointAddress::zeroed()
        };
        for (pair, other) in [(0, 1), (1, 0)] {
            pairs[pair].connect(&ConnectAttributes {
                address,
                number: pairs[other].number,
                psn: 0,
                timeout: ACK_TIMEOUT,
            })?;
        }
        Ok(Self {
            pairs,
            queue,
            here: NicBuffer::paged(nic, 2 * PAGE)?,
            there: NicBuffer::paged(nic, 2 * PAGE)?,
        })
    }

    /// Moves some bytes between a place here and one there. Returns whether they arrived, and nothing else changed.
    fn moves(&self, opcode: ffi::ibv_wr_opcode, [here, there]: [usize; 2]) -> io::Result<bool> {
        let is_write = opcode == ffi::IBV_WR_RDMA_WRITE;
        let (from, to) = if is_write {
            ((&self.here, here), (&self.there, there))
        } else {
            ((&self.there, there), (&self.here, here))
        };
        let sent: Vec<u8> = (0..2 * PAGE).map(|at| (at * 7 + at / PAGE) as u8).collect();
        fill(from.0, &sent);
        fill(to.0, &[0; 2 * PAGE]);
        self.access(opcode, here, there)?;
        let mut expected = vec![0; 2 * PAGE];
        expected[to.1..][..BYTES].copy_from_slice(&sent[from.1..][..BYTES]);
        Ok(content(to.0) == expected)
    }

    fn access(&self, opcode: ffi::ibv_wr_opcode, here: usize, there: usize) -> io::Result<()> {
        let mut batch = RequestBatch::new();
        batch.push(&WorkRequest {
            id: 0,
            opcode,
            addr: self.here.at(here, BYTES).expose_provenance() as u64,
            len: BYTES as u32,
            lkey: self.here.lkey(),
            remote: self.there.at(there, BYTES).expose_provenance() as u64,
            rkey: self.there.rkey(),
            inline: false,
            operands: None,
            immediate: 0,
        });
        batch.signal_last();
        // SAFETY: 1. Both buffers are registered under their keys as long as `self`, whose queue pairs are dropped
        // first. 2. Nobody else uses them before the completion.
        unsafe { self.pairs[0].post(&mut batch) }?;
        let (since, mut completion) = (Instant::now(), [blank()]);
        while self.queue.poll(&mut completion) == 0 {
            if since.elapsed() > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
        match completion[0].status {
            ffi::IBV_WC_SUCCESS => Ok(()),
            status => Err(io::Error::other(format!(
                "an access failed with status {status}"
            ))),
        }
    }
}

fn fill(buffer: &NicBuffer, bytes: &[u8]) {
    let to = buffer.at(0, bytes.len());
    // SAFETY: `at` checked the bounds, and the NIC has no access in flight.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn content(buffer: &NicBuffer) -> Vec<u8> {
    let mut bytes = vec![0; 2 * PAGE];
    let from = buffer.at(0, bytes.len());
    // SAFETY: `at` checked the bounds, and the NIC has no access in flight.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    bytes
}
