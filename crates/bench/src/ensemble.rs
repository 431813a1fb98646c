//! Measurements with several ranks: rank 0 leads, and the others do their parts on command.
//!
//! [`Ensemble::solo`] runs work of rank 0 alone. [`Ensemble::together`] runs work of several ranks,
//! and every rank gives it the same list of sides. Rank 0 then puts into every rank's memory the
//! side to run and the number of operations. All ranks start from a barrier, and the longest time
//! that any rank reports counts. The coordination itself is not timed.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use hydrant::{Job, Rank, Symmetric};

use crate::bare::{BareWait, SharedWindow, WINDOW};
use crate::error::BenchError;
use crate::measure::{MeasurementPlan, Side};
use crate::network::{self, BareNetwork};
use crate::place::RankPlace;
use crate::report::{BenchEvent, Sender};
use crate::row::{Goal, Row};
use crate::timing::Timing;

/// The ranks of a job that measures.
pub(crate) struct Ensemble<'j> {
    /// The job.
    pub(crate) job: &'j Job,
    /// True for fewer sizes.
    pub(crate) quick: bool,
    /// Memory for the bare references, shared by all ranks.
    pub(crate) window: SharedWindow,
    /// The way that the two ranks of a bare reference wait for each other.
    pub(crate) wait: BareWait,
    /// A core that both ranks share where they must hand it over.
    pub(crate) core: usize,
    /// True if the network runs in virtual time.
    pub(crate) is_virtual: bool,
    /// Ranks for each core.
    pub(crate) crowding: f64,
    /// True if memory must be registered here.
    pub(crate) registered: bool,
    /// The bare network between rank 0 and its partner, where the job uses RDMA NICs.
    pub(crate) network: Option<RefCell<BareNetwork>>,
    /// True if the ranks are on several hosts, and so no memory is shared for a bare reference.
    pub(crate) between_hosts: bool,
    /// The times of single operations since the last report of a side.
    singles: RefCell<Vec<f64>>,
    plan: MeasurementPlan,
    /// Two command words of rank 0, then an answer word for each rank.
    control: Symmetric<u64>,
    /// Only on rank 0.
    sender: Option<Sender>,
}

/// The arguments of [`Ensemble::new`], from the command that started the ranks.
pub(crate) struct EnsembleSetup<'s> {
    /// The pipe to that command.
    pub(crate) report: &'s str,
    /// Cores the job may use.
    pub(crate) cores: u32,
    /// The amount to measure.
    pub(crate) plan: MeasurementPlan,
    /// True for fewer sizes.
    pub(crate) quick: bool,
    /// True if the user named hosts.
    pub(crate) on_hosts: bool,
    /// The bare network is measured, too; it takes memory in the processes of ranks 0 and 1.
    pub(crate) with_bare: bool,
}

/// Measures elapsed time, by the network's own clock where it runs in virtual time.
pub(crate) enum ElapsedTime<'j> {
    Real(Instant),
    Virtual(&'j Job, Duration),
}

impl ElapsedTime<'_> {
    #[inline(always)]
    pub(crate) fn elapsed(&self) -> Duration {
        match self {
            Self::Real(since) => since.elapsed(),
            Self::Virtual(job, since) => job.now().saturating_sub(*since),
        }
    }
}

