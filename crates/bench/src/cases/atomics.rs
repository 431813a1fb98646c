//! Atomics on a peer's word, beside the processor's own on the very same word.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hydrant::Symmetric;

use super::{consume, partner_place, round_trip_singly};
use crate::bare;
use crate::ensemble::Ensemble;
use crate::network::PARTNER;
use crate::row::{Goal, Row};

/// Measures all ranks.
pub(crate) fn run(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let words = e.job.alloc::<u64>(64)?;
    let reals = e.job.alloc::<f64>(8)?;
    let peer = PARTNER;
    // SAFETY: 1. `words` is freed at the end, after the last use; 2. the words are used only as
    // atomics.
    #[allow(unsafe_code)]
    let place = unsafe { partner_place(&words)? };
    let word = place.word();
    let row = |case: &str, [bare, ours]: [f64; 2], goal| {
        e.row(
            Row::new("atomics", case, "ns", ours)
                .bytes(8)
                .against(bare)
                .goal_if(goal),
        )
    };
    macro_rules! alone {
        ($case:literal, $bare:expr, $ours:expr, $goal:expr) => {
            let ours = $ours;
            let medians = e.solo(
                $case,
                [&mut |count| Ok($bare(word, count)), &mut |count| {
                    e.timed(count, &ours)
                }],
            )?;
            if let Some(medians) = medians {
                row($case, medians, $goal)?;
            }
        };
    }
    let goal = e.uncrowded(Goal::Within(3.0, "ns"));
    alone!(
        "fetch_add",
        bare::fetch_add,
        |_| words.fetch_add(peer, 0, black_box(1)).map(consume),
        goal
    );
    alone!(
        "add",
        bare::fetch_add,
        |_| words.add(peer, 0, black_box(1)),
        None
    );
    alone!(
        "swap",
        bare::swap,
        |i| words.swap(peer, 0, black_box(i)).map(consume),
        None
    );
    alone!(
        "compare_swap",
        bare::compare_swap,
        |_| {
            words
                .compare_swap(peer, 0, black_box(0), black_box(0))
                .map(consume)
        },
        None
    );
    alone!(
        "atomic_load",
        bare::load,
        |_| words.atomic_load(peer, 0).map(consume),
        None
    );
    alone!(
        "atomic_store",
        bare::store,
        |i| words.atomic_store(peer, 0, black_box(i)),
        None
    );
    alone!(
        "add, f64",
        bare::compare_swap,
        |_| reals.add(peer, 0, black_box(1.0)),
        None
    );
    contended(e, &words, word)?;
    e.job.free(words)?;
    e.job.free(reals)?;
    Ok(())
}

/// Measures words that are not mapped. The owner's NIC carries the operation out if the job uses
/// NIC atomics. Otherwise, and for 32 bits always, the owner's processor does so on a message, at
/// best in the time of a bare round trip.
pub(crate) fn unmapped(e: &Ensemble<'_>) -> hydrant::Result<()> {
    let words = e.job.alloc::<u64>(64)?;
    let short = e.job.alloc::<u32>(64)?;
    let who = if e.job.has_native_atomics() {
        "by the NIC"
    } else {
        "by a message"
    };
    let mut turn = 0;
    let mut beside = |case: &str, operation: &dyn Fn(u64) -> hydrant::Result<()>| {
        let bare = &mut |count| round_trip_singly(e, &mut turn, 8, count);
        let ours = &mut |count| match e.rank() {
            0 => e.timed_singly(count, operation),
            _ => Ok(Duration::ZERO),
        };
        if let Some(it) = e.beside_bare(case, bare, ours)? {
            let row = e.timed_row("atomics", case, &it.ours).bytes(8);
            e.row(row.against_if(it.bare))?;
        }
        Ok::<_, hydrant::Error>(())
    };
    let case = |what: &str| format!("{what}, {who}");
    beside(&case("fetch_add"), &|_| {
        words.fetch_add(PARTNER, 0, black_box(1)).map(consume)
    })?;
    beside("fetch_add of 32 bits, by a message", &|_| {
        short.fetch_add(PARTNER, 0, black_box(1)).map(consume)
    })?;
    beside(&case("compare_swap"), &|_| {
        let zero = black_box(0);
        words.compare_swap(PARTNER, 0, zero, zero).map(consume)
    })?;
    beside(&case("atomic_load"), &|_| {
        words.atomic_load(PARTNER, 0).map(consume)
    })?;
    let own = if e.job.has_native_atomics() {
        "by the NIC"
    } else {
        "by the processor"
    };
    beside(&format!("fetch_add to an own word, {own}"), &|_| {
        words.fetch_add(e.job.rank(), 1, black_box(1)).map(consume)
    })?;
    e.job.free(short)?;
    e.job.free(words)
}

/// All ranks change one word at once.
fn contended(e: &Ensemble<'_>, words: &Symmetric<u64>, word: &AtomicU64) -> hydrant::Result<()> {
    let case = format!("fetch_add, {} ranks at once", e.job.size());
    let medians = e.together(
        &case,
        [
            &mut |count| Ok(bare::fetch_add(word, count)),
            &mut |count| {
                e.timed(count, |_| {
                    words.fetch_add(PARTNER, 0, black_box(1)).map(consume)
                })
            },
        ],
    )?;
    if let Some([bare, ours]) = medians {
        e.row(Row::new("atomics", case, "ns", ours).bytes(8).against(bare))?;
    }
    Ok(())
}
