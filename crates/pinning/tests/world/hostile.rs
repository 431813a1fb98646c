//! A hostile rank: it sends random bytes, messages that nobody waits for, and answers that are
//! nearly right.

use hydrant_pinning::{
    EngineMessage, Refusal, RegionNumber, Run,
    wire::{Grant, Granted, MAX_LIST, Move, Need, Piggyback, PullDestination},
};

use super::{EngineWorld, WorldEvent};

impl EngineWorld {
    /// Makes rank 0 hostile from now on.
    pub(crate) fn with_hostile(mut self) -> Self {
        self.hostile = Some(0);
        self
    }

    /// Sends something from the hostile rank.
    pub(crate) fn offend(&mut self) {
        let Some(hostile) = self.hostile.filter(|rank| !self.ranks[*rank].lost) else {
            return;
        };
        let to = 1 + self.draw(self.ranks.len() as u64 - 1) as usize;
        let bytes = match self.draw(8) {
            0 => {
                let count = self.draw(90);
                (0..count).map(|_| self.draw(256) as u8).collect()
            }
            1 | 2 => self.overheard(),
            _ => {
                let message = self.invent(to);
                self.with_data(&message)
            }
        };
        let queue = self.channels.entry((hostile, to)).or_default();
        queue.push_back(bytes);
    }

    /// Attaches and borrows as much as possible at another rank, and gives nothing back.
    pub(crate) fn grab(&mut self, target: usize) {
        let hostile = self.hostile.expect("there is one");
        let first = self.ranks[target].memory.base() / self.plan.bucket();
        let all = self.plan.memory;
        // The rank learns of a loan only after it asked.
        for bucket in (0..all).chain(0..all) {
            let run = Run {
                first: first + bucket,
                count: 1,
            };
            let bytes = self.with_data(&EngineMessage::Move(Move {
                region: RegionNumber::default(),
                id: 1 + bucket,
                write: true,
                hold: true,
                borrow: u64::MAX,
                releases: Vec::new(),
                needs: vec![Need {
                    run,
                    preferred: run,
                }],
                piggyback: None,
            }));
            let queue = self.channels.entry((hostile, target)).or_default();
            queue.push_back(bytes);
            self.drain();
        }
    }

    /// Answers a message to the hostile rank, more or less.
    pub(crate) fn misanswer(&mut self, from: usize, bytes: &[u8]) {
        let Ok((message, _)) = EngineMessage::decode(bytes) else {
            panic!("an honest rank sends messages");
        };
        let refused = (self.draw(3) == 0).then_some(self.refusal());
        let answer = match message {
            EngineMessage::Move(wanted) => {
                let mut granted = Granted {
                    id: wanted.id,
                    last: self.draw(4) > 0,
                    lent: self.draw(2) * self.draw(1 << 40),
                    ..Granted::default()
                };
                for need in &wanted.needs {
                    let run = if self.draw(2) == 0 {
                        need.run
                    } else {
                        need.preferred
                    };
                    let part = Run {
                        first: run.first + self.draw(run.count),
                        count: 1 + self.draw(run.count),
                    };
                    let run = if self.draw(4) == 0 { part } else { run };
                    match self.draw(5) {
                        0 => granted.refused.push((run, self.refusal())),
                        1 => {}
                        _ => granted.grants.push(Grant {
                            run,
                            key: self.draw(1000),
                            writable: self.draw(4) > 0,
                        }),
                    }
                }
                if let Some(piggyback) = wanted.piggyback.filter(|_| self.draw(5) > 0) {
                    let len = if wanted.write { 0 } else { piggyback.len };
                    granted.piggyback = Some(refused.map_or(Ok(len), Err));
                }
                EngineMessage::Granted(granted)
            }
            EngineMessage::Put { id, .. } => EngineMessage::Stored { id, refused },
            EngineMessage::Get { id, len, .. } => EngineMessage::Fetched {
                id,
                refused,
                len: if self.draw(6) == 0 { len / 2 } else { len },
                room: self.draw(256) as u8,
            },
            EngineMessage::Pull { id, .. } => EngineMessage::Pulled {
                id,
                refused,
                registered: self.draw(2) == 0,
            },
            EngineMessage::Revoke { id, run } => EngineMessage::Revoked {
                id,
                runs: if self.draw(2) == 0 {
                    vec![run]
                } else {
                    Vec::new()
                },
            },
            _ => return,
        };
        if self.draw(6) == 0 {
            return;
        }
        let bytes = self.with_data(&answer);
        let hostile = self.hostile.expect("it was asked");
        let queue = self.channels.entry((hostile, from)).or_default();
        queue.push_back(bytes);
    }

    /// Counts the hostile rank as lost, after it was found out.
    pub(crate) fn expel(&mut self) {
        let hostile = self.hostile.expect("there is one");
        self.ranks[hostile].lost = true;
        self.channels.retain(|(_, to), _| *to != hostile);
        for rank in 1..self.ranks.len() {
            self.events.push(WorldEvent::Lost {
                rank,
                who: hostile as u32,
            });
        }
    }