impl<'j> Ensemble<'j> {
    /// Sets the ranks up. Collective, like all functions here.
    pub(crate) fn new(job: &'j Job, setup: &EnsembleSetup<'_>) -> hydrant::Result<Self> {
        let leads = job.rank() == Rank(0);
        if setup.on_hosts && job.conduit().registration.is_none() {
            return Err(BenchError::OneHost.into());
        }
        let sender = if leads {
            Some(Sender::open(setup.report).map_err(BenchError::Report)?)
        } else {
            None
        };
        let own = if leads {
            Some(SharedWindow::create(WINDOW).map_err(BenchError::Window)?)
        } else {
            None
        };
        let control = job.alloc::<u64>(2 + job.size() as usize)?;
        let address = send_command(
            job,
            &control,
            own.as_ref().map_or([0; 2], SharedWindow::address),
        )?;
        let window = match own {
            Some(window) => window,
            // Nothing is measured with it.
            None if setup.on_hosts => SharedWindow::create(WINDOW).map_err(BenchError::Window)?,
            None => {
                SharedWindow::open(address[0], address[1], WINDOW).map_err(BenchError::Window)?
            }
        };
        let core =
            send_command(job, &control, [rustix::thread::sched_getcpu() as u64, 0])?[0] as usize;
        let crowding = f64::from(job.size()) / f64::from(setup.cores.max(1));
        if setup.on_hosts {
            let places = places(job)?;
            if let Some(sender) = &sender {
                let place = BenchEvent::Place(job.conduit().name.to_owned(), places);
                sender.send(&place).map_err(BenchError::Report)?;
            }
        }
        Ok(Ensemble {
            job,
            between_hosts: setup.on_hosts,
            singles: RefCell::default(),
            quick: setup.quick,
            window,
            wait: if crowding <= 1.0 {
                BareWait::Spin
            } else {
                BareWait::Yield
            },
            core,
            crowding,
            is_virtual: job.conduit().name == "sim",
            registered: job.conduit().registration.is_some(),
            network: match setup.with_bare {
                true => network::connect(job)?,
                false => None,
            },
            plan: setup.plan,
            control,
            sender,
        })
    }

    /// Runs `op` `count` times and returns the time, virtual where the network has virtual time.
    #[inline(always)]
    pub(crate) fn timed(
        &self,
        count: u64,
        mut op: impl FnMut(u64) -> hydrant::Result<()>,
    ) -> hydrant::Result<Duration> {
        let watch = self.watch();
        for i in 0..count {
            op(i)?;
        }
        Ok(watch.elapsed())
    }

    /// Like [`timed`](Self::timed). Between hosts every operation also counts as a sample of its own.
    pub(crate) fn timed_singly(
        &self,
        count: u64,
        mut op: impl FnMut(u64) -> hydrant::Result<()>,
    ) -> hydrant::Result<Duration> {
        if !self.between_hosts {
            return self.timed(count, op);
        }
        let mut singles = self.singles.borrow_mut();
        self.timed(count, |i| {
            let since = Instant::now();
            op(i)?;
            singles.push(since.elapsed().as_secs_f64() * 1e9);
            Ok(())
        })
    }

