//! Words of 64 bits that NICs change and no processor does: what comes out, what is refused, and
//! what a lost result means. On NICs that are played anywhere, and on a real RDMA stack where
//! there is one.

#![allow(unsafe_code)] // stands between a job and its network

#[path = "support/nic_words.rs"]
mod nic_words;

use hydrant::{
    AtomicsKind, ConduitKind, Error, Job, JobBuilder, Rank, Result, Signal, Strategy, settings,
};
use nic_words::Nics;

/// A word's worth of operations by each rank.
const ROUNDS: u64 = 60;

fn builder(conduit: ConduitKind, strategy: Strategy, atomics: AtomicsKind) -> JobBuilder {
    let builder = Job::builder().expect("the settings are valid");
    let builder = (builder.heap(16 << 20).conduit(conduit))
        .registration(strategy)
        .atomics(atomics);
    match strategy {
        // What is registered for good needs room for all of it.
        Strategy::PinEverything => builder,
        _ => builder.m(128 << 10).maxvictim(16 << 10),
    }
}

fn all<R: Send>(
    builder: JobBuilder,
    ranks: u32,
    body: impl Fn(&Job) -> Result<R> + Sync,
) -> Vec<R> {
    (builder.run_local(ranks, body).into_iter().enumerate())
        .map(|(rank, end)| end.unwrap_or_else(|error| panic!("rank {rank}: {error}")))
        .collect()
}

/// All ranks at once on words of each, the own among them, so far apart that they do not stay
/// registered; then the answers. How many operations NICs did here.
fn mix(job: &Job) -> Result<u64> {
    const APART: usize = 4096;
    let ranks = u64::from(job.size());
    let counts = job.alloc::<u64>(20 * APART)?;
    let signed = job.alloc::<i64>(4)?;
    let real = job.alloc::<f64>(2)?;
    let short = job.alloc::<u32>(2)?;
    let me = u64::from(job.rank().0);
    for round in 0..ROUNDS {
        for rank in job.ranks() {
            let page = (round % 20) as usize * APART;
            counts.add(rank, page, round + 1)?;
            counts.fetch_xor(rank, 1, me << 8 | round)?;
            counts.or(rank, 2, 1 << (round % 60))?;
            signed.fetch_add(rank, 0, if round % 2 == 0 { -3 } else { 2 })?;
            real.add(rank, 1, 0.5)?;
            short.add(rank, 1, 1)?;
        }
    }
    // A number is drawn by one.
    let mut drawn = 0;
    let mut seen = signed.atomic_load(Rank(0), 2)?;
    for _ in 0..ROUNDS / 4 {
        loop {
            let was = signed.compare_swap(Rank(0), 2, seen, seen + 1)?;
            if was == seen {
                drawn += was;
                break;
            }
            seen = was;
        }
    }
    let last = signed.swap(job.right(), 3, me as i64 + 10)?;
    assert_eq!(last, 0);
    job.barrier()?;
    let sum: u64 = (0..20)
        .map(|page| counts.local()?.load(page * APART))
        .sum::<Result<u64>>()?;
    let xor = (0..ranks)
        .flat_map(|rank| (0..ROUNDS).map(move |round| rank << 8 | round))
        .fold(0, |xor, value| xor ^ value);
    // The first word of a page is added to, the next two are used otherwise.
    assert_eq!(sum, ranks * ROUNDS * (ROUNDS + 1) / 2);
    assert_eq!(counts.atomic_load(job.rank(), 1)?, xor);
    assert_eq!(counts.atomic_load(job.right(), 2)?, (1 << 60) - 1);
    assert_eq!(
        signed.atomic_load(job.right(), 0)?,
        -((ranks * ROUNDS) as i64) / 2
    );
    assert_eq!(
        real.atomic_load(job.right(), 1)?,
        (ranks * ROUNDS) as f64 / 2.0
    );
    assert_eq!(short.atomic_load(job.right(), 1)?, (ranks * ROUNDS) as u32);
    assert_eq!(
        signed.atomic_load(job.rank(), 3)?,
        i64::from(job.left().0) + 10
    );
    let totals = job.alloc::<i64>(1)?;
    totals.add(Rank(0), 0, drawn)?;
    job.barrier()?;
    let all = (ranks * (ROUNDS / 4)) as i64;
    assert_eq!(totals.get_value(Rank(0), 0)?, all * (all - 1) / 2);
    signals(job)?;
    Ok(job.counters().nic_atomics)
}

