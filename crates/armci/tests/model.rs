//! Random operations of every kind on other processes' memory, compared with serial copies, on
//! networks with different protocols.

#![allow(unsafe_code)] // memory is named by its address
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a block is one step of a program on memory that the test owns"
)]

use armci::{ACC_LNG, Armci, Error, Handle, Result, Strides, Vector};
use hydrant::{ConduitKind, Job, JobBuilder, Strategy};
use hydrant_base::Random;

/// The bytes of each process's memory that one other process uses.
const BYTES: usize = 96 << 10;
/// The operations of each process.
const OPERATIONS: usize = 400;

fn builder() -> JobBuilder {
    let builder = Job::builder().expect("the settings are valid");
    builder.heap(64 << 20)
}

fn three(builder: JobBuilder) {
    let ends = builder.run_local(3, |job| Ok(process(job)));
    for (rank, end) in ends.into_iter().enumerate() {
        let end = end.map_err(Error::from).and_then(|end| end);
        end.unwrap_or_else(|error| panic!("process {rank}: {error}"));
    }
}

#[test]
fn operations_match_the_model_in_virtual_time() {
    for profile in ["myrinet-gm-armci", "clan-via", "myrinet-gm"] {
        three(builder().conduit(ConduitKind::Sim(profile.to_owned())));
    }
}

#[test]
fn operations_match_the_model_where_memory_is_pinned() {
    for strategy in [Strategy::Firehose, Strategy::Bounce, Strategy::PinDown] {
        let builder = builder()
            .conduit(ConduitKind::Pinned)
            .registration(strategy);
        three(builder.m(256 << 10).maxvictim(128 << 10));
    }
}

#[test]
fn operations_match_the_model_without_a_service_thread() {
    let builder = builder().conduit(ConduitKind::Pinned);
    three(builder.service(false));
}

/// Two sums of numbers at different offsets carry into each other. The later one takes effect
/// later, though the first takes many messages.
#[test]
fn accumulates_to_overlapping_numbers_keep_their_order() {
    const LONG: usize = 64 << 10;
    let network = ConduitKind::Sim("myrinet-gm".to_owned());
    let ends = builder().conduit(network).run_local(2, |job| {
        let body = || -> Result<()> {
            let armci = Armci::new(job, None)?;
            let all = armci.malloc(LONG as i64)?;
            let own = all[armci.me() as usize];
            // SAFETY: this is this process's own part, and nobody else uses it before the barrier.
            unsafe { own.write_bytes(0x99, LONG) };
            armci.barrier()?;
            if armci.me() == 0 {
                let mut right = vec![0x99_u8; LONG];
                let more: Vec<u8> = (0..LONG).map(|at| (at * 151 / 7) as u8).collect();
                // SAFETY: ARMCI allocated the destination, and the sources are free when the calls
                // return.
                unsafe {
                    let scale = Armci::scale(ACC_LNG, 1_i64.to_ne_bytes().as_ptr())?;
                    for (start, bytes) in [(0, LONG), (LONG - 4095, 4088)] {
                        let strides = Strides {
                            src: &[0],
                            dst: &[0],
                            count: &[bytes as i32, 1],
                        };
                        let at = all[1].wrapping_add(start);
                        armci.accumulate_strided_nb(&scale, more.as_ptr(), at, strides, 1, None)?;
                        add(&mut right[start..][..bytes], &more, 1);
                    }
                    let mut sums = vec![0_u8; LONG];
                    armci.get(all[1], sums.as_mut_ptr(), LONG as i32, 1)?;
                    assert_eq!(sums.iter().zip(&right).position(|(a, b)| a != b), None);
                }
            }
            armci.barrier()
        };
        Ok(body())
    });
    for (rank, end) in ends.into_iter().enumerate() {
        let end = end.map_err(Error::from).and_then(|end| end);
        end.unwrap_or_else(|error| panic!("process {rank}: {error}"));
    }
}

/// Adds a factor's multiples of numbers to other numbers.
fn add(sums: &mut [u8], more: &[u8], factor: i64) {
    for (sum, more) in sums.chunks_exact_mut(8).zip(more.chunks_exact(8)) {
        let [old, more] = [&*sum, more].map(|it| i64::from_ne_bytes(it.try_into().unwrap()));
        sum.copy_from_slice(&old.wrapping_add(factor.wrapping_mul(more)).to_ne_bytes());
    }
}

/// The runs of an operation: the bytes of each, and its offset there and here.
struct RandomRuns {
    bytes: usize,
    places: Vec<(usize, usize)>,
    steps: [i32; 2],
}

impl RandomRuns {
    /// Runs of whole words that do not overlap on either side.
    fn draw(dice: &mut Random) -> Self {
        let bytes = 8 * match dice.below(4) {
            0 => 1,
            1 => dice.below(40) + 1,
            2 => dice.below(200) + 1,
            _ => dice.below(1200) + 1,
        };
        let count = (dice.below(30) + 1).min(BYTES / 2 / (bytes + 24));
        let steps = [bytes + 8 * dice.below(3), bytes + 8 * dice.below(2)];
        let start = dice.below(BYTES - count * steps[0]);
        let places = (0..count).map(|at| (start + at * steps[0], at * steps[1]));
        Self {
            bytes,
            places: places.collect(),
            steps: steps.map(|step| step as i32),
        }
    }

    fn span(&self) -> usize {
        self.places.last().map_or(0, |(_, here)| here + self.bytes)
    }
}

