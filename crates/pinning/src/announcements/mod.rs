//! Announcements: the records that operations in flight use. A hit announces its records in memory
//! of its own thread, by plain stores, and the end of the operation clears them.
//!
//! - The hit announces its records, passes a [light](barrier) barrier and looks at the words of the
//!   records again. If they are still live, it holds them.
//! - Who evicts a record shuts its word, [settles](Announcements::settle) and looks through the
//!   announcements. If none names the record, nobody holds it, and nobody can any more.
//! - The end clears the announcement, passes a light barrier and looks at the word once more,
//!   because somebody may wait for the end.
//!
//! These are hazard pointers (Michael 2004) with the barrier on the side of the eviction, which is
//! rare and deregisters memory anyway.
//!
//! A thread has a *lane* of [`PLACES`] places. Only that thread announces there, and any thread
//! that ends the operation clears the place. So no step needs a locked instruction. A thread with
//! more operations in flight, or beyond [`MAX_THREADS`], counts references in the records instead.
//! So do all threads where the system has no such barrier.

mod barrier;
mod thread_number;

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32 as PlainU32;

use crate::sync::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use thread_number::MAX_THREADS;

/// The operations that a thread announces at once; loom walks through every atomic.
const PLACES: usize = if cfg!(loom) { 2 } else { 64 };

/// A side that announces nothing.
const NOTHING: u64 = 0;

/// The announcements of all threads that use the tables of one rank.
#[derive(Debug)]
pub(crate) struct Announcements {
    /// The lane of each thread by its number, added at the thread's first hit.
    lanes: Box<[OnceLock<Box<Lane>>; MAX_THREADS as usize]>,
    /// Every lane's number is below it.
    lanes_end: AtomicU32,
    /// The number of tables so far.
    tables: PlainU32,
}

/// The announcements of one thread.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    /// The place that is tried next. Its thread changes it.
    cursor: PlainU32,
    /// Every place that was ever tried is below it. Its thread changes it, before the first use.
    used: AtomicU32,
    places: [LanePlace; PLACES],
}

/// The two records of one operation, by [name](RecordName). The thread of the lane announces where
/// both are [`NOTHING`], and whoever ends the operation clears both.
#[derive(Debug)]
#[repr(align(16))]
pub(crate) struct LanePlace {
    sides: [AtomicU64; 2],
}

/// A record of a table, as announcements name it. It is not [`NOTHING`], because tables are counted
/// from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordName(u64);

impl RecordName {
    #[inline(always)]
    pub(crate) fn new(table: u32, slot: u32) -> Self {
        RecordName(u64::from(table) << 32 | u64::from(slot))
    }

    /// The name of another record of the same table, if this is the name of record 0.
    #[inline(always)]
    pub(crate) fn of_slot(self, slot: u32) -> Self {
        RecordName(self.0 | u64::from(slot))
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    fn table(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The position of a place: its lane and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacePosition(u32);

impl PlacePosition {
    #[inline(always)]
    fn new(number: u32, index: usize) -> Self {
        PlacePosition(number * PLACES as u32 + index as u32)
    }

    fn lane(self) -> u32 {
        self.0 / PLACES as u32
    }

    #[inline(always)]
    fn index(self) -> usize {
        self.0 as usize % PLACES
    }
}

/// A place of the calling thread: free at first, and then with the announcement of its operation.
#[derive(Clone, Copy, Debug)]
#[must_use = "the place is to be cleared"]
pub(crate) struct OwnPlace<'a> {
    lane: &'a Lane,
    position: PlacePosition,
    /// Only the thread of the lane may announce and [keep](Self::keep).
    stays: PhantomData<*const ()>,
}

impl OwnPlace<'_> {
    /// Announces the records of an operation. Then the caller looks at their words again.
    #[inline(always)]
    pub(crate) fn announce(self, remote: RecordName, local: RecordName) {
        let [remote_side, local_side] = &self.place().sides;
        // Release ordering: who reads these words knows that the operations before have ended.
        remote_side.store(remote.0, Release);
        local_side.store(local.0, Release);
        barrier::light();
    }

    /// As [`announce`](Self::announce), for an operation with one record.
    #[inline(always)]
    pub(crate) fn announce_one(self, record: RecordName) {
        self.place().sides[0].store(record.0, Release);
        barrier::light();
    }

    /// Clears the announcement. Then the caller looks whether somebody waits for that.
    #[inline(always)]
    pub(crate) fn clear(self) {
        self.place().clear();
    }

    /// Leaves the announcement to whoever ends the operation. The thread tries another place next.
    #[inline(always)]
    pub(crate) fn keep(self) -> PlacePosition {
        self.lane.try_next((self.position.index() + 1) % PLACES);
        self.position
    }

    #[inline(always)]
    fn place(&self) -> &LanePlace {
        &self.lane.places[self.position.index()]
    }
}

impl LanePlace {
    #[inline(always)]
    fn is_free(&self) -> bool {
        // Acquire ordering: the operation that used the place has ended.
        self.sides[0].load(Acquire) | self.sides[1].load(Acquire) == NOTHING
    }

