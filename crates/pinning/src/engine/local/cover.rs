//! The cover of a request's needs: registered buckets are held, buckets in flight are waited for,
//! and missing ones are registered.

use std::collections::BTreeMap;

use super::{LocalHold, LocalTable, PendingRegistration, Requester, exact_need, room::RoomAnswer};
use crate::{Decisions, Refusal, Run, wire::Need};

impl LocalTable {
    /// Holds the registered buckets of a need, and waits for or registers the rest.
    pub(super) fn cover(&mut self, id: u64, need: Need, out: &mut Decisions) {
        let Some(request) = self.requests.get(&id) else {
            return self
                .impossible
                .note("memory is looked up for a request that is over");
        };
        let (used, requester) = (request.used, request.requester);
        if let Some(beside) = self.crowd_out_beside(need.run, requester, out)
            && let Some(deregistering) = self.deregistering.get_mut(&beside.first)
        {
            deregistering.waiters.push((id, need));
            self.with_request(id, |request| request.pending += 1);
            return;
        }
        let mut bucket = need.run.first;
        while bucket < need.run.end() {
            let rest = Run {
                first: bucket,
                count: need.run.end() - bucket,
            };
            bucket = if let Some(found) = self.hold(bucket) {
                let run = cut(rest, found.end);
                let hold = LocalHold {
                    slot: found.slot,
                    run,
                    key: found.key,
                    writable: found.writable,
                };
                let new = requester.is_peer() && !self.outside.contains_key(&found.base);
                let above = self.attached + self.pledged + (found.end - found.base);
                let refused = if !self.may_share(requester, found.base)
                    || (new && above > self.peers_limit)
                {
                    Some(Refusal::Limit)
                } else {
                    (!used.is_permitted(found.writable)).then_some(Refusal::ReadOnly)
                };
                match refused {
                    Some(_) if self.waits_for_transient(requester, found.base) => {
                        self.editor.drop_reference(found.slot);
                        self.with_request(id, |request| request.restart = true);
                    }
                    None => self.with_request(id, |request| request.holds.push(hold)),
                    Some(why) => {
                        self.editor.drop_reference(found.slot);
                        self.with_request(id, |request| request.refused.push((run, why)));
                    }
                }
                run.end()
            } else if let Some(slot) = self.editor.get(bucket) {
                // The extent is closed, or all its references are in use.
                let extent = self.editor.extent(slot);
                let run = cut(rest, extent.end);
                let waits = self.waits_for_transient(requester, extent.base);
                self.with_request(id, |request| {
                    if waits {
                        request.restart = true
                    } else {
                        request.refused.push((run, Refusal::Limit))
                    }
                });
                run.end()
            } else if let Some(registering) = at(&mut self.registering, bucket, |registering| {
                registering.preferred
            }) {
                let run = cut(rest, registering.preferred.end());
                registering.waiters.push((id, run));
                self.with_request(id, |request| request.pending += 1);
                run.end()
            } else if let Some(deregistering) =
                at(&mut self.deregistering, bucket, |deregistering| {
                    deregistering.run
                })
            {
                let run = cut(rest, deregistering.run.end());
                deregistering.waiters.push((id, exact_need(run)));
                self.with_request(id, |request| request.pending += 1);
                run.end()
            } else {
                // Much memory takes many extents. Each looks no further than it reaches.
                let gap = self.gap(cut(rest, rest.first + self.widest(requester)));
                let end = if gap.end() == need.run.end() {
                    need.preferred.end()
                } else {
                    gap.end()
                };
                let preferred = self.gap(Run {
                    first: gap.first,
                    count: end - gap.first,
                });
                self.register_gap(id, requester, gap, preferred, out)
            };
        }
    }

    /// Registers a gap, as far as one extent goes. Returns the end of that part.
    fn register_gap(
        &mut self,
        id: u64,
        requester: Requester,
        gap: Run,
        preferred: Run,
        out: &mut Decisions,
    ) -> u64 {
        let most = self.widest(requester);
        let gap = cut(gap, gap.first + most);
        let mut preferred = cut(preferred, preferred.first + most);
        self.crowd_out(preferred.count, (id, requester), out);
        let mut room = self.make_room(preferred.count, requester, out);
        if !matches!(room, RoomAnswer::Yes) && preferred.count > gap.count {
            preferred = gap;
            room = self.make_room(preferred.count, requester, out);
        }
        match room {
            RoomAnswer::Yes => {
                self.planned += preferred.count;
                let pledged = matches!(requester, Requester::Move(_) | Requester::Pin(_));
                if pledged {
                    self.pledged += preferred.count;
                }
                self.with_request(id, |request| request.pending += 1);
                self.stats.ahead += u64::from(requester.is_ahead());
                let name = self.next_id();
                self.await_registration(
                    PendingRegistration {
                        id: name,
                        need: gap,
                        preferred,
                        waiters: vec![(id, gap)],
                        started: false,
                        retried: false,
                        pledged,
                        transient: requester.is_transient(),
                        outdated: false,
                    },
                    out,
                );
            }
            room => self.with_request(id, |request| match room {
                RoomAnswer::Later if request.waits => request.restart = true,
                _ => request.refused.push((gap, Refusal::Limit)),
            }),
        }
        gap.end()
    }

    /// The most buckets of an extent for a requester.
    fn widest(&self, requester: Requester) -> u64 {
        match requester {
            Requester::Move(_) => self.limits.max_extent,
            Requester::Pin(_) | Requester::Background(_) => self.limits.chunk,
            _ => self.limits.max_extent.min(self.limits.victims),
        }
    }

    /// Takes a reference on the extent of a bucket, if there is one. A reader may miss a present
    /// bucket only while another thread changes the table, and this is the only one that does.
    fn hold(&mut self, bucket: u64) -> Option<crate::table::FoundBucket> {
        self.editor.table().acquire(bucket)
    }

    /// The buckets of a run, from its first on, that are neither registered nor in flight.
    fn gap(&self, run: Run) -> Run {
        let mut end = self.piece_end(run);
        for next in [
            self.registering
                .range(run.first..)
                .next()
                .map(|(first, _)| *first),
            self.deregistering
                .range(run.first..)
                .next()
                .map(|(first, _)| *first),
        ] {
            end = end.min(next.unwrap_or(end));
        }
        let mut count = 1;
        while run.first + count < end && self.editor.get(run.first + count).is_none() {
            count += 1;
        }
        Run {
            first: run.first,
            count,
        }
    }
}

/// The part of a run before `end`.
fn cut(run: Run, end: u64) -> Run {
    Run {
        first: run.first,
        count: run.count.min(end - run.first),
    }
}

/// The entry whose run has the bucket, of a map by first bucket.
fn at<T>(map: &mut BTreeMap<u64, T>, bucket: u64, run: impl Fn(&T) -> Run) -> Option<&mut T> {
    let (_, entry) = map.range_mut(..=bucket).next_back()?;
    (bucket < run(entry).end()).then_some(entry)
}
