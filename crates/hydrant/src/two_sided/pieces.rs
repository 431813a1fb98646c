//! Messages in pieces: a message longer than the payload of an active message is sent at once in
//! several of them, without an announcement and a clear. That is faster where the network copies
//! the bytes in any case.
//!
//! One call sends all pieces of a message in order. Pieces of messages of other threads may arrive
//! between them, so the number of the message at its sender tells them apart. The whole message is
//! charged to its sender's credit with the first piece. So memory is bounded even if a peer ends no
//! message.
//!
//! If a posted receive fits with the first piece, the pieces are copied into its buffer. Otherwise
//! they are collected, and the message is matched once it is complete. Both keep the order of the
//! messages of one thread, because a later message follows the last piece of an earlier one.

#![allow(unsafe_code)] // copies into the buffers of receives

use std::{collections::hash_map::Entry, sync::Arc};

use smallvec::SmallVec;

use super::{
    MessageRequest, PostedReceive, TwoSided, Unexpected,
    direct::Direct,
    incoming::{NO_CREDIT, RESERVED, envelope},
    receive::{copy_into, status},
};
use crate::Rank;

const TOO_LONG: &str = "more of a message than its announced length";
const ANOTHER: &str = "pieces of two messages under one number";

/// A message of which some pieces are here.
pub(super) struct Assembly {
    tag: u64,
    len: u64,
    awaited: bool,
    /// Bytes of the pieces that are here.
    landed: u64,
    place: AssemblyPlace,
}

/// The place of the pieces.
enum AssemblyPlace {
    /// The buffer of a receive that fitted with the first piece.
    Posted(PostedReceive),
    /// The memory for unexpected messages.
    Memory(Vec<u8>),
}

impl Assembly {
    /// Returns the request of the receive, if there is one.
    pub(super) fn into_request(self) -> Option<Arc<MessageRequest>> {
        match self.place {
            AssemblyPlace::Posted(posted) => Some(posted.request),
            AssemblyPlace::Memory(_) => None,
        }
    }

    /// Copies the next piece to its place.
    ///
    /// # Safety
    /// 1. The request of the receive is open, if there is one.
    /// 2. The piece is no longer than the rest of the message.
    unsafe fn add(&mut self, data: &[u8]) {
        match &mut self.place {
            AssemblyPlace::Posted(posted) => {
                // SAFETY: 1. The buffer stays while the request is open (1), and the receive is in
                // no other table. 2. The buffer has room for the message, as was matched, and so
                // for this piece (2).
                unsafe { copy_into(posted.buffer, self.landed as usize, data) };
            }
            AssemblyPlace::Memory(bytes) => bytes.extend_from_slice(data),
        }
        self.landed += data.len() as u64;
    }
}

impl TwoSided {
    /// Handles a piece of a message with this tag, number and length. The sender may wait for the
    /// receive.
    pub(super) fn handle_piece(
        &self,
        from: Rank,
        (tag, send, len, awaited): (u64, u64, u64, bool),
        data: &[u8],
        direct: Option<&mut Direct<'_>>,
    ) -> Result<(), &'static str> {
        if tag > super::MAX_TAG {
            return Err(RESERVED);
        }
        let (envelope, bytes) = (envelope(from, tag), data.len() as u64);
        let mut short = None;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let peer = state.peers[from.index()].get_or_insert_default();
        let mut entry = match peer.assemblies.entry(send) {
            Entry::Occupied(entry) => {
                let known = entry.get();
                if (known.tag, known.len, known.awaited) != (tag, len, awaited) {
                    return Err(ANOTHER);
                }
                if bytes > len - known.landed {
                    return Err(TOO_LONG);
                }
                entry
            }
            Entry::Vacant(entry) => {
                if bytes > len {
                    return Err(TOO_LONG);
                }
                if !peer.account.charge(len) {
                    return Err(NO_CREDIT);
                }
                let place = match state.matching.take_fitting(envelope, len, &mut short) {
                    Some(posted) => AssemblyPlace::Posted(posted),
                    None => AssemblyPlace::Memory(Vec::with_capacity(len as usize)),
                };
                entry.insert_entry(Assembly {
                    tag,
                    len,
                    awaited,
                    landed: 0,
                    place,
                })
            }
        };
        // SAFETY: 1. The request ends with this entry, under this lock. 2. Both cases above have
        // compared the lengths.
        unsafe { entry.get_mut().add(data) };
        let is_whole = entry.get().landed == len;
        let place = is_whole.then(|| entry.remove().place);
        match place {
            None => {
                drop(guard);
                self.check_for_ended_peers();
            }
            Some(AssemblyPlace::Posted(posted)) => {
                let credit = peer.account.release(len);
                drop(guard);
                let status = status(envelope, len as usize);
                posted.request.end(&self.progress, Ok(status));
                self.tell_taken(from, credit, if awaited { send } else { 0 });
            }
            Some(AssemblyPlace::Memory(data)) => {
                drop(guard);
                if let Some(direct) = direct {
                    direct.note_kept(envelope);
                }
                let data = SmallVec::from_vec(data);
                let send = if awaited { send } else { 0 };
                self.match_message(envelope, Unexpected::Here { data, send });
            }
        }
        self.fail_short(envelope, len, short);
        Ok(())
    }
}
