//! A job's machine: all ranks of this process, in one virtual time.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hydrant_conduit::{Caps, Cost, Error, Rank, Registration, Standings};

use crate::{
    Options, Profile, Sim, Statistics,
    event::Event,
    memory::{PAGE, Segment},
    state::{Fixed, State},
    time::{Time, duration, picos},
    turns::ActorId,
    watchdog,
};

/// Most 64-bit arguments of a message.
const MAX_ARGS: usize = 16;

/// The machine of a job: every rank is a [`Sim`] of it, driven by threads of this process.
pub struct World {
    pub(crate) fixed: Fixed,
    /// Under a lock of std, which allocates nothing: who waits for it depends on real time, and
    /// nothing that a rank allocates may.
    state: Mutex<State>,
    /// Tells worlds apart in what threads remember.
    pub(crate) id: u64,
    this: std::sync::Weak<World>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, ranks) = (self.fixed.profile.name(), self.fixed.segments.len());
        write!(f, "World({name}, {ranks} ranks)")
    }
}

impl World {
    /// A machine of so many ranks.
    ///
    /// # Errors
    /// [`Error::System`] if the segments cannot be mapped; [`Error::Unreachable`] for a job of
    /// no ranks, or a fault that no run can have.
    pub fn new(profile: Profile, ranks: u32, options: Options) -> Result<Arc<Self>, Error> {
        static WORLDS: AtomicU64 = AtomicU64::new(1);
        let faults = &options.faults;
        let named = (faults.deaths.iter().map(|(rank, _)| *rank))
            .chain(faults.busy.iter().map(|(rank, ..)| *rank));
        for rank in named {
            if rank.0 >= ranks {
                let what = format!("a fault of rank {rank} in a job of {ranks} ranks");
                return Err(Error::Unreachable(what));
            }
        }
        if ranks == 0 || !(0.0..1.0).contains(&faults.loss) {
            let what = format!(
                "a job of {ranks} ranks that loses {} of its packets cannot be simulated",
                faults.loss
            );
            return Err(Error::Unreachable(what));
        }
        let segments = (0..ranks)
            .map(|_| Segment::new(options.segment))
            .collect::<Result<Vec<_>, _>>()?;
        let loss = profile.link().loss + (faults.loss * 4_294_967_296.0) as u64;
        let mut state = State::new(ranks as usize, &profile, options.seed);
        for (rank, time) in &faults.deaths {
            state.events.at(picos(*time), Event::Death(rank.0));
        }
        for (rank, from, until) in &faults.busy {
            let busy = &mut state.ranks[rank.index()].busy;
            busy.push((picos(*from), picos(*until)));
        }
        let fixed = Fixed {
            caps: caps(&profile, options.segment),
            segments,
            loss,
            delay: picos(faults.delay),
            moment: moment(&profile),
            standings: Standings::new(ranks),
            profile,
        };
        let world = Arc::new_cyclic(|this| Self {
            fixed,
            state: Mutex::new(state),
            id: WORLDS.fetch_add(1, Relaxed),
            this: this.clone(),
        });
        watchdog::start(&world)?;
        Ok(world)
    }

    /// The conduit of a rank; several of one rank are the same rank. The rank is lost when all
    /// of them are gone and it did not leave.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn conduit(self: &Arc<Self>, rank: Rank) -> Sim {
        let ranks = self.fixed.segments.len();
        assert!(
            rank.index() < ranks,
            "rank {rank} in a job of {ranks} ranks"
        );
        self.lock().ranks[rank.index()].handles += 1;
        Sim::new(Arc::clone(self), rank)
    }

    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.fixed.segments.len() as u32
    }

    /// The machine's figures.
    pub fn profile(&self) -> &Profile {
        &self.fixed.profile
    }

    /// What a rank did so far.
    pub fn statistics(&self, rank: Rank) -> Statistics {
        let state = self.lock();
        (state.ranks.get(rank.index())).map_or_else(Statistics::default, |rank| Statistics {
            registering: duration(rank.registering),
            computing: duration(rank.computing),
            ..rank.statistics
        })
    }

    /// The time of what happened last, on any rank.
    pub fn now(&self) -> Duration {
        duration(self.lock().now)
    }

    /// A number that follows from everything that happened and when: two runs that have the
    /// same did the same.
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn weak(&self) -> std::sync::Weak<World> {
        self.this.clone()
    }

    /// Nobody has the turn: it goes to the earliest.
    pub(crate) fn pass_on(&self, mut state: MutexGuard<'_, State>) {
        if state.turns.running.is_some() {
            return;
        }
        let next = state.advance(&self.fixed);
        let seat = next.map(|id| Arc::clone(&state.turns.actors[id].seat));
        drop(state);
        if let Some(seat) = seat {
            seat.go();
        }
    }

    /// An actor's thread has ended.
    pub(crate) fn retire(&self, actor: ActorId) {
        let mut state = self.lock();
        state.turns.retire(actor);
        self.pass_on(state);
    }

    /// A rank's part ends without a turn: the game has not begun, or nobody stands for it.
    pub(crate) fn end_early(&self, rank: Rank) -> bool {
        let mut state = self.lock();
        if state.turns.open {
            return false;
        }
        state.end(&self.fixed, rank.index(), false);
        // Perhaps it was the last that the others waited for.
        self.pass_on(state);
        true
    }

    /// One conduit less stands for the rank: whether it was the last.
    pub(crate) fn let_go(&self, rank: Rank) -> bool {
        let handles = &mut self.lock().ranks[rank.index()].handles;
        *handles -= 1;
        *handles == 0
    }
}

fn moment(profile: &Profile) -> Time {
    let (nic, link) = (profile.nic(), profile.link());
    nic.send.0 + nic.receive.0 + 2 * nic.packet.0 + link.latency.0
}

fn caps(profile: &Profile, segment: usize) -> Caps {
    let (nic, costs) = (profile.nic(), profile.registration());
    let max_bytes = usize::try_from(nic.max_bytes).unwrap_or(usize::MAX);
    let long = 1 << 20;
    Caps {
        name: "sim",
        registration: Some(Registration {
            page: PAGE,
            register: Cost {
                per_op_ns: costs.register_op.as_ns(),
                per_page_ns: costs.register_page.as_ns(),
            },
            deregister: Cost {
                per_op_ns: costs.deregister_op.as_ns(),
                per_page_ns: costs.deregister_page.as_ns(),
            },
            copy_ns_per_byte: profile.host().copying(long) as f64 / 1e3 / long as f64,
            max_extent: max_bytes,
            max_bytes,
            follows_mapping: true,
            inline: 0,
        }),
        reads: nic.reads,
        stores_wake: true,
        // None of the machines of the papers had any.
        atomics: None,
        any_address: true,
        max_args: MAX_ARGS,
        max_payload: profile.message().max_payload as usize,
        segment,
    }
}