/// An operation in flight: its handle, its memory here, and the answer of a get.
struct BegunOperation {
    handle: Handle,
    own: Vec<u8>,
    right: Option<Vec<u8>>,
}

impl BegunOperation {
    fn end(mut self, armci: &Armci) -> Result<()> {
        armci.wait(Some(&mut self.handle))?;
        if let Some(right) = &self.right {
            let differs = self.own.iter().zip(right).position(|(a, b)| a != b);
            assert_eq!(
                differs,
                None,
                "the first byte of {} that differs",
                right.len()
            );
        }
        Ok(())
    }
}

fn process(job: &Job) -> Result<()> {
    let armci = Armci::new(job, None)?;
    let (me, all) = (armci.me() as usize, armci.processes() as usize);
    let memory = armci.malloc((BYTES * all) as i64)?;
    // SAFETY: this is this process's own part, and nobody else uses it before the barrier.
    unsafe { memory[me].write_bytes(0, BYTES * all) };
    armci.barrier()?;
    let mut dice = Random::new(me as u64);
    let mut models = vec![vec![0_u8; BYTES]; all];
    let mut begun: Vec<BegunOperation> = Vec::new();
    for _ in 0..OPERATIONS {
        let proc = dice.below(all);
        let there = memory[proc].wrapping_add(me * BYTES);
        let gathers = dice.below(3) == 0;
        let mut handle = Handle {
            is_aggregate: i32::from(gathers),
            ..Handle::default()
        };
        let runs = RandomRuns::draw(&mut dice);
        let mut own: Vec<u8> = (0..runs.span()).map(|_| dice.below(256) as u8).collect();
        let here = own.as_mut_ptr();
        let [remote, local] = [0, 1].map(|side| [runs.steps[side]]);
        let count = [runs.bytes as i32, runs.places.len() as i32];
        let at = there.wrapping_add(runs.places[0].0);
        let (theirs, ours): (Vec<_>, Vec<_>) = (runs.places.iter())
            .map(|(there_at, at)| (there.wrapping_add(*there_at), here.wrapping_add(*at)))
            .unzip();
        let (model, proc) = (&mut models[proc], proc as i32);
        let mut right = None;
        // SAFETY: ARMCI allocated the memory there. The operation keeps the memory here until it is
        // waited for.
        unsafe {
            match dice.below(6) {
                0 | 1 => {
                    let strides = Strides {
                        src: &local,
                        dst: &remote,
                        count: &count,
                    };
                    let vector = Vector {
                        src: &ours,
                        dst: &theirs,
                        bytes: runs.bytes,
                    };
                    match dice.below(3) {
                        0 => armci.put_strided_nb(here, at, strides, proc, Some(&mut handle))?,
                        1 => armci.put_vector_nb(&[vector], proc, Some(&mut handle))?,
                        _ => armci.put_vector(&[vector], proc)?,
                    }
                    for (to, from) in &runs.places {
                        model[*to..][..runs.bytes].copy_from_slice(&own[*from..][..runs.bytes]);
                    }
                }
                2 | 3 => {
                    let mut wanted = own.clone();
                    for (from, to) in &runs.places {
                        wanted[*to..][..runs.bytes].copy_from_slice(&model[*from..][..runs.bytes]);
                    }
                    right = Some(wanted);
                    let strides = Strides {
                        src: &remote,
                        dst: &local,
                        count: &count,
                    };
                    let vector = Vector {
                        src: &theirs,
                        dst: &ours,
                        bytes: runs.bytes,
                    };
                    match dice.below(3) {
                        0 => armci.get_strided_nb(at, here, strides, proc, Some(&mut handle))?,
                        1 => armci.get_vector_nb(&[vector], proc, Some(&mut handle))?,
                        _ => armci.get_vector(&[vector], proc)?,
                    }
                }
                4 => {
                    let factor = dice.below(5) as i64 - 2;
                    let scale = Armci::scale(ACC_LNG, (&raw const factor).cast())?;
                    let strides = Strides {
                        src: &local,
                        dst: &remote,
                        count: &count,
                    };
                    armci.accumulate_strided_nb(
                        &scale,
                        here,
                        at,
                        strides,
                        proc,
                        Some(&mut handle),
                    )?;
                    for (to, from) in &runs.places {
                        add(&mut model[*to..][..runs.bytes], &own[*from..], factor);
                    }
                    // The source is free.
                    own.fill(0xee);
                }
                _ => match dice.below(3) {
                    0 => armci.fence(proc)?,
                    1 => armci.all_fence()?,
                    _ if begun.is_empty() => {}
                    _ => begun.swap_remove(dice.below(begun.len())).end(&armci)?,
                },
            }
        }
        begun.push(BegunOperation { handle, own, right });
        if begun.len() > 20 {
            begun.swap_remove(dice.below(20)).end(&armci)?;
        }
    }
    begun.into_iter().try_for_each(|it| it.end(&armci))?;
    armci.barrier()?;
    for (from, model) in models.iter().enumerate() {
        let mut own = vec![0_u8; BYTES];
        // SAFETY: ARMCI allocated the source, and the buffer has as many bytes.
        unsafe {
            let there = memory[from].wrapping_add(me * BYTES);
            armci.get(there, own.as_mut_ptr(), BYTES as i32, from as i32)?;
        }
        assert!(own == *model, "what process {from} has in the end");
    }
    armci.barrier()
}
