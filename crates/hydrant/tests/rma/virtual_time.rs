//! Where time is virtual it passes in every call, and what is waited for comes to its end.

use hydrant::{ConduitKind, Job, Rank, Result, Symmetric};

const MACHINES: [&str; 3] = ["ideal", "myrinet-gm", "connectx"];

/// Jobs of so many ranks on each machine: what their ranks return.
fn on_each<R: Send>(ranks: u32, body: impl Fn(&Job) -> Result<R> + Sync) -> Vec<Vec<R>> {
    let run = |machine: &str| {
        let builder = Job::builder().unwrap().heap(16 << 20);
        let ends = (builder.conduit(ConduitKind::Sim(machine.to_owned()))).run_local(ranks, &body);
        ends.into_iter().map(|end| end.unwrap()).collect()
    };
    MACHINES.map(run).into()
}

/// Rank 1 writes a page, which its NIC does alone; rank 0 looks until it sees that.
fn a_write_is_seen(look: impl Fn(&Job, &Symmetric<u64>) -> Result<u64> + Sync) {
    on_each(2, |job| {
        let words = job.alloc::<u64>(512)?;
        // Registered on both sides: from now on rank 0 has nothing to do for a put.
        if job.rank() == Rank(1) {
            words.put(Rank(0), 0, &[1; 512])?;
        }
        job.barrier()?;
        if job.rank() == Rank(1) {
            job.compute(100_000);
            words.put(Rank(0), 0, &[7; 512])?;
        } else {
            while look(job, &words)? != 7 {}
        }
        job.barrier()
    });
}

#[test]
fn a_loop_of_loads_ends() {
    a_write_is_seen(|_, words| words.local()?.load(0));
}

#[test]
fn a_loop_of_waits_for_what_is_so_already_ends() {
    a_write_is_seen(|job, words| job.wait_until(words, 0, |_| true));
}

#[test]
fn a_loop_of_reads_ends() {
    a_write_is_seen(|_, words| {
        let mut word = [0];
        words.local()?.read(0, &mut word)?;
        Ok(word[0])
    });
}

#[test]
fn a_loop_of_gets_of_own_memory_ends() {
    a_write_is_seen(|_, words| words.get_value(Rank(0), 0));
    a_write_is_seen(|_, words| {
        let mut word = [0];
        words.get(Rank(0), 0, &mut word)?;
        Ok(word[0])
    });
}

#[test]
fn handles_that_outlive_their_job_come_to_an_end() {
    for len in [64, 5000, 300_000, 8 << 20] {
        let handles = on_each(3, |job| {
            let memory = job.alloc::<u8>(8 << 20)?;
            job.barrier()?;
            let put = memory.put_nb(job.right(), 0, vec![3; len])?;
            let get = memory.get_nb(job.right(), 0, len)?;
            Ok((put, get))
        });
        for (put, get) in handles.into_iter().flatten() {
            // Whole, or lost with the job, but over.
            if let Ok(sent) = put.wait() {
                assert_eq!(sent.len(), len);
            }
            if let Ok(got) = get.wait() {
                assert_eq!(got.len(), len);
            }
        }
    }
}
