//! The first program: every rank puts a greeting into the memory of the next one, calls it,
//! and all add something up. `hydrant run -n 4 target/debug/examples/ring`

use hydrant::{Op, Rank, Signal};

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let field = job.alloc::<f64>(1 << 20)?; // every rank owns that many elements
        let arrived = job.alloc::<u64>(1)?;
        let (me, right) = (job.rank(), job.right());

        // One-sided: the rank to the right does nothing for this to arrive.
        let row = [f64::from(me.0); 8];
        field.put_signal(right, 0, &row, &arrived, 0, Signal::Set(1))?;
        job.wait_until(&arrived, 0, |word| word == 1)?;
        let from = field.local()?.load(0)?;

        // A typed call: it runs at the other rank, whatever that is doing.
        let greet = job.function(|caller: Rank, name: String| format!("{name}, rank {caller}"))?;
        let answer = job.call(right, &greet, &"hello".to_owned())?;

        let mut sum = [me.0];
        job.all_reduce(&mut sum, Op::Sum)?;
        println!(
            "row of rank {from} is here; rank {right} said: {answer}; sum {}",
            sum[0]
        );
        job.free(field)
    })
}
