//! The counters of a rank. They always count, at the cost of a cell each.
//!
//! Each thread counts in a stripe of its own, so counting is an addition to memory that no other
//! thread writes. A snapshot sums the stripes.

use std::{
    array, fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use hydrant_pinning::Size;

use crate::stripe::Striped;

/// Names each counter once: as an index for counting, as a field of the snapshot, and as a name for
/// display.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $index:ident $field:ident,)+) => {
        /// The index of a counter.
        #[derive(Clone, Copy)]
        pub(crate) enum Count { $($index),+ }

        const COUNT: usize = [$(Count::$index),+].len();

        /// A snapshot of the counters of a rank.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
        #[non_exhaustive]
        pub struct Counters { $($(#[doc = $doc])+ pub $field: u64),+ }

        impl Counters {
            fn from_array(values: [u64; COUNT]) -> Self {
                Self { $($field: values[Count::$index as usize]),+ }
            }

            /// Returns the counters by name.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),+]
            }
        }
    };
}

counters! {
    /// Puts of any kind; sections, strided and indexed puts count once for each piece.
    Puts puts,
    /// Bytes put.
    PutBytes put_bytes,
    /// Gets of any kind.
    Gets gets,
    /// Bytes got.
    GetBytes get_bytes,
    /// Accumulates of any kind; each run of elements counts once.
    Accumulates accumulates,
    /// Bytes of elements that were added to.
    AccumulatedBytes accumulated_bytes,
    /// Puts and gets that went through the conduit, not by direct access.
    Indirect indirect,
    /// Puts and gets whose memory was registered on both sides, found without a message.
    Hits hits,
    /// Puts and gets that needed a registration, a message or a second lookup. The strategy
    /// `foresight` records each put and get, so it counts all of them here;
    /// [`Job::foresight`](crate::Job::foresight) has those that found their memory registered.
    Misses misses,
    /// Registrations made.
    Registrations registrations,
    /// Deregistrations made.
    Deregistrations deregistrations,
    /// Bytes of memory that was to be registered at once, in chunks.
    BulkBytes bulk_bytes,
    /// Bytes of that memory that are registered by now.
    BulkRegisteredBytes bulk_registered_bytes,
    /// Bytes of that memory that were left out, because a limit was reached or the time was over.
    BulkLeftBytes bulk_left_bytes,
    /// Changes of own memory that were heard of while memory of the program could stay registered.
    MemoryChanges memory_changes,
    /// Messages to peers about registration, those with piggybacked data included.
    RegistrationMessages registration_messages,
    /// Times that such a message found no room and waited.
    RegistrationStalls registration_stalls,
    /// Runs of sections, strided, indexed and vector accesses that were packed into messages.
    Packed packed,
    /// Atomic operations.
    Atomics atomics,
    /// Requests to NICs for atomic operations: one that compares first may take several.
    NicAtomics nic_atomics,
    /// Requests sent.
    Requests requests,
    /// Requests handled for peers.
    Handled handled,
    /// Replies handled.
    Replies replies,
    /// Times that a request found no room and waited.
    Stalls stalls,
    /// Two-sided messages sent eagerly, each as the payload of an active message or of several.
    MessagesEager messages_eager,
    /// Two-sided messages copied in parts, once they were asked for.
    MessagesCopied messages_copied,
    /// Two-sided messages written whole into their receivers' buffers.
    MessagesRendezvous messages_rendezvous,
    /// Two-sided messages written into their receivers' buffers chunk by chunk.
    MessagesPipeline messages_pipeline,
    /// Two-sided messages, or their announcements, that arrived before a receive was posted.
    MessagesUnexpected messages_unexpected,
    /// Times that a two-sided message waited at its sender because its receiver had no room.
    MessagesCreditWaits messages_credit_waits,
    /// Handlers that panicked here.
    Panics panics,
    /// Messages of peers that broke a rule.
    Malformed malformed,
    /// Impossible states in the bookkeeping of registered memory, after which a step was skipped:
    /// bugs of Hydrant.
    Impossible impossible,
    /// Collectives, barriers included.
    Collectives collectives,
    /// Times that an application thread went to sleep in a wait.
    Sleeps sleeps,
    /// Times that the service thread found messages to handle.
    Services services,
    /// Bytes of symmetric memory in use.
    HeapBytes heap_bytes,
    /// Most bytes of symmetric memory ever in use.
    HeapPeak heap_peak,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in rows {
            let value = if name.ends_with("_bytes") || name.ends_with("_peak") {
                format!("{:#}", Size(value))
            } else {
                value.to_string()
            };
            writeln!(f, "{name:<width$}  {value:>14}")?;
        }
        Ok(())
    }
}

/// Hits after which a caller checks whether copies are faster by now.
const MANY_HITS: u64 = 1 << 12;

/// The bytes of the puts and gets that have a cell of their own.
const WORD: usize = 8;

/// The cells behind the counters. Each put or get of a word changes one cell, which stands for its
/// number and its bytes. The alignment lets a shift lead from a thread's stripe to its cells.
#[repr(align(512))]
struct Cells {
    word_puts: AtomicU64,
    word_gets: AtomicU64,
    counts: [AtomicU64; COUNT],
}