    /// A watch that begins now.
    #[inline(always)]
    pub(crate) fn watch(&self) -> ElapsedTime<'j> {
        if self.is_virtual {
            ElapsedTime::Virtual(self.job, self.job.now())
        } else {
            ElapsedTime::Real(Instant::now())
        }
    }

    /// Measures work of rank 0 alone, while the others sleep in a barrier. Returns the medians, on
    /// rank 0.
    pub(crate) fn solo<const N: usize>(
        &self,
        what: &str,
        sides: [Side<'_>; N],
    ) -> hydrant::Result<Option<[f64; N]>> {
        Ok(self.solo_timings(what, sides)?.map(medians))
    }

    /// Like [`solo`](Self::solo), but returns the timings.
    pub(crate) fn solo_timings<const N: usize>(
        &self,
        what: &str,
        sides: [Side<'_>; N],
    ) -> hydrant::Result<Option<[Timing; N]>> {
        let timings = match self.sender {
            Some(_) => Some(self.alone_timings(what, sides)?),
            None => None,
        };
        self.job.barrier()?;
        Ok(timings)
    }

    /// Like [`solo`](Self::solo), but called only on rank 0. Returns the medians.
    pub(crate) fn alone<const N: usize>(
        &self,
        what: &str,
        sides: [Side<'_>; N],
    ) -> hydrant::Result<[f64; N]> {
        Ok(medians(self.alone_timings(what, sides)?))
    }

    fn alone_timings<const N: usize>(
        &self,
        what: &str,
        mut sides: [Side<'_>; N],
    ) -> hydrant::Result<[Timing; N]> {
        self.next(what)?;
        let timings = self.plan.alone(&mut sides)?;
        Ok(timings.try_into().expect("a timing of each side"))
    }

    /// Measures work of several ranks. Each side is this rank's part; a part that only answers
    /// reports no time. Returns the medians, on rank 0.
    pub(crate) fn together<const N: usize>(
        &self,
        what: &str,
        sides: [Side<'_>; N],
    ) -> hydrant::Result<Option<[f64; N]>> {
        Ok(self.together_timings(what, sides)?.map(medians))
    }

    /// Like [`together`](Self::together), but returns the timings.
    pub(crate) fn together_timings<const N: usize>(
        &self,
        what: &str,
        sides: [Side<'_>; N],
    ) -> hydrant::Result<Option<[Timing; N]>> {
        match self.sender {
            Some(_) => self.lead(what, sides).map(Some),
            None => self.follow(sides).map(|()| None),
        }
    }

    /// Like [`together_timings`](Self::together_timings), of one side and its bare reference. There is none between
    /// hosts without RDMA.
    pub(crate) fn beside_bare(
        &self,
        what: &str,
        bare: Side<'_>,
        ours: Side<'_>,
    ) -> hydrant::Result<Option<BesideBare>> {
        if !self.has_bare() {
            let timings = self.together_timings(what, [ours])?;
            return Ok(timings.map(|[ours]| BesideBare { ours, bare: None }));
        }
        let timings = self.together_timings(what, [bare, ours])?;
        Ok(timings.map(|[bare, ours]| BesideBare {
            ours,
            bare: Some(bare.median()),
        }))
    }

    /// Returns true if there is a bare network, or memory for a bare exchange.
    pub(crate) fn has_bare(&self) -> bool {
        network::is_known(self.job) || !self.between_hosts
    }

    /// A row in nanoseconds, with the spread of the samples between hosts.
    pub(crate) fn timed_row(&self, bench: &str, case: impl Into<String>, timing: &Timing) -> Row {
        self.row_of(bench, case, "ns", timing)
    }

    /// Like [`timed_row`](Self::timed_row), in another unit.
    pub(crate) fn row_of(
        &self,
        bench: &str,
        case: impl Into<String>,
        unit: &str,
        timing: &Timing,
    ) -> Row {
        let row = Row::new(bench, case, unit, timing.median());
        row.spread(timing.spread().filter(|_| self.between_hosts))
    }

    fn lead<const N: usize>(
        &self,
        what: &str,
        sides: [Side<'_>; N],
    ) -> hydrant::Result<[Timing; N]> {
        self.next(what)?;
        let mut number = 0;
        let mut led = sides.map(|side| {
            let own = number;
            number += 1;
            move |count| {
                self.command([own, count])?;
                self.longest(side(count)?)
            }
        });
        let mut sides = led.each_mut().map(|side| side as Side<'_>);
        let timings = (self.plan).in_turns(&mut sides, &mut || self.singles.take())?;
        self.command([N as u64, 0])?;
        Ok(timings.try_into().expect("a timing of each side"))
    }

    fn follow<const N: usize>(&self, mut sides: [Side<'_>; N]) -> hydrant::Result<()> {
        loop {
            let [number, count] = self.command([0; 2])?;
            match sides.get_mut(number as usize) {
                Some(side) => self.longest(side(count)?)?,
                None => return Ok(()),
            };
            // Only those of rank 0 count.
            self.singles.take();
        }
    }

    /// The command of rank 0: the side to run, and the number of operations.
    fn command(&self, command: [u64; 2]) -> hydrant::Result<[u64; 2]> {
        send_command(self.job, &self.control, command)
    }

    fn longest(&self, took: Duration) -> hydrant::Result<Duration> {
        let nanos = self.gather(took.as_nanos() as u64)?;
        Ok(Duration::from_nanos(nanos.into_iter().max().unwrap_or(0)))
    }

    /// Gathers a number from every rank. Returns nothing on ranks other than 0.
    pub(crate) fn gather(&self, number: u64) -> hydrant::Result<Vec<u64>> {
        self.control
            .put_value(Rank(0), 2 + self.job.rank().index(), number)?;
        self.job.barrier()?;
        let mut numbers = Vec::new();
        if self.sender.is_some() {
            numbers.resize(self.job.size() as usize, 0);
            self.control.local()?.read(2, &mut numbers)?;
        }
        self.job.barrier()?;
        Ok(numbers)
    }

    /// Names the next measurement, for the progress bar.
    pub(crate) fn next(&self, what: &str) -> hydrant::Result<()> {
        self.send(&BenchEvent::Next(what.to_owned()))
    }

    /// Reports a row. Only the row of rank 0 counts.
    pub(crate) fn row(&self, row: Row) -> hydrant::Result<()> {
        self.send(&BenchEvent::Row(Box::new(row)))
    }

    fn send(&self, event: &BenchEvent) -> hydrant::Result<()> {
        match &self.sender {
            Some(sender) => Ok(sender.send(event).map_err(BenchError::Report)?),
            None => Ok(()),
        }
    }

    /// The goal, if every rank has a core, for which goals are stated.
    pub(crate) fn uncrowded(&self, goal: Goal) -> Option<Goal> {
        (self.crowding <= 1.0).then_some(goal)
    }

    /// This rank's number.
    pub(crate) fn rank(&self) -> u32 {
        self.job.rank().0
    }

    /// Every size from `least` to `most` in steps of two. Only a few of them in a quick run, or
    /// where every operation takes long.
    pub(crate) fn sizes(&self, least: u64, most: u64) -> Vec<u64> {
        sizes(least, most, self.quick || self.registered)
    }
}

/// The times of a side, and the median of its bare reference.
pub(crate) struct BesideBare {
    pub(crate) ours: Timing,
    pub(crate) bare: Option<f64>,
}

fn medians<const N: usize>(timings: [Timing; N]) -> [f64; N] {
    timings.map(|timing| timing.median())
}

/// Gathers the place of each rank. Returns nothing on ranks other than 0.
fn places(job: &Job) -> hydrant::Result<Vec<RankPlace>> {
    let all = job.alloc::<u8>(RankPlace::BYTES * job.size() as usize)?;
    let own = RankPlace::here(job.port()).encode();
    all.put(Rank(0), RankPlace::BYTES * job.rank().index(), &own)?;
    job.barrier()?;
    let mut bytes = Vec::new();
    if job.rank() == Rank(0) {
        bytes.resize(all.len(), 0);
        all.local()?.read(0, &mut bytes)?;
    }
    job.free(all)?;
    Ok(bytes
        .chunks(RankPlace::BYTES)
        .map(RankPlace::decode)
        .collect())
}

/// Every size from `least` to `most` in steps of two, or a few of them.
pub(crate) fn sizes(least: u64, most: u64, few: bool) -> Vec<u64> {
    const FEW: [u64; 5] = [8, 64, 4 << 10, 64 << 10, 1 << 20];
    let sizes = std::iter::successors(Some(least), |size| Some(size * 2));
    let sizes = sizes.take_while(|size| *size <= most);
    sizes.filter(|size| !few || FEW.contains(size)).collect()
}

/// Sends the words of rank 0 to every rank. It ends in a barrier: all ranks continue together, and
/// the next words do not come before these are read.
fn send_command(
    job: &Job,
    control: &Symmetric<u64>,
    mut words: [u64; 2],
) -> hydrant::Result<[u64; 2]> {
    if job.rank() == Rank(0) {
        for rank in job.ranks() {
            control.put(rank, 0, &words)?;
        }
    }
    job.barrier()?;
    control.local()?.read(0, &mut words)?;
    job.barrier()?;
    Ok(words)
}
