//! A rank that the job does not have.

use hydrant::{Error, GlobalPtr, Rank, Section, Signal, Stride};

use crate::{errors::fixture::Fixture, support::local};

/// Each operation given is refused for the rank one too high and for the highest number.
macro_rules! no_such_rank {
    ($job:ident, |$rank:ident| $($operation:expr),+ $(,)?) => {
        for $rank in [Rank($job.size()), Rank(u32::MAX)] {
            let last = format!("ranks 0 to {}", $job.size() - 1);
            $(refused!(
                $operation,
                Error::RankOutOfRange { rank, size } if rank == $rank && size == $job.size(),
                format!("rank {}", $rank),
                last
            );)+
        }
    };
}

const RUNS: Stride = Stride {
    start: 0,
    run: 1,
    stride: 2,
    count: 2,
};

#[test_on(shared, veiled, pinned)]
fn of_a_put() {
    local(3, |job| {
        let f = Fixture::new(job)?;
        let signals = job.alloc::<u64>(1)?;
        let pair = Section::run(0, 2)?;
        no_such_rank!(
            job,
            |rank| f.memory.put(rank, 0, &[1]),
            f.memory.put(rank, 0, &[]),
            f.memory.put_value(rank, 0, 1),
            f.memory.put_nb(rank, 0, vec![1]),
            f.memory.fill(rank, 0..4, 1),
            f.memory.put_strided(rank, RUNS, &[1, 2]),
            f.memory.put_section(rank, &pair, &[1, 2], &pair),
            f.memory.put_indexed(rank, &[1, 2], &[1, 2]),
            job.scope(|s| s.put(&f.memory, rank, 0, &[1]).map(drop)),
            f.memory
                .put_signal(rank, 0, &[1], &signals, 0, Signal::Add(1)),
            signals.signal(rank, 0, Signal::Set(1)),
        );
        job.barrier()?;
        assert_eq!(signals.local()?.to_vec(), [0]);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_a_get() {
    local(3, |job| {
        let f = Fixture::new(job)?;
        let mut data = [7, 7];
        let pair = Section::run(0, 2)?;
        no_such_rank!(
            job,
            |rank| f.memory.get(rank, 0, &mut data),
            f.memory.get_value(rank, 0),
            f.memory.get_nb(rank, 0, 1),
            f.memory.get_strided(rank, RUNS, &mut data),
            f.memory.get_section(rank, &pair, &mut data, &pair),
            f.memory.get_indexed(rank, &[1, 2], &mut data),
        );
        for rank in [Rank(3), Rank(u32::MAX)] {
            let mut data = [7];
            refused!(
                job.scope(|s| s.get(&f.memory, rank, 0, &mut data).map(drop)),
                Error::RankOutOfRange { .. },
                "ranks 0 to 2"
            );
        }
        assert_eq!(data, [7, 7]);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_an_atomic() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let real = job.alloc::<f64>(1)?;
        let m = &f.memory;
        no_such_rank!(
            job,
            |rank| m.fetch_add(rank, 0, 1),
            m.fetch_and(rank, 0, 1),
            m.fetch_or(rank, 0, 1),
            m.fetch_xor(rank, 0, 1),
            m.add(rank, 0, 1),
            m.and(rank, 0, 1),
            m.or(rank, 0, 1),
            m.xor(rank, 0, 1),
            m.swap(rank, 0, 1),
            m.compare_swap(rank, 0, 0, 1),
            m.atomic_load(rank, 0),
            m.atomic_store(rank, 0, 1),
            real.fetch_add(rank, 0, 1.0),
            real.add(rank, 0, 1.0),
        );
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn of_a_message() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let handler = job.handler(|_, _, _| panic!("nobody sent this"))?;
        let function = job.function(|_, (): ()| ())?;
        no_such_rank!(
            job,
            |rank| job.request_short(rank, handler, &[1]),
            job.request_medium(rank, handler, &[1], &[2]),
            job.request_long(rank, handler, &[1], &f.memory, 0, &[1]),
            job.call(rank, &function, &()),
        );
        job.am_quiet()?;
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
#[allow(unsafe_code)] // calls the unsafe form of memory
fn of_a_pointer_or_an_address() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let mut words: [u64; 4] = bytemuck::cast(f.memory.pointer(job.rank(), 0)?);
        let place = [5_u8; 8];
        let addr = place.as_ptr().addr() as u64;
        no_such_rank!(
            job,
            |rank| f.memory.pointer(rank, 0),
            f.memory.on(rank),
            {
                words[1] = words[1] >> 32 << 32 | u64::from(rank.0);
                job.put_to(bytemuck::cast::<_, GlobalPtr<u64>>(words), &[1])
            },
            job.get_from(bytemuck::cast::<_, GlobalPtr<u64>>(words), &mut [1]),
            // SAFETY: nothing is written, for the rank is refused.
            unsafe { job.put_anywhere(rank, addr, &[1]) },
            // SAFETY: nothing is read.
            unsafe { job.get_anywhere(rank, addr, &mut [1]) },
        );
        assert_eq!(place, [5; 8]);
        f.check(job)
    });
}
