//! Hits: finding both sides of an operation, holding them, and giving them back.

use super::Hot;
use crate::{
    Direction, Use,
    announcements::{OwnPlace, PlacePosition},
    sync::Ordering::Relaxed,
    table::{BucketTable, Likely, SeenRecord},
};

/// Both sides of an operation, held by the thread that posts it. The thread gives them back after
/// the operation, or [keeps](Self::keep) them.
#[derive(Clone, Copy, Debug)]
#[must_use = "the references are given back by Hot::release"]
pub struct Hit<'a> {
    /// The key of the peer's extent.
    pub remote_key: u64,
    /// The key of the own extent.
    pub local_key: u64,
    peer: u32,
    /// At least one of the two sides is there.
    remote: Option<SeenRecord<'a>>,
    local: Option<SeenRecord<'a>>,
    /// The announcement of both sides, or `None` if references are counted.
    place: Option<OwnPlace<'a>>,
}

/// Both sides of an operation, held while the operation is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the references are given back by Hot::release_kept"]
pub struct KeptHit {
    /// The peer.
    pub peer: u32,
    /// The key of the peer's extent.
    pub remote_key: u64,
    /// The key of the own extent.
    pub local_key: u64,
    pub(crate) remote_slot: u32,
    local_slot: u32,
    /// The announcement of both sides, or `None` if references are counted.
    place: Option<PlacePosition>,
}

/// The key of a side that needs no registration.
const NO_KEY: u64 = u64::MAX;
/// The slot of a side that needs no record.
const NO_SLOT: u32 = u32::MAX;
/// The peer of a hit on own memory alone.
const NOBODY: u32 = u32::MAX;

impl<'a> Hit<'a> {
    #[inline(always)]
    fn of_both(
        peer: u32,
        (remote, local): (SeenRecord<'a>, SeenRecord<'a>),
        place: Option<OwnPlace<'a>>,
    ) -> Self {
        Hit {
            remote_key: remote.key(),
            local_key: local.key(),
            peer,
            remote: Some(remote),
            local: Some(local),
            place,
        }
    }

    /// Returns a copy that any thread may give back later.
    #[inline]
    pub fn keep(&self) -> KeptHit {
        KeptHit {
            peer: self.peer,
            remote_key: self.remote_key,
            local_key: self.local_key,
            remote_slot: self.remote.map_or(NO_SLOT, SeenRecord::slot),
            local_slot: self.local.map_or(NO_SLOT, SeenRecord::slot),
            place: self.place.map(OwnPlace::keep),
        }
    }
}

impl KeptHit {
    /// The slot of the own side, if this hit holds one.
    pub(crate) fn local_slot(&self) -> Option<u32> {
        (self.local_slot != NO_SLOT).then_some(self.local_slot)
    }
}

/// Both sides of an operation, and its announcement if no references are counted.
type HeldSides<'a> = (SeenRecord<'a>, SeenRecord<'a>, Option<OwnPlace<'a>>);

/// Announces both sides. Returns true if they are held, and else clears the announcement.
#[inline(always)]
fn announce_both(
    place: OwnPlace<'_>,
    sides: (SeenRecord<'_>, SeenRecord<'_>),
    remote: (u64, u64),
    local: (u64, u64),
    direction: Direction,
) -> bool {
    place.announce(sides.0.name(), sides.1.name());
    let holds = (sides.0).confirm(remote.0, remote.1, direction.remote())
        && (sides.1).confirm(local.0, local.1, direction.local());
    if !holds {
        place.clear();
    }
    holds
}

impl Hot {
    /// Finds both sides registered under one key each, and holds them. After a miss, call
    /// [`Engine::begin`](crate::Engine::begin). The miss may have held one side for a moment that
    /// another operation waits for, and only the engine makes up for that.
    #[inline]
    pub fn hit(
        &self,
        peer: u32,
        remote: u64,
        local: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        if self.turned.load(Relaxed) != 0 {
            return None;
        }
        self.both(peer, remote, local, len, direction)
    }

    /// As [`hit`](Self::hit), for an operation that has asked.
    pub fn hit_unless_crowded(
        &self,
        peer: u32,
        remote: u64,
        local: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        if self.is_crowded() {
            return None;
        }
        self.both(peer, remote, local, len, direction)
    }

