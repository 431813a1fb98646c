//! Table 2: the latency of a get, a lock, an unlock and a read-modify-write. Latencies within a
//! host do not depend on the network; `hydrant bench armci` measures them.

#![allow(unsafe_code)] // ARMCI names memory by its address

use std::time::Duration;

use armci::Rmw;
use hydrant::Strategy;

use super::super::job::{MB, SECOND, Setup, micros, timed};
use super::super::part::{Cell, Part, Sheet};
use super::super::published::value;
use super::super::{ExperimentInputs, PaperResult};
use super::{ArmciWorld, GM, VIA, raised};

/// The timed operations, by their names among the papers' figures.
const OPERATIONS: [&str; 4] = ["get", "lock", "unlock", "rmw"];

/// Table 2.
pub(in super::super) fn table_2(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "armci-table-2",
        "ARMCI, table 2: latencies of remote operations",
    );
    part.note(
        "One rank gets eight bytes of the other, locks and unlocks a mutex that it owns and nobody \
         else wants, and adds to a word of it; the other computes. What an unlock sends is done before the \
         next is timed. The time of an interrupt in both \
         profiles comes from this table's get, so that this row is a check and not a prediction; the \
         others are predictions. The table's column of the SMP node is in real time: `hydrant bench \
         armci` measures it.",
    );
    let rounds = inputs.pick(64, 8);
    let mut sheet = Sheet::new(
        "armci-table-2",
        "table 2",
        &[
            "operation",
            "myrinet_paper_us",
            "myrinet_us",
            "clan_paper_us",
            "clan_us",
        ],
    );
    let mut columns = Vec::new();
    for (machine, name) in [(GM, "myrinet"), (VIA, "clan")] {
        inputs.doing(format!("ARMCI: table 2, {name}"));
        columns.push((name, latencies(machine, rounds)?.map(micros)));
    }
    for (row, operation) in OPERATIONS.into_iter().enumerate() {
        let mut cells: Vec<Cell> = vec![operation.into()];
        for (name, times) in &columns {
            let paper = value("armci", &format!("{name}_{operation}"))?;
            cells.extend([paper.into(), times[row].into()]);
            // An unlock that is sent sooner is no worse.
            let least = if operation == "unlock" { 0.0 } else { 0.8 };
            let is_near = (least..=1.25).contains(&(times[row] / paper));
            part.expect(
                format!("{operation}, {name}"),
                format!("{paper} µs"),
                format!("{:.1} µs", times[row]),
                is_near,
                note_on(operation),
            );
        }
        sheet.row(cells);
    }
    part.sheets.push(sheet);
    Ok(part)
}

fn note_on(operation: &str) -> &'static str {
    match operation {
        "unlock" => "both end when the request is sent, after which the caller goes on",
        "rmw" => {
            "the paper has this as a request like the others; why it takes 6 µs more than them on \
             Myrinet it does not say, and the profile has no cost for it"
        }
        "get" => "the interrupt is calibrated from this",
        _ => "",
    }
}

/// The mean times of the operations.
fn latencies(machine: &str, rounds: u32) -> PaperResult<[Duration; 4]> {
    let setup = Setup::new(machine, Strategy::Bounce, 128 * MB, 64 * MB);
    let times = setup.run(|job| {
        let world = ArmciWorld::new(job)?;
        let (there, armci, proc) = (world.memory(8)?, &world.armci, SECOND.0 as i32);
        raised(armci.create_mutexes(1))?;
        let times = world.while_others_compute(job, || {
            let mut word = 0_u64;
            let to = std::ptr::from_mut(&mut word).cast();
            let mut times = [Duration::ZERO; 4];
            for round in 0..=rounds {
                let [get, lock, unlock] = [
                    // SAFETY: the word is this rank's own; `there` is another process's memory.
                    timed(job, || raised(unsafe { armci.get(there, to, 8, proc) }))?,
                    timed(job, || raised(armci.lock(0, proc)))?,
                    timed(job, || raised(armci.unlock(0, proc)))?,
                ];
                job.quiet()?;
                let once = [
                    get,
                    lock,
                    unlock,
                    timed(job, || {
                        // SAFETY: as above.
                        raised(unsafe {
                            armci.read_modify_write(Rmw::FetchAndAdd, there.cast(), 1_i64, proc)
                        })
                        .map(drop)
                    })?,
                ];
                // The first round pays one-time setup, and is not counted.
                if round > 0 {
                    (times.iter_mut().zip(once)).for_each(|(sum, time)| *sum += time);
                }
            }
            Ok(times.map(|time| time / rounds))
        })?;
        raised(armci.destroy_mutexes())?;
        Ok(times.unwrap_or_default())
    })?;
    Ok(times)
}
