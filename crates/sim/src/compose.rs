//! Builds the machine of a job, and its ranks' conduits, from a profile and options.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hydrant_conduit::{Caps, Cost, Error, Rank, RegistrationCaps, Standings};

use crate::{
    Profile, Sim, SimOptions, World,
    event::SimEvent,
    memory::{PAGE, Segment},
    state::{SimShared, SimState},
    time::{VirtualTime, picos},
    watchdog,
};

/// The maximum number of 64-bit arguments of a message.
const MAX_ARGS: usize = 16;

impl World {
    /// Makes a machine of `ranks` ranks.
    ///
    /// # Errors
    /// [`Error::System`] if the segments cannot be mapped; [`Error::Unreachable`] for a job of
    /// no ranks, or a fault that no run can have.
    pub fn new(profile: Profile, ranks: u32, options: SimOptions) -> Result<Arc<Self>, Error> {
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
        let mut state = SimState::new(ranks as usize, &profile, options.seed);
        for (rank, time) in &faults.deaths {
            state.events.at(picos(*time), SimEvent::Death(rank.0));
        }
        for (rank, from, until) in &faults.busy {
            let busy = &mut state.ranks[rank.index()].busy;
            busy.push((picos(*from), picos(*until)));
        }
        let fixed = SimShared {
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

    /// Returns a conduit of a rank; several conduits may share one rank. The rank is lost when all
    /// of them are dropped and none left.
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
}

fn moment(profile: &Profile) -> VirtualTime {
    let (nic, link) = (profile.nic(), profile.link());
    nic.send.0 + nic.receive.0 + 2 * nic.packet.0 + link.latency.0
}

fn caps(profile: &Profile, segment: usize) -> Caps {
    let (nic, costs) = (profile.nic(), profile.registration());
    let max_bytes = usize::try_from(nic.max_bytes).unwrap_or(usize::MAX);
    let long = 1 << 20;
    Caps {
        name: "sim",
        registration: Some(RegistrationCaps {
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
            pins_read_only: true,
            local: true,
            inline: 0,
        }),
        reads: nic.reads,
        host_ranks: 1,
        stores_wake: true,
        // None of the papers' machines had network atomics.
        atomics: None,
        any_address: true,
        max_args: MAX_ARGS,
        max_payload: profile.message().max_payload as usize,
        segment,
    }
}
