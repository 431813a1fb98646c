//! The contents of a batch: parts, and the steps in which they are copied.

use std::{sync::Arc, time::Instant};

use hydrant_local::{CopyStep, GrantUse};

use crate::{
    Error, Result, lent::OwnUse, opened::OpenedRegion, session::Session, state::EndpointState,
};

/// The bytes of a chunk. A copy of so many takes well below a millisecond, and so does a cancel.
const CHUNK: usize = 1 << 20;
/// The most steps of a chunk.
const CHUNK_STEPS: usize = 1024;

/// A part of a batch, in steps of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartPlan {
    pub(crate) remote: u32,
    pub(crate) how: GrantUse,
    pub(crate) first_step: u32,
    pub(crate) steps: u32,
}

/// The contents of a batch.
#[derive(Default)]
pub(crate) struct BatchPlan {
    pub(crate) parts: Vec<PartPlan>,
    pub(crate) steps: Vec<CopyStep>,
    pub(crate) remotes: Vec<Arc<OpenedRegion>>,
    pub(crate) uses: Vec<OwnUse>,
    pub(crate) bytes: u64,
    pub(crate) deadline: Option<Instant>,
    /// A message to be sent when everything is there, by the endpoint that has the connection.
    pub(crate) message: Option<(Arc<EndpointState>, Arc<Session>, Vec<u8>)>,
}

/// Steps that one thread copies at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchChunk {
    pub(crate) remote: u32,
    pub(crate) how: GrantUse,
    pub(crate) first_step: u32,
    pub(crate) steps: u32,
}

impl BatchPlan {
    /// Adds a part.
    ///
    /// # Errors
    /// As [`OpenedRegion::check`], and [`Error::Exhausted`]. Nothing is added then.
    pub(crate) fn add(
        &mut self,
        remote: &Arc<OpenedRegion>,
        how: GrantUse,
        runs: impl IntoIterator<Item = (usize, u64, usize)>,
    ) -> Result<()> {
        let plan = self;
        let (first_step, bytes_before) = (plan.steps.len(), plan.bytes);
        let mut failed = None;
        for (local, offset, len) in runs {
            if let Err(error) = remote.check(how, offset, len as u64) {
                failed = Some(error);
                break;
            }
            plan.bytes += len as u64;
            let mut done = 0;
            while done < len {
                let step = (len - done).min(CHUNK);
                plan.steps.push(CopyStep {
                    local: local + done,
                    offset: offset + done as u64,
                    len: step,
                });
                done += step;
            }
        }
        let most = u64::from(u32::MAX);
        if failed.is_none() && plan.steps.len() as u64 > most {
            failed = Some(Error::Exhausted {
                what: "runs of a batch",
                limit: most,
            });
        }
        if let Some(error) = failed {
            plan.steps.truncate(first_step);
            plan.bytes = bytes_before;
            return Err(error);
        }
        if !(plan.remotes.last()).is_some_and(|last| Arc::ptr_eq(last, remote)) {
            plan.remotes.push(Arc::clone(remote));
        }
        plan.parts.push(PartPlan {
            remote: (plan.remotes.len() - 1) as u32,
            how,
            first_step: first_step as u32,
            steps: (plan.steps.len() - first_step) as u32,
        });
        Ok(())
    }

    /// Cuts the steps into chunks. The steps of a chunk are of one remote region and one direction.
    pub(crate) fn chunks(&self) -> Vec<BatchChunk> {
        let mut chunks: Vec<BatchChunk> = Vec::new();
        let mut bytes = 0;
        for part in &self.parts {
            for step in part.first_step..part.first_step + part.steps {
                let len = self.steps[step as usize].len;
                let joins = (chunks.last()).is_some_and(|last| {
                    (last.remote, last.how) == (part.remote, part.how)
                        && bytes + len <= CHUNK
                        && (last.steps as usize) < CHUNK_STEPS
                });
                match chunks.last_mut().filter(|_| joins) {
                    Some(last) => {
                        last.steps += 1;
                        bytes += len;
                    }
                    None => {
                        chunks.push(BatchChunk {
                            remote: part.remote,
                            how: part.how,
                            first_step: step,
                            steps: 1,
                        });
                        bytes = len;
                    }
                }
            }
        }
        chunks
    }
}
