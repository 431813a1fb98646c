//! The end of a loan where a NIC pages: no registration tells who is still on the way.

use hydrant::{GlobalPtr, Rank, Strategy};

use crate::{network::simulated::on, support::good};

const BYTES: usize = 1 << 20;

/// A put takes longer than the loan lasts: the end of the loan waits for it.
#[test_on(simulated)]
fn puts_on_their_way_are_waited_for() {
    for profile in ["ideal", "connectx"] {
        let builder = on(profile).registration(Strategy::Paging);
        let puts = good(builder.run_local(2, |job| {
            let pointers = job.alloc::<GlobalPtr<u8>>(1)?;
            let lent = job.expose(vec![0_u8; BYTES])?;
            pointers.put_value(job.left(), 0, lent.pointer(0)?)?;
            job.barrier()?;
            let theirs = pointers.local()?.load(0)?;
            // Where it lies is known from here on.
            job.put_to(theirs, &[1])?;
            job.barrier()?;
            if job.rank() == Rank(1) {
                let put = job.put_to(theirs, &vec![7; BYTES]);
                job.barrier()?;
                return Ok(put.is_ok());
            }
            job.compute(2_000);
            let mut mine = lent.take_back();
            mine.fill(3);
            job.compute(500_000_000);
            job.poll();
            let mine = std::hint::black_box(&mine);
            assert!(
                mine.iter().all(|byte| *byte == 3),
                "{profile}: a late write"
            );
            job.barrier()?;
            Ok(true)
        }));
        assert!(puts[1], "{profile}: it was under way before the loan ended");
    }
}