    /// A message that somebody else sent, with one bit changed.
    fn overheard(&mut self) -> Vec<u8> {
        let sent = self.channels.values().flatten();
        let mut sent: Vec<Vec<u8>> = sent.take(32).cloned().collect();
        if sent.is_empty() {
            return vec![1];
        }
        let which = self.draw(sent.len() as u64) as usize;
        let mut bytes = sent.swap_remove(which);
        for _ in 0..self.draw(4) {
            if !bytes.is_empty() {
                let at = self.draw(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.draw(8);
            }
        }
        bytes
    }

    fn with_data(&mut self, message: &EngineMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let data = message.data().min(1 << 16) as usize;
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn refusal(&mut self) -> Refusal {
        let all = [
            Refusal::Limit,
            Refusal::NotMapped,
            Refusal::ReadOnly,
            Refusal::Exhausted,
        ];
        all[self.draw(4) as usize]
    }

    /// A number: small, or as large as can be.
    fn number(&mut self) -> u64 {
        match self.draw(6) {
            0 => u64::MAX - self.draw(3),
            1 => 1 << self.draw(64),
            _ => self.draw(1000),
        }
    }

    /// A name: most names are counted from one.
    fn some_name(&mut self) -> u64 {
        let range = 1 + self.next;
        if self.draw(8) == 0 {
            self.number()
        } else {
            self.draw(range)
        }
    }

    fn some_run(&mut self, of: usize) -> Run {
        let first = self.ranks[of].memory.base() / self.plan.bucket();
        match self.draw(10) {
            0 => Run {
                first: self.draw(1 << 20),
                count: 1 << self.draw(39),
            },
            1 => Run {
                first: 0,
                count: 1 << 40,
            },
            _ => Run {
                first: first + self.draw(self.plan.memory),
                count: 1 + self.draw(3),
            },
        }
    }

    fn some_address(&mut self, of: usize) -> u64 {
        if self.draw(8) == 0 {
            return self.number();
        }
        let (base, len) = (self.ranks[of].memory.base(), self.ranks[of].memory.len());
        base + self.draw(len)
    }

    fn runs(&mut self, of: usize) -> Vec<Run> {
        let count = match self.draw(12) {
            0 => MAX_LIST as u64,
            _ => self.draw(3),
        };
        (0..count).map(|_| self.some_run(of)).collect()
    }

    fn invent(&mut self, to: usize) -> EngineMessage {
        let id = self.some_name();
        match self.draw(14) {
            0..4 => {
                let preferred = self.runs(to);
                let needs = preferred.into_iter().map(|preferred| Need {
                    run: Run {
                        first: preferred.first,
                        count: 1 + self.draw(preferred.count),
                    },
                    preferred,
                });
                let needs: Vec<Need> = needs.collect();
                let piggyback = (self.draw(3) == 0).then(|| Piggyback {
                    addr: self.some_address(to),
                    len: match self.draw(2) {
                        0 => self.draw(1 << 31) as u32,
                        _ => self.draw(64) as u32,
                    },
                });
                let write = self.draw(2) == 0 && piggyback.is_none_or(|it| it.len == 0);
                EngineMessage::Move(Move {
                    id,
                    region: RegionNumber(self.number()),
                    write,
                    hold: self.draw(4) > 0,
                    borrow: self.draw(2) * self.number(),
                    releases: if self.draw(3) == 0 {
                        self.runs(to)
                    } else {
                        Vec::new()
                    },
                    needs,
                    piggyback,
                })
            }
            4 => {
                let hostile = 0;
                let runs = self.runs(hostile).into_iter();
                let grants: Vec<Grant> = runs
                    .map(|run| Grant {
                        run,
                        key: self.draw(100),
                        writable: true,
                    })
                    .collect();
                EngineMessage::Granted(Granted {
                    id,
                    last: self.draw(2) == 0,
                    lent: self.number(),
                    grants,
                    refused: Vec::new(),
                    piggyback: None,
                })
            }
            5 => EngineMessage::Release {
                runs: self.runs(to),
                unpin: self.draw(2) == 0,
            },
            6 => EngineMessage::Put {
                id,
                region: RegionNumber(self.number()),
                to: self.some_address(to),
                len: 0,
            },
            7 => EngineMessage::Get {
                id,
                region: RegionNumber(self.number()),
                from: self.some_address(to),
                len: self.number() as u32,
            },
            8 => {
                let refused = (self.draw(2) == 0).then_some(self.refusal());
                match self.draw(3) {
                    0 => EngineMessage::Stored { id, refused },
                    1 => EngineMessage::Pulled {
                        id,
                        refused,
                        registered: self.draw(2) == 0,
                    },
                    _ => EngineMessage::Fetched {
                        id,
                        refused,
                        len: self.draw(64) as u32,
                        room: self.draw(256) as u8,
                    },
                }
            }
            9 => {
                let count = self.draw(4);
                let places = (0..count).map(|_| PullDestination {
                    key: self.draw(100),
                    addr: self.number(),
                    len: if self.draw(6) == 0 {
                        self.number()
                    } else {
                        self.draw(9000)
                    },
                });
                let to_places = places.collect::<Vec<_>>();
                EngineMessage::Pull {
                    id,
                    region: RegionNumber(self.number()),
                    from: self.some_address(to),
                    to: to_places,
                }
            }
            10 => EngineMessage::Recall {
                count: self.number(),
            },
            11 => EngineMessage::Ahead {
                region: RegionNumber(self.number()),
                from: self.some_address(to),
                len: self.number(),
            },
            12 => EngineMessage::Revoke {
                id,
                run: self.some_run(0),
            },
            _ => EngineMessage::Revoked {
                id,
                runs: self.runs(to),
            },
        }
    }
}
