//! The transfer of the tasks of one submission: their targets are looked up, and one batch of the endpoint copies all.

#![allow(unsafe_code)] // hands memory of C to copies

use std::{collections::BTreeMap, sync::Arc};

use hydrant_endpoint::{Batch, RemoteRegion};

use crate::{
    batches::{StartedTransfer, TransferParts},
    core::EngineCore,
    failure::Result,
    segments::{Freshness, PeerSegment, SegmentLink},
    wire::{MessageBody, MooncakeMessage},
};

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskOpcode {
    Read,
    Write,
}

/// A task, after its check.
pub(crate) struct TransferTask {
    pub(crate) opcode: TaskOpcode,
    pub(crate) source: *mut u8,
    pub(crate) target: Arc<PeerSegment>,
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// Begins the transfer of tasks, with a notification for the first task's target behind it.
///
/// # Errors
/// The index of the first task whose target cannot be used, and the sentence. Nothing is transferred then.
///
/// # Safety
/// 1. Until the transfer is over, the memory of each task stays valid, writable for reads and readable for writes.
///    Nobody holds a reference to it.
pub(crate) unsafe fn begin(
    core: &EngineCore,
    tasks: &[TransferTask],
    notification: Option<(&[u8], &[u8])>,
) -> Result<StartedTransfer, (usize, String)> {
    let mut batch = Batch::new();
    let mut places = TransferPlaces::new(core);
    let has_empty = tasks.iter().any(|task| task.len == 0);
    let mut before = Vec::with_capacity(if has_empty { tasks.len() } else { 0 });
    for (index, task) in tasks.iter().enumerate() {
        if has_empty {
            before.push(batch.len() as u32);
        }
        if task.len > 0 {
            let failed = |text: String| (index, text);
            let (remote, offset) = places
                .find(&task.target, task.addr, task.len)
                .map_err(|failure| failed(failure.text))?;
            let len = task.len as usize;
            let added = match task.opcode {
                // SAFETY: 1. the caller's condition 1.
                TaskOpcode::Write => unsafe { batch.write_raw(remote, offset, task.source, len) },
                // SAFETY: 1. the caller's condition 1.
                TaskOpcode::Read => unsafe { batch.read_raw(remote, offset, task.source, len) },
            };
            added.map_err(|cause| failed(cause.to_string()))?;
        }
    }
    if let (Some((name, text)), Some(first)) = (notification, tasks.first()) {
        let body = MessageBody::Notify { name, text };
        let message = MooncakeMessage { request: 0, body }.to_bytes();
        let said = (places.link(&first.target))
            .and_then(|link| Ok(batch.message(&link.peer, &message).map(drop)?));
        said.map_err(|failure| (0, failure.text))?;
    }
    let handle = batch.start().map_err(|cause| (0, cause.to_string()))?;
    let parts = match has_empty {
        true => TransferParts::Some(before.into()),
        false => TransferParts::All,
    };
    Ok(StartedTransfer { handle, parts })
}

/// The targets of a submission, each of which is looked up once.
struct TransferPlaces<'a> {
    core: &'a EngineCore,
    links: BTreeMap<i32, Arc<SegmentLink>>,
    /// By the segment and the first byte.
    regions: BTreeMap<(i32, u64), RemoteRegion>,
    /// The last one that was used.
    last: Option<(i32, u64, RemoteRegion)>,
}

impl<'a> TransferPlaces<'a> {
    fn new(core: &'a EngineCore) -> Self {
        Self {
            core,
            links: BTreeMap::new(),
            regions: BTreeMap::new(),
            last: None,
        }
    }

    fn link(&mut self, segment: &PeerSegment) -> Result<Arc<SegmentLink>> {
        if let Some(link) = self.links.get(&segment.number) {
            return Ok(Arc::clone(link));
        }
        let link = segment.link(self.core, Freshness::Cached)?;
        self.links.insert(segment.number, Arc::clone(&link));
        Ok(link)
    }

    /// Returns the registered memory of a range, and the offset there.
    fn find(&mut self, segment: &PeerSegment, addr: u64, len: u64) -> Result<(&RemoteRegion, u64)> {
        let has = |start: u64, remote: &RemoteRegion| {
            let end = addr.checked_sub(start).and_then(|at| at.checked_add(len));
            end.is_some_and(|end| end <= remote.len())
        };
        let number = segment.number;
        let is_last = (self.last.as_ref())
            .is_some_and(|(its, start, remote)| *its == number && has(*start, remote));
        if !is_last {
            let known = self.regions.range(..=(number, addr)).next_back();
            let known =
                known.filter(|((its, start), remote)| *its == number && has(*start, remote));
            let (start, remote) = match known {
                Some(((_, start), remote)) => (*start, remote.clone()),
                None => {
                    let link = self.link(segment)?;
                    let (start, remote) = link.region(self.core, addr, len)?;
                    self.regions.insert((number, start), remote.clone());
                    (start, remote)
                }
            };
            self.last = Some((number, start, remote));
        }
        let (_, start, remote) = self.last.as_ref().expect("it was set above");
        Ok((remote, addr - start))
    }
}