    #[inline(always)]
    fn clear(&self) {
        // Release ordering: every access of the operation comes before its end.
        for side in &self.sides {
            side.store(NOTHING, Release);
        }
        barrier::light();
    }
}

impl Lane {
    fn new() -> Self {
        Lane {
            cursor: PlainU32::new(0),
            used: AtomicU32::new(1),
            places: std::array::from_fn(|_| LanePlace {
                sides: [AtomicU64::new(NOTHING), AtomicU64::new(NOTHING)],
            }),
        }
    }

    /// Makes a place the one that is tried next. Only the thread of the lane calls it.
    #[inline(always)]
    fn try_next(&self, index: usize) {
        if index as u32 >= self.used.load(Relaxed) {
            self.used.store(index as u32 + 1, Release);
        }
        self.cursor.store(index as u32, Relaxed);
    }

    /// The places that may be in use.
    fn used(&self) -> impl Iterator<Item = &LanePlace> {
        self.places.iter().take(self.used.load(Acquire) as usize)
    }
}

impl Announcements {
    pub(crate) fn new() -> Self {
        let this = Announcements {
            lanes: Box::new([const { OnceLock::new() }; MAX_THREADS as usize]),
            lanes_end: AtomicU32::new(0),
            tables: PlainU32::new(0),
        };
        if cfg!(loom) {
            // Loom does not see that `OnceLock` publishes a lane, so a model begins with all lanes.
            (0..3).for_each(|number| _ = this.add_lane(number));
        }
        this
    }

    /// The number of a new table.
    pub(crate) fn next_table(&self) -> u32 {
        self.tables.fetch_add(1, Relaxed) + 1
    }

    /// A free place of the calling thread, unless it has none.
    #[inline(always)] // on the path of every hit
    pub(crate) fn free_place(&self) -> Option<OwnPlace<'_>> {
        let number = thread_number::current()?;
        if let Some(lane) = self.lane(number) {
            let index = lane.cursor.load(Relaxed) as usize % PLACES;
            if lane.places[index].is_free() {
                return Some(OwnPlace {
                    lane,
                    position: PlacePosition::new(number, index),
                    stays: PhantomData,
                });
            }
        }
        self.another_place(number)
    }

    /// Searches for a free place, and adds the thread's lane where it is missing.
    #[cold]
    #[inline(never)]
    fn another_place(&self, number: u32) -> Option<OwnPlace<'_>> {
        let lane = match self.lane(number) {
            Some(lane) => lane,
            None => self.add_lane(number)?,
        };
        let from = lane.cursor.load(Relaxed) as usize;
        let index = (0..PLACES)
            .map(|step| (from + step) % PLACES)
            .find(|index| lane.places[*index].is_free())?;
        lane.try_next(index);
        Some(OwnPlace {
            lane,
            position: PlacePosition::new(number, index),
            stays: PhantomData,
        })
    }

    fn add_lane(&self, number: u32) -> Option<&Lane> {
        if !barrier::is_there() {
            return None;
        }
        let lane = self.lanes.get(number as usize)?;
        let lane = lane.get_or_init(|| Box::new(Lane::new()));
        self.lanes_end.fetch_max(number + 1, SeqCst);
        // Either a thread that settles sees the new lane, or this thread sees what that one shut.
        fence(SeqCst);
        Some(lane)
    }

    #[inline(always)]
    fn lane(&self, number: u32) -> Option<&Lane> {
        self.lanes.get(number as usize)?.get().map(|lane| &**lane)
    }

    fn all_lanes(&self) -> impl Iterator<Item = (u32, &Lane)> {
        let numbers = 0..self.lanes_end.load(Relaxed);
        numbers.filter_map(|number| self.lane(number).map(|lane| (number, lane)))
    }

    /// Clears the place of an operation that was [kept](OwnPlace::keep).
    #[inline]
    pub(crate) fn clear(&self, position: PlacePosition) {
        if let Some(lane) = self.lane(position.lane()) {
            lane.places[position.index()].clear();
        }
    }

    /// Makes sure of what follows the change of a record's word. An operation that does not see the
    /// change is among the announcements, and one that ends later sees it.
    pub(crate) fn settle(&self) {
        fence(SeqCst);
        // A thread sees its own announcements, and nobody ends operations where there are none.
        let own = thread_number::current();
        let is_alone = self
            .all_lanes()
            .all(|(number, lane)| Some(number) == own && lane.used().all(LanePlace::is_free));
        if !is_alone {
            barrier::heavy();
        }
    }

    /// The records of the table of `first` that are announced at this moment, as often as they are.
    pub(crate) fn of_table(&self, first: RecordName) -> impl Iterator<Item = u32> {
        let places = self.all_lanes().flat_map(|(_, lane)| lane.used());
        let sides = places.flat_map(|place| &place.sides);
        let names = sides.map(|side| RecordName(side.load(Acquire)));
        names
            .filter(move |name| name.table() == first.table())
            .map(RecordName::slot)
    }
}
