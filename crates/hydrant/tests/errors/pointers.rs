//! Global pointers that nobody made, or another job, or for another type.

use bytemuck::Zeroable;
use hydrant::{Error, GlobalPtr, Pod};
use hydrant_base::Random;

use crate::{errors::fixture::Fixture, support::local};

/// The same words, read as a pointer to something else.
fn cast<T: Pod, U: Pod>(pointer: GlobalPtr<T>) -> GlobalPtr<U> {
    bytemuck::cast(pointer)
}

#[test_on(shared, veiled, pinned)]
fn forged() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let zero = GlobalPtr::<u64>::zeroed();
        refused!(
            job.put_to(zero, &[1]),
            Error::ForgedPointer { .. },
            "names nothing"
        );
        refused!(
            job.get_from(zero, &mut [1]),
            Error::ForgedPointer { .. },
            "names nothing"
        );
        refused!(
            job.scope(|s| s.put_to(zero, &[1]).map(drop)),
            Error::ForgedPointer { .. },
            "nothing"
        );

        let [id, rank_kind, number, offset]: [u64; 4] =
            bytemuck::cast(f.memory.pointer(job.right(), 0)?);
        let rank = rank_kind & 0xffff_ffff;
        for kind in 3..40 {
            let pointer: GlobalPtr<u64> = bytemuck::cast([id, rank | kind << 32, number, offset]);
            refused!(
                job.put_to(pointer, &[1]),
                Error::ForgedPointer { .. },
                "it is no pointer"
            );
        }
        for number in [0, number + 1, u64::MAX] {
            let pointer: GlobalPtr<u64> = bytemuck::cast([id, rank_kind, number, offset]);
            refused!(
                job.put_to(pointer, &[1]),
                Error::ForgedPointer { .. },
                "number"
            );
        }
        let extent = rank | 2 << 32;
        // Keys with a meaning of their own must not be reached through the safe API.
        for key in [0, u64::MAX] {
            let pointer: GlobalPtr<u64> = bytemuck::cast([id, extent, key, 0]);
            refused!(
                job.put_to(pointer, &[1]),
                Error::ForgedPointer { .. },
                "exposed buffer"
            );
            refused!(
                job.get_from(pointer, &mut [1]),
                Error::ForgedPointer { .. },
                "exposed buffer"
            );
        }
        for key in [1, 2, 77 << 32 | 1, u64::MAX - 1, 1 << 63] {
            let pointer: GlobalPtr<u64> = bytemuck::cast([id, extent, key, 0]);
            refused!(
                job.put_to(pointer, &[1]),
                Error::Revoked { .. },
                format!("rank {rank}")
            );
        }
        // Noise: whatever it names, it is an error and nothing is written.
        let mut noise = Random::new(1);
        for _ in 0..10_000 {
            let words: [u64; 4] = std::array::from_fn(|_| noise.word());
            let pointer: GlobalPtr<u64> = bytemuck::cast(words);
            assert!(job.put_to(pointer, &[1]).is_err());
            // The right job, rank and kinds, and noise in the rest.
            for kind in [1, 2] {
                let words = [id, rank | kind << 32, words[2], words[3]];
                let pointer: GlobalPtr<u64> = bytemuck::cast(words);
                assert!(job.put_to(pointer, &[1]).is_err(), "{pointer:?}");
            }
        }
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn from_another_job() {
    let stale = local(2, |job| {
        let f = Fixture::new(job)?;
        let exposed = job.expose(vec![1_u64; 4])?;
        Ok((f.memory.pointer(job.right(), 0)?, exposed.pointer(0)?))
    });
    local(2, |job| {
        // Same shape, so the numbers in the stale pointers name something here.
        let f = Fixture::new(job)?;
        let exposed = job.expose(vec![1_u64; 4])?;
        for (symmetric, extent) in &stale {
            for pointer in [*symmetric, *extent] {
                refused!(
                    job.put_to(pointer, &[1]),
                    Error::ForeignHandle {
                        what: "global pointer"
                    },
                    "another job"
                );
                refused!(
                    job.get_from(pointer, &mut [1]),
                    Error::ForeignHandle { .. },
                    "another job"
                );
            }
        }
        job.barrier()?;
        assert_eq!(exposed.take_back()[..], [1; 4]);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn misaligned() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let bytes = cast::<u64, u8>(f.memory.pointer(job.right(), 0)?);
        let skewed = cast::<u8, u64>(bytes.offset(3));
        refused!(
            job.put_to(skewed, &[1]),
            Error::Misaligned {
                offset: 3,
                align: 8,
                ..
            },
            "offset 3",
            "multiple of 8",
            "u64"
        );
        refused!(
            job.get_from(skewed, &mut [1]),
            Error::Misaligned { .. },
            "u64"
        );
        let exposed = job.expose(vec![9_u64; 4])?;
        let own = cast::<u8, u64>(cast::<u64, u8>(exposed.pointer(0)?).offset(4));
        refused!(
            job.put_to(own, &[1]),
            Error::Misaligned { offset: 4, .. },
            "multiple of 8"
        );
        assert_eq!(exposed.take_back()[..], [9; 4]);
        f.check(job)
    });
}

#[test_on(shared, veiled, pinned)]
fn to_nothing() {
    local(2, |job| {
        let f = Fixture::new(job)?;
        let exposed = job.expose(vec![9_u64; 4])?;
        for pointer in [f.memory.pointer(job.right(), 0)?, exposed.pointer(0)?] {
            let pointer = cast::<u64, ()>(pointer);
            refused!(
                job.put_to(pointer, &[()]),
                Error::ZeroSized { .. },
                "()",
                "size zero"
            );
            refused!(
                job.get_from(pointer, &mut [()]),
                Error::ZeroSized { .. },
                "size zero"
            );
            refused!(
                job.scope(|s| s.put_to(pointer, &[()]).map(drop)),
                Error::ZeroSized { .. },
                "()"
            );
        }
        f.check(job)
    });
}
