//! The access that has ended when the call that posts it returns, told by nothing else.
//!
//! Who posts it takes completions alone meanwhile. Then a hit on a lane where nothing is under way
//! needs no entry in the queue of what is, and no second look at the lane.

use std::{io, sync::atomic::Ordering::Relaxed};

use super::{Access, Lane, Posted, Roads, State, Work, id, post_one};
use crate::ffi;

/// What became of it.
pub(crate) enum Alone {
    Done,
    /// It is under way: the name of its completion.
    UnderWay(u64),
    /// It is under way, and a completion was taken that may be of something else, or a failure.
    Unclear,
    /// The NIC does not take it.
    Refused(io::Error),
}

impl Lane {
    /// Whether nothing is under way but messages of which nobody is told, and there is room.
    #[inline(always)]
    pub(crate) fn is_free(&self, roads: &Roads) -> bool {
        self.state == State::Ready
            && self.posted.len() == self.silent
            && self.queue.is_empty()
            && self.posted.len() < roads.depth
            && roads.posted.load(Relaxed) < roads.most_posted
    }

    /// Posts an access on a lane that [is free](Self::is_free), and looks once what has ended:
    /// `look` takes one completion. It is not counted among what is posted, so the completions have
    /// room for one more than may be counted; unless it is done, [`not_alone`](Self::not_alone)
    /// makes up for that.
    #[inline(always)]
    pub(crate) fn post_alone(
        &mut self,
        roads: &Roads,
        access: &Access,
        look: impl FnOnce() -> Option<ffi::ibv_wc>,
    ) -> Alone {
        let Some(pair) = &self.pair else {
            return Alone::Refused(io::ErrorKind::NotConnected.into());
        };
        let number = self.first.wrapping_add(self.posted.len() as u32);
        let id = id(self.peer, self.epoch, number);
        let became = match post_one(pair, &access.request(id, pair), true) {
            Err(cause) => Alone::Refused(cause),
            Ok(()) => match look() {
                Some(it) if it.wr_id == id && it.status == ffi::IBV_WC_SUCCESS => Alone::Done,
                Some(_) => Alone::Unclear,
                None => Alone::UnderWay(id),
            },
        };
        if matches!(became, Alone::Done) {
            self.count_packets(access.len);
            if self.silent > 0 {
                self.messages_done(roads);
            }
            self.first = number.wrapping_add(1);
            self.unsent = 0;
        }
        became
    }

    /// It is to be waited for like any other.
    #[cold]
    pub(crate) fn not_alone(&mut self, roads: &Roads, access: Access, became: &Alone) {
        self.under_way(roads, Work::Access(access));
        self.silent = 0;
        if matches!(became, Alone::Refused(_)) {
            self.close(roads);
        }
    }

    /// All that was posted before are messages, and they are done.
    fn messages_done(&mut self, roads: &Roads) {
        let count = self.posted.len() as u32;
        for Posted { work, .. } in self.posted.drain(..) {
            if let Work::Send { slot, .. } = work {
                roads.slots.give_back(slot);
            }
        }
        self.silent = 0;
        roads.posted.fetch_sub(count, Relaxed);
    }
}