impl Cells {
    fn new() -> Self {
        Self {
            word_puts: AtomicU64::new(0),
            word_gets: AtomicU64::new(0),
            counts: array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// The counters of all threads.
pub(crate) struct Tally {
    stripes: Striped<Cells>,
}

/// Adds to a cell that only this thread writes, so that no read-modify-write is needed.
#[inline(always)]
fn add_to_own(cell: &AtomicU64, more: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Counts in cells that only this thread writes.
#[inline(always)]
fn add_own<const N: usize>(cells: &Cells, counts: [(Count, u64); N]) {
    for (count, more) in counts {
        add_to_own(&cells.counts[count as usize], more);
    }
}

/// The cells that only this thread writes.
pub(crate) struct Own<'a>(&'a Cells);

impl Own<'_> {
    /// Counts a put of `bytes` bytes. The gate has compared the length with that of a word before,
    /// so the compiler drops the comparison here.
    #[inline(always)]
    pub(crate) fn put(&self, bytes: usize) {
        if bytes == WORD {
            add_to_own(&self.0.word_puts, 1);
        } else {
            self.puts(1, bytes);
        }
    }

    /// Counts so many puts with so many bytes in all.
    #[inline(always)]
    pub(crate) fn puts(&self, puts: usize, bytes: usize) {
        let counts = [(Count::Puts, puts as u64), (Count::PutBytes, bytes as u64)];
        add_own(self.0, counts);
    }

    /// As [`puts`](Self::puts), for gets.
    #[inline(always)]
    pub(crate) fn gets(&self, gets: usize, bytes: usize) {
        let counts = [(Count::Gets, gets as u64), (Count::GetBytes, bytes as u64)];
        add_own(self.0, counts);
    }

    /// As [`put`](Self::put), for a get.
    #[inline(always)]
    pub(crate) fn get(&self, bytes: usize) {
        if bytes == WORD {
            add_to_own(&self.0.word_gets, 1);
        } else {
            self.gets(1, bytes);
        }
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            stripes: Striped::new(Cells::new),
        }
    }

    /// Counts one.
    #[inline]
    pub(crate) fn one(&self, count: Count) {
        self.add(count, 1);
    }

    /// Counts one if this thread has a stripe; [`add`](Self::add) assigns one.
    #[inline]
    pub(crate) fn try_one(&self, count: Count) -> bool {
        self.try_each([(count, 1)])
    }

    /// The cells of this thread, if it has a stripe; [`add`](Self::add) assigns one. No thread of a forked child has
    /// one.
    #[inline(always)]
    pub(crate) fn own(&self) -> Option<Own<'_>> {
        self.stripes.own().map(Own)
    }

    #[inline(always)]
    fn try_each<const N: usize>(&self, counts: [(Count, u64); N]) -> bool {
        let Some(cells) = self.stripes.own() else {
            return false;
        };
        add_own(cells, counts);
        true
    }

    /// Counts a hit. Returns whether it is the last of [`MANY_HITS`] of this thread.
    #[inline(always)]
    pub(crate) fn count_hit(&self) -> bool {
        let Some(cells) = self.stripes.own() else {
            return self.count_hit_slowly();
        };
        add_own(cells, [(Count::Indirect, 1), (Count::Hits, 1)]);
        cells.counts[Count::Hits as usize]
            .load(Relaxed)
            .is_multiple_of(MANY_HITS)
    }

    #[cold]
    fn count_hit_slowly(&self) -> bool {
        self.add_slowly([(Count::Indirect, 1), (Count::Hits, 1)]);
        false
    }

    /// Adds `more` to a counter.
    #[inline]
    pub(crate) fn add(&self, count: Count, more: u64) {
        self.add_each([(count, more)]);
    }

    /// As [`add`](Self::add), for several counters.
    #[inline(always)]
    pub(crate) fn add_each<const N: usize>(&self, counts: [(Count, u64); N]) {
        if !self.try_each(counts) {
            self.add_slowly(counts);
        }
    }

    #[cold]
    fn add_slowly<const N: usize>(&self, counts: [(Count, u64); N]) {
        let (cells, _) = self.stripes.mine();
        for (count, more) in counts {
            cells.counts[count as usize].fetch_add(more, Relaxed);
        }
    }

    /// Sets a value that is not a sum, from any thread. It is kept in the shared stripe.
    pub(crate) fn set(&self, count: Count, value: u64) {
        self.stripes.shared().counts[count as usize].store(value, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Counters {
        let sum = |cell: &dyn Fn(&Cells) -> u64| {
            (self.stripes.iter()).map(cell).fold(0, u64::wrapping_add)
        };
        let mut counts = array::from_fn(|count| sum(&|cells| cells.counts[count].load(Relaxed)));
        let words = [
            sum(&|cells| cells.word_puts.load(Relaxed)),
            sum(&|cells| cells.word_gets.load(Relaxed)),
        ];
        let kinds = [
            (Count::Puts, Count::PutBytes),
            (Count::Gets, Count::GetBytes),
        ];
        for (words, (number, bytes)) in words.into_iter().zip(kinds) {
            let (number, bytes) = (number as usize, bytes as usize);
            counts[number] = words.wrapping_add(counts[number]);
            counts[bytes] = words.wrapping_mul(WORD as u64).wrapping_add(counts[bytes]);
        }
        Counters::from_array(counts)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn nothing_is_lost_with_more_threads_than_stripes() {
        const THREADS: u64 = 40;
        let tally = Tally::new();
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..10_000).for_each(|_| tally.one(Count::Puts)));
                }
            });
        }
        assert_eq!(tally.snapshot().puts, 3 * THREADS * 10_000);
    }

    #[test]
    fn words_count_as_puts_and_gets_of_their_bytes() {
        let tally = Tally::new();
        tally.one(Count::Puts);
        let own = tally.own().expect("few threads");
        for bytes in [WORD, 5, WORD] {
            own.put(bytes);
        }
        for bytes in [WORD, 0, 100] {
            own.get(bytes);
        }
        let counted = tally.snapshot();
        assert_eq!((counted.puts, counted.put_bytes), (4, 2 * 8 + 5));
        assert_eq!((counted.gets, counted.get_bytes), (3, 8 + 100));
    }

    #[test]
    fn rows_line_up() {
        let text = Counters::default().to_string();
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{text}");
    }
}