/// A signal is a word that is changed, though nobody tells who waits for it.
fn signals(job: &Job) -> Result<()> {
    let data = job.alloc::<u64>(8)?;
    let signals = job.alloc::<u64>(2)?;
    for round in 1..=5_u64 {
        let row = [round * 7; 8];
        data.put_signal(job.right(), 0, &row, &signals, 0, Signal::Set(round))?;
        assert_eq!(job.wait_until(&signals, 0, |it| it >= round)?, round);
        assert_eq!(data.local()?.to_vec(), row);
        signals.signal(job.left(), 1, Signal::Add(1))?;
        job.wait_until(&signals, 1, |it| it >= round)?;
        job.barrier()?;
    }
    // Whoever sleeps for long is not told of a plain put, either.
    if job.rank() == Rank(0) {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    signals.put_value(job.right(), 0, 99)?;
    job.wait_until(&signals, 0, |it| it == 99)?;
    job.barrier()
}

#[test]
fn words_hold_the_serial_answer_on_played_nics() {
    for strategy in [Strategy::Firehose, Strategy::PinEverything] {
        let nics = Nics::default();
        let job = builder(ConduitKind::Pinned, strategy, AtomicsKind::Auto);
        let done = all(job.through(nics.layer()), 4, mix);
        assert!(done.iter().all(|done| *done > 0), "{strategy}: {done:?}");
        assert_eq!(done.iter().sum::<u64>(), nics.done(), "all of them, once");
    }
}

#[test]
fn where_nics_cannot_processors_do_all_of_it() {
    for strategy in [Strategy::Bounce, Strategy::PinDown] {
        let nics = Nics::default();
        let job = builder(ConduitKind::Pinned, strategy, AtomicsKind::Auto);
        assert_eq!(all(job.through(nics.layer()), 3, mix), [0; 3], "{strategy}");
        assert_eq!(nics.done(), 0);
    }
    let job = builder(
        ConduitKind::Pinned,
        Strategy::Firehose,
        AtomicsKind::Messages,
    );
    assert_eq!(all(job.through(Nics::default().layer()), 3, mix), [0; 3]);
    assert_eq!(
        all(
            builder(ConduitKind::Smp, Strategy::Firehose, AtomicsKind::Auto),
            3,
            mix
        ),
        [0; 3]
    );
}

#[test]
fn what_nics_cannot_is_said_when_they_shall() {
    let refused = |job: JobBuilder, why: &str| {
        for end in job.run_local(2, |_| Ok(())) {
            match end {
                Err(Error::Setting {
                    name: "HYDRANT_ATOMICS",
                    expected,
                    ..
                }) => {
                    assert!(expected.contains(why), "{expected}");
                }
                other => panic!("{other:?}"),
            }
        }
    };
    let native = AtomicsKind::Native;
    let job = builder(ConduitKind::Pinned, Strategy::Firehose, native);
    refused(job, "smp+pin has no atomic operations");
    let job = builder(ConduitKind::Smp, Strategy::Firehose, native);
    refused(job, "smp has no atomic operations");
    let job = builder(ConduitKind::Pinned, Strategy::Bounce, native);
    refused(job.through(Nics::default().layer()), "bounce does not keep");
}

#[test]
fn a_handler_changes_own_words_whatever_is_registered() {
    let nics = Nics::default();
    let job = builder(ConduitKind::Pinned, Strategy::Firehose, AtomicsKind::Native);
    all(job.through(nics.layer()), 2, |job| {
        let words = job.alloc::<u64>(20 * 512)?;
        let far = words.clone();
        let handler = job.handler(move |context, args, _| {
            let place = args[0] as usize * 512;
            words
                .add(context.rank(), place, 1)
                .expect("own words need nobody");
            // A peer's would wait for it.
            let peer = Rank(1 - context.rank().0);
            assert!(matches!(
                words.add(peer, place, 1),
                Err(Error::InHandler { .. })
            ));
        })?;
        for number in 0..200 {
            job.request_short(job.right(), handler, &[number % 20])?;
        }
        job.am_quiet()?;
        job.barrier()?;
        for number in 0..20 {
            assert_eq!(far.atomic_load(job.right(), number * 512)?, 10);
        }
        job.barrier()
    });
}

#[test]
fn a_lost_result_is_told_and_nothing_is_done_twice() {
    let nics = Nics::lossy(7);
    let job = builder(ConduitKind::Pinned, Strategy::Firehose, AtomicsKind::Native);
    let lost: u64 = all(job.through(nics.layer()), 2, |job| {
        let words = job.alloc::<u64>(4)?;
        let real = job.alloc::<f64>(1)?;
        let (to, mut lost) = (job.right(), 0);
        for _ in 0..200 {
            // Who does not want to know what there was does not hear of it.
            words.add(to, 0, 1)?;
            match words.fetch_add(to, 1, 1) {
                Err(Error::ResultLost { rank }) => {
                    assert_eq!(rank, to);
                    lost += 1;
                }
                was => _ = was?,
            }
            match real.add(to, 0, 1.0) {
                Err(Error::ResultLost { .. }) => {}
                added => added?,
            }
        }
        job.barrier()?;
        assert_eq!(words.local()?.to_vec(), [200, 200, 0, 0]);
        // What was told to have been added was; what was not told may have been.
        assert!(real.local()?.load(0)? <= 200.0);
        job.barrier()?;
        Ok(lost)
    })
    .into_iter()
    .sum();
    assert!(lost > 0, "some results were lost");
}

#[test]
fn words_hold_the_serial_answer_on_rdma() {
    if let Err(why) = settings::rdma_ports(&hydrant::Settings::new()) {
        eprintln!("left out: {why}");
        return;
    }
    for (strategy, atomics, native) in [
        (Strategy::Firehose, AtomicsKind::Native, true),
        (Strategy::PinEverything, AtomicsKind::Auto, true),
        (Strategy::Firehose, AtomicsKind::Messages, false),
    ] {
        let done = all(builder(ConduitKind::Verbs, strategy, atomics), 4, mix);
        let by_nics = done.iter().all(|done| *done > 0);
        assert_eq!(by_nics, native, "{strategy}, {atomics}: {done:?}");
    }
}