    #[inline(always)]
    fn both(
        &self,
        peer: u32,
        remote: u64,
        local: u64,
        len: u64,
        direction: Direction,
    ) -> Option<Hit<'_>> {
        let remote = self.buckets(remote, len)?;
        let local = self.span(local, len)?;
        let table = self.peer(peer)?;
        'likely: {
            let remote_side = match table.seek(remote.0) {
                Likely::Record(side) => side,
                Likely::Missing => return None,
                Likely::Elsewhere => break 'likely,
            };
            let local_side = match self.local.seek(local.0) {
                Likely::Record(side) => side,
                Likely::Missing => return None,
                Likely::Elsewhere => break 'likely,
            };
            let Some(place) = self.announcements.free_place() else {
                break 'likely;
            };
            let sides = (remote_side, local_side);
            if announce_both(place, sides, remote, local, direction) {
                return Some(Hit::of_both(peer, sides, Some(place)));
            }
            if self.note_missed(peer, Some(remote_side), Some(local_side)) {
                return None;
            }
        }
        let (remote_side, local_side, place) =
            self.both_searched((peer, table), remote, local, direction)?;
        Some(Hit::of_both(peer, (remote_side, local_side), place))
    }

    /// Searches for the right records, where the likely ones were others', and counts references
    /// where there is no place for an announcement.
    #[cold]
    #[inline(never)]
    fn both_searched<'a>(
        &'a self,
        (peer, table): (u32, &'a BucketTable),
        remote: (u64, u64),
        local: (u64, u64),
        direction: Direction,
    ) -> Option<HeldSides<'a>> {
        let sides = (table.search(remote.0)?, self.local.search(local.0)?);
        let Some(place) = self.announcements.free_place() else {
            return self.both_counted(table, sides, remote, local, direction);
        };
        if announce_both(place, sides, remote, local, direction) {
            return Some((sides.0, sides.1, Some(place)));
        }
        self.note_missed(peer, Some(sides.0), Some(sides.1));
        None
    }

    /// Notes the records of an announcement that held nothing, if the engine waits for them. They
    /// may be other memory's by now, so the engine would not look at them when the miss reaches it.
    /// Returns true if it noted some: then the operation is a miss, because only a miss leads to the
    /// engine.
    #[cold]
    fn note_missed(
        &self,
        peer: u32,
        remote: Option<SeenRecord<'_>>,
        local: Option<SeenRecord<'_>>,
    ) -> bool {
        let awaited = |side: &SeenRecord<'_>| side.is_awaited();
        let (remote, local) = (remote.filter(awaited), local.filter(awaited));
        if remote.is_none() && local.is_none() {
            return false;
        }
        self.add_missed(KeptHit {
            peer: if remote.is_some() { peer } else { NOBODY },
            remote_key: NO_KEY,
            local_key: NO_KEY,
            remote_slot: remote.map_or(NO_SLOT, SeenRecord::slot),
            local_slot: local.map_or(NO_SLOT, SeenRecord::slot),
            place: None,
        });
        true
    }

    /// Counts references to both sides, where there is no place for an announcement.
    fn both_counted<'a>(
        &'a self,
        table: &'a BucketTable,
        sides: (SeenRecord<'a>, SeenRecord<'a>),
        remote: (u64, u64),
        local: (u64, u64),
        direction: Direction,
    ) -> Option<HeldSides<'a>> {
        (sides.0).count(table, remote.0, remote.1, direction.remote())?;
        let held = (sides.1).count(&self.local, local.0, local.1, direction.local());
        if held.is_none() {
            // The engine serves the waiter of this side when the miss reaches it.
            let _ = table.release(sides.0.slot());
            return None;
        }
        Some((sides.0, sides.1, None))
    }

    /// As [`hit`](Self::hit), for a put with inline data: it holds the remote side alone. The local
    /// key is the key of no extent.
    #[inline]
    pub fn hit_remote(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        if self.turned.load(Relaxed) != 0 {
            return None;
        }
        self.far_side(peer, remote, len)
    }

    /// As [`hit_remote`](Self::hit_remote), for an operation that has asked, or that has no other
    /// route.
    pub fn hit_remote_unless_crowded(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        if self.is_crowded() {
            return None;
        }
        self.far_side(peer, remote, len)
    }

    #[inline(always)]
    fn far_side(&self, peer: u32, remote: u64, len: u64) -> Option<Hit<'_>> {
        let buckets = self.buckets(remote, len)?;
        let (remote_side, place) = self.one_side((peer, self.peer(peer)?), buckets)?;
        Some(Hit {
            remote_key: remote_side.key(),
            local_key: NO_KEY,
            peer,
            remote: Some(remote_side),
            local: None,
            place,
        })
    }

    /// Holds one record for writing, of a peer or of own memory. Returns it and its announcement, if
    /// no reference is counted.
    #[inline(always)]
    fn one_side<'a>(
        &'a self,
        (peer, table): (u32, &'a BucketTable),
        (first, last): (u64, u64),
    ) -> Option<(SeenRecord<'a>, Option<OwnPlace<'a>>)> {
        let side = match table.seek(first) {
            Likely::Record(side) => side,
            Likely::Missing => return None,
            Likely::Elsewhere => return self.one_side_searched((peer, table), (first, last)),
        };
        if let Some(place) = self.announcements.free_place() {
            place.announce_one(side.name());
            if side.confirm(first, last, Use::Write) {
                return Some((side, Some(place)));
            }
            place.clear();
            if self.note_missed_side(peer, side) {
                return None;
            }
        }
        self.one_side_searched((peer, table), (first, last))
    }

    /// Searches for the right record, and counts a reference where there is no place.
    #[cold]
    #[inline(never)]
    fn one_side_searched<'a>(
        &'a self,
        (peer, table): (u32, &'a BucketTable),
        (first, last): (u64, u64),
    ) -> Option<(SeenRecord<'a>, Option<OwnPlace<'a>>)> {
        let side = table.search(first)?;
        let Some(place) = self.announcements.free_place() else {
            side.count(table, first, last, Use::Write)?;
            return Some((side, None));
        };
        place.announce_one(side.name());
        if side.confirm(first, last, Use::Write) {
            return Some((side, Some(place)));
        }
        place.clear();
        self.note_missed_side(peer, side);
        None
    }

    /// As [`note_missed`](Self::note_missed), for one side.
    #[cold]
    fn note_missed_side(&self, peer: u32, side: SeenRecord<'_>) -> bool {
        match peer {
            NOBODY => self.note_missed(NOBODY, None, Some(side)),
            _ => self.note_missed(peer, Some(side), None),
        }
    }

    /// Holds own memory alone, registered and writable, for the own NIC to change it. After a miss,
    /// call [`Engine::hold_own`](crate::Engine::hold_own).
    #[inline]
    pub fn hit_local(&self, local: u64, len: u64) -> Option<Hit<'_>> {
        if self.is_crowded() {
            return None;
        }
        let buckets = self.buckets(local, len)?;
        let (local_side, place) = self.one_side((NOBODY, &self.local), buckets)?;
        Some(Hit {
            remote_key: NO_KEY,
            local_key: local_side.key(),
            peer: NOBODY,
            remote: None,
            local: Some(local_side),
            place,
        })
    }

    /// Gives a hit back after its transfer. Returns true if an operation waits for that: then call
    /// [`Engine::released`](crate::Engine::released).
    #[inline(always)]
    #[must_use = "somebody may wait for it"]
    pub fn release(&self, hit: &Hit<'_>) -> bool {
        let Some(place) = hit.place else {
            let (remote, local) = (
                hit.remote.map(SeenRecord::slot),
                hit.local.map(SeenRecord::slot),
            );
            return self.release_counted(hit.peer, remote, local);
        };
        place.clear();
        let remote_side = hit.remote.is_some_and(SeenRecord::is_awaited);
        let local_side = hit.local.is_some_and(SeenRecord::is_awaited);
        remote_side | local_side | self.is_crowded()
    }

    /// Gives back the counted references of a hit.
    #[cold]
    #[inline(never)]
    fn release_counted(&self, peer: u32, remote: Option<u32>, local: Option<u32>) -> bool {
        let table = self.peer(peer);
        let remote_side = (table.zip(remote)).is_some_and(|(table, slot)| table.release(slot));
        let local_side = local.is_some_and(|slot| self.local.release(slot));
        remote_side | local_side | self.is_crowded()
    }

    /// As [`release`](Self::release), for a hit that was kept.
    #[inline]
    #[must_use = "somebody may wait for it"]
    pub fn release_kept(&self, hit: &KeptHit) -> bool {
        let remote_slot = (hit.remote_slot != NO_SLOT).then_some(hit.remote_slot);
        let Some(place) = hit.place else {
            return self.release_counted(hit.peer, remote_slot, hit.local_slot());
        };
        self.announcements.clear(place);
        let table = self.peer(hit.peer).zip(remote_slot);
        let remote_side = table.is_some_and(|(table, slot)| table.is_awaited(slot));
        let local_side = (hit.local_slot()).is_some_and(|slot| self.local.is_awaited(slot));
        remote_side | local_side | self.is_crowded()
    }
}
