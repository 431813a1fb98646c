//! Memory that must stay as it is, and a look whether the job still works.

use hydrant::{Job, Result, Symmetric};

/// Elements of [`Fixture::memory`] on each rank.
pub(crate) const LEN: usize = 16;

/// The result is the error named, and its text has every piece in it.
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?, $($piece:expr),+ $(,)?) => {{
        let refused = $result.map(|_| ()).expect_err(concat!(stringify!($result), " was accepted"));
        let error = hydrant::Error::from(refused);
        assert!(matches!(error, $pattern $(if $guard)?), "{}: {error:?}", stringify!($result));
        let text = error.to_string();
        $({
            let piece = $piece.to_string();
            assert!(text.contains(&piece), "`{text}` does not say `{piece}`");
        })+
    }};
}

/// Memory with known contents.
pub(crate) struct Fixture {
    pub(crate) memory: Symmetric<u64>,
}

impl Fixture {
    /// Collective.
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let memory = job.alloc(LEN)?;
        memory.local()?.write(0, &Self::contents(job))?;
        job.barrier()?;
        Ok(Self { memory })
    }

    fn contents(job: &Job) -> [u64; LEN] {
        std::array::from_fn(|index| 1000 * (1 + u64::from(job.rank().0)) + index as u64)
    }

    /// No rank's memory changed, and the job does what jobs do. Collective.
    pub(crate) fn check(&self, job: &Job) -> Result<()> {
        job.barrier()?;
        let here = self.memory.local()?.to_vec();
        assert_eq!(here, Self::contents(job), "the target was changed");
        let own = u64::from(job.rank().0);
        job.barrier()?;
        self.memory.put(job.right(), 3, &[own, own + 1])?;
        self.memory.add(job.right(), 5, own)?;
        job.quiet()?;
        job.barrier()?;
        let left = u64::from(job.left().0);
        let mut got = [0; 2];
        self.memory.get(job.rank(), 3, &mut got)?;
        assert_eq!(got, [left, left + 1]);
        let twice = job.function(|_, number: u64| 2 * number)?;
        assert_eq!(job.call(job.right(), &twice, &21)?, 42);
        job.am_quiet()?;
        job.barrier()
    }
}
