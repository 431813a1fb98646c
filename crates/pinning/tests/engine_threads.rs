//! Threads that hit without a lock, beside an engine behind one. Each waiter for firehoses or own
//! memory is served, whoever gives them back.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use hydrant_base::Random;
use hydrant_pinning::{
    AccessVerdict, Action, Config, Decisions, Direction, Engine, EngineOperation, Hot, KeptHit,
    OwnMemory, RegionNumber, RegisteredExtent,
};

const BUCKET: u64 = 4096;

/// Two ranks, of which the first begins operations. Decisions are carried out at once.
struct LockedPair {
    engines: [Engine; 2],
    keys: u64,
    done: BTreeSet<u64>,
}

impl LockedPair {
    fn run(&mut self, rank: usize, decided: Decisions) {
        let mut todo = VecDeque::from([(rank, decided)]);
        while let Some((rank, decided)) = todo.pop_front() {
            for sent in decided.messages {
                let mut out = Decisions::default();
                let at = sent.to as usize;
                let engine = &mut self.engines[at];
                let outcome =
                    engine.message(rank as u32, sent.message, AccessVerdict::Fine, &mut out);
                outcome.expect("both keep the rules");
                todo.push_back((at, out));
            }
            let mut out = Decisions::default();
            for action in decided.actions {
                match action {
                    Action::Register { id, need, .. } => {
                        self.keys += 1;
                        let registered = RegisteredExtent {
                            run: need,
                            key: self.keys,
                            writable: true,
                        };
                        self.engines[rank].registered(id, Ok(registered), &mut out);
                    }
                    Action::Deregister { id, .. } => self.engines[rank].deregistered(id, &mut out),
                    Action::Transfer { id, .. } => {
                        self.engines[rank].transferred(id, Ok(()), &mut out);
                    }
                    Action::Done { op, result } => {
                        result.expect("nothing fails here");
                        self.done.insert(op);
                    }
                    Action::Revoked { id } => {
                        self.done.insert(id);
                    }
                    Action::Land { .. } | Action::Pinned { .. } => panic!("{action:?}"),
                }
            }
            if !out.is_empty() {
                todo.push_back((rank, out));
            }
        }
    }

    fn tell(&mut self, rank: usize, tell: impl FnOnce(&mut Engine, &mut Decisions)) {
        let mut out = Decisions::default();
        tell(&mut self.engines[rank], &mut out);
        self.run(rank, out);
    }
}

fn lock(pair: &Mutex<LockedPair>) -> MutexGuard<'_, LockedPair> {
    pair.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hits whose operations are in flight. Any thread ends them.
struct InFlight<'a> {
    hot: &'a Hot,
    pair: &'a Mutex<LockedPair>,
    hits: Mutex<Vec<KeptHit>>,
}

impl InFlight<'_> {
    /// More hits than a thread announces at once.
    const MOST: usize = 100;

    fn add(&self, hit: KeptHit) {
        let mut hits = self.hits.lock().unwrap();
        hits.push(hit);
        let is_full = hits.len() == Self::MOST;
        drop(hits);
        if is_full {
            self.end_all();
        }
    }

    fn end_all(&self) {
        let hits = std::mem::take(&mut *self.hits.lock().unwrap());
        for hit in hits {
            if self.hot.release_kept(&hit) {
                lock(self.pair).tell(0, |engine, out| engine.released(&hit, out));
            }
        }
    }

    /// Waits for an operation. It may need the sides of operations in flight.
    fn wait_for(&self, id: u64) {
        while !lock(self.pair).done.remove(&id) {
            self.end_all();
            thread::yield_now();
        }
    }
}

#[test]
fn every_waiter_is_served_after_a_hit_gave_its_sides_back() {
    let config = |rank| Config {
        m: 2 * BUCKET,
        maxvictim: 2 * BUCKET,
        piggyback: 0,
        reads: true,
        ..Config::firehose_paper(rank, 2)
    };
    let engine = |rank| Engine::new(config(rank)).expect("limits of two buckets will do");
    let pair = Mutex::new(LockedPair {
        engines: [engine(0), engine(1)],
        keys: 0,
        done: BTreeSet::new(),
    });
    let hot = lock(&pair).engines[0].hot().clone();
    let (pair, hot) = (&pair, &hot);
    let in_flight = &InFlight {
        hot,
        pair,
        hits: Mutex::default(),
    };
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut draw = |below| random.word_below(below);
                for number in 0..20_000 {
                    let id = (number << 3) | thread;
                    if thread == 3 && number % 16 == 0 {
                        // The peer takes a bucket back.
                        let run = hydrant_pinning::Run {
                            first: 1000 + draw(4),
                            count: 1,
                        };
                        lock(pair).tell(1, |engine, out| engine.revoke(id, run, out));
                        in_flight.wait_for(id);
                        continue;
                    }
                    let (remote, local) = ((1000 + draw(4)) * BUCKET, (10 + draw(4)) * BUCKET);
                    let held = hot.hit(1, remote, local, 8, Direction::Put);
                    if let Some(hit) = held {
                        match draw(8) {
                            0 | 1 => thread::yield_now(),
                            2..5 => {
                                in_flight.add(hit.keep());
                                continue;
                            }
                            _ => {}
                        }
                        if hot.release(&hit) {
                            lock(pair).tell(0, |engine, out| engine.released(&hit.keep(), out));
                        }
                        continue;
                    }
                    let operation = EngineOperation {
                        id,
                        peer: 1,
                        direction: Direction::Put,
                        local,
                        region: RegionNumber::default(),
                        remote,
                        len: 8,
                        own: OwnMemory::Persistent,
                        copied: false,
                    };
                    lock(pair).tell(0, |engine, out| {
                        engine.begin(operation, out).expect("there is such a peer");
                    });
                    in_flight.wait_for(id);
                }
            });
        }
    });
    in_flight.end_all();
    let pair = lock(pair);
    assert_eq!(pair.engines[0].busy(), 0);
    pair.engines[0].audit(&[]).expect("all counts agree");
    pair.engines[1].audit(&[]).expect("all counts agree");
}

#[test]
fn an_engine_of_ten_thousand_ranks_is_small_until_it_speaks() {
    let mut config = Config::firehose_paper(7, 10_000);
    config.max_payload = 16 << 10;
    let mut engine = Engine::new(config).expect("ten buckets for each peer");
    assert_eq!(engine.limits().share, 10);
    assert_eq!(engine.entries(), 0);
    let mut out = Decisions::default();
    for peer in [0, 9_999] {
        let operation = EngineOperation {
            id: u64::from(peer),
            peer,
            direction: Direction::Put,
            local: 1 << 20,
            region: RegionNumber::default(),
            remote: 1 << 30,
            len: 8,
            own: OwnMemory::Persistent,
            copied: false,
        };
        engine
            .begin(operation, &mut out)
            .expect("there is such a peer");
    }
    assert!(engine.entries() < 32, "{}", engine.entries());
}
