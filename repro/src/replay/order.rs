//! Checks that the ranks of a trace get to their ends. A recorded program ended, but its network
//! may have taken messages eagerly that this one does not. A trace made by hand may wait for ever.

use std::collections::{HashMap, HashSet};

use super::step::{MessageEnd, ReplayStep};

/// A message: the sender, the receiver, and its number.
type MessageKey = (u32, u32, u64);

/// A rank that waits for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stuck {
    pub(super) rank: u32,
    /// The index of its step.
    pub(super) step: usize,
    /// The peer that it waits for.
    pub(super) peer: u32,
    /// If it sends: the bytes, which the peer does not ask for.
    pub(super) sends: Option<u64>,
}

/// The first rank that waits for ever, if any does. A send longer than `at_once`, the network's
/// eager limit, waits until its message is asked for.
pub(super) fn stuck(schedules: &[Vec<ReplayStep>], at_once: u64) -> Option<Stuck> {
    let mut known = PastEvents::default();
    let mut ranks: Vec<RankProgress<'_>> = (0..)
        .zip(schedules)
        .map(|(own, steps)| RankProgress::of(own, steps, at_once))
        .collect();
    let mut ready: Vec<u32> = (0..ranks.len() as u32).rev().collect();
    while let Some(own) = ready.pop() {
        let rank = &mut ranks[own as usize];
        // The ranks that wait for its messages continue.
        let touched = rank.run_until_blocked(&mut known);
        ready.extend(touched.into_iter().filter(|peer| *peer != own));
    }
    ranks.iter().find_map(RankProgress::stuck)
}

/// The events so far.
#[derive(Default)]
struct PastEvents {
    /// The messages whose sends have begun.
    sent: HashSet<MessageKey>,
    /// The messages whose receives have begun.
    asked_for: HashSet<MessageKey>,
}

/// An event that a rank waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AwaitedEvent {
    /// A message is sent.
    Sent(MessageKey),
    /// A message of this many bytes is asked for.
    AskedFor(MessageKey, u64),
}

impl AwaitedEvent {
    fn is_met(self, known: &PastEvents) -> bool {
        match self {
            AwaitedEvent::Sent(message) => known.sent.contains(&message),
            AwaitedEvent::AskedFor(message, _) => known.asked_for.contains(&message),
        }
    }
}

/// The progress of a rank.
struct RankProgress<'a> {
    own: u32,
    at_once: u64,
    steps: &'a [ReplayStep],
    /// The index of the next step.
    next: usize,
    /// The events that the last step waits for.
    needs: Vec<AwaitedEvent>,
    /// The events that begun requests wait for, by the number of the request.
    begun: HashMap<u64, AwaitedEvent>,
}

impl<'a> RankProgress<'a> {
    fn of(own: u32, steps: &'a [ReplayStep], at_once: u64) -> Self {
        Self {
            own,
            at_once,
            steps,
            next: 0,
            needs: Vec::new(),
            begun: HashMap::new(),
        }
    }

    /// Runs steps until one waits for an event. Returns the ranks that it sent to or asked.
    fn run_until_blocked(&mut self, known: &mut PastEvents) -> HashSet<u32> {
        let mut touched = HashSet::new();
        loop {
            self.needs.retain(|need| !need.is_met(known));
            if !self.needs.is_empty() {
                return touched;
            }
            let Some(step) = self.steps.get(self.next) else {
                return touched;
            };
            self.next += 1;
            match step {
                ReplayStep::Call { .. } | ReplayStep::Copy { .. } => {}
                ReplayStep::Send(end) => {
                    let need = self.send(end, known, &mut touched);
                    self.needs.extend(need);
                }
                ReplayStep::Receive(end) => {
                    let need = self.receive(end, known, &mut touched);
                    self.needs.push(need);
                }
                ReplayStep::SendReceive(to, from) => {
                    let receive = self.receive(from, known, &mut touched);
                    let send = self.send(to, known, &mut touched);
                    self.needs.extend(send.into_iter().chain([receive]));
                }
                ReplayStep::BeginSend(request, end) => {
                    if let Some(need) = self.send(end, known, &mut touched) {
                        self.begun.insert(*request, need);
                    }
                }
                ReplayStep::BeginReceive(request, end) => {
                    let need = self.receive(end, known, &mut touched);
                    self.begun.insert(*request, need);
                }
                ReplayStep::Complete(request) => self.needs.extend(self.begun.remove(request)),
            }
        }
    }

    fn send(
        &self,
        end: &MessageEnd,
        known: &mut PastEvents,
        touched: &mut HashSet<u32>,
    ) -> Option<AwaitedEvent> {
        let message = (self.own, end.peer, end.tag);
        known.sent.insert(message);
        touched.insert(end.peer);
        // A message of a rank to itself is copied.
        let waits = end.place.bytes() > self.at_once && end.peer != self.own;
        waits.then_some(AwaitedEvent::AskedFor(message, end.place.bytes()))
    }

    fn receive(
        &self,
        end: &MessageEnd,
        known: &mut PastEvents,
        touched: &mut HashSet<u32>,
    ) -> AwaitedEvent {
        let message = (end.peer, self.own, end.tag);
        known.asked_for.insert(message);
        touched.insert(end.peer);
        AwaitedEvent::Sent(message)
    }

    fn stuck(&self) -> Option<Stuck> {
        let (peer, sends) = match *self.needs.first()? {
            AwaitedEvent::Sent((peer, ..)) => (peer, None),
            AwaitedEvent::AskedFor((_, peer, _), bytes) => (peer, Some(bytes)),
        };
        Some(Stuck {
            rank: self.own,
            step: self.next - 1,
            peer,
            sends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::step::MessagePlace, *};

    fn end(peer: u32, tag: u64) -> MessageEnd {
        sized(peer, tag, 8)
    }

    fn sized(peer: u32, tag: u64, bytes: u64) -> MessageEnd {
        let place = MessagePlace::Scratch { bytes };
        MessageEnd { peer, tag, place }
    }

    /// The rank that is stuck, and the peer that it waits for.
    fn first_stuck(schedules: &[Vec<ReplayStep>]) -> Option<(u32, u32)> {
        stuck(schedules, 1000).map(|it| (it.rank, it.peer))
    }

    #[test]
    fn a_rank_that_waits_for_ever_is_found() {
        let first = vec![ReplayStep::Receive(end(1, 1)), ReplayStep::Send(end(1, 2))];
        let second = vec![ReplayStep::Receive(end(0, 2)), ReplayStep::Send(end(0, 1))];
        assert_eq!(first_stuck(&[first.clone(), second]), Some((0, 1)));
        let begins = vec![
            ReplayStep::BeginReceive(7, end(0, 2)),
            ReplayStep::Send(end(0, 1)),
            ReplayStep::Complete(7),
        ];
        assert_eq!(first_stuck(&[first, begins]), None);
        let exchange = |peer| vec![ReplayStep::SendReceive(end(peer, 3), end(peer, 3))];
        assert_eq!(first_stuck(&[exchange(1), exchange(0)]), None);
        assert_eq!(first_stuck(&[exchange(0)]), None);
        let itself = vec![ReplayStep::Send(end(0, 1)), ReplayStep::Receive(end(0, 1))];
        assert_eq!(first_stuck(std::slice::from_ref(&itself)), None);
        assert_eq!(
            first_stuck(&[itself.into_iter().rev().collect()]),
            Some((0, 0))
        );
    }

    #[test]
    fn long_sends_wait_until_they_are_asked_for() {
        for (bytes, expected) in [(1000, None), (1001, Some((0, 1)))] {
            let sends_first = |peer| {
                let it = |tag| sized(peer, tag, bytes);
                vec![ReplayStep::Send(it(1)), ReplayStep::Receive(it(1))]
            };
            assert_eq!(first_stuck(&[sends_first(1), sends_first(0)]), expected);
            let begins_first = |peer| {
                let it = sized(peer, 1, bytes);
                vec![
                    ReplayStep::BeginSend(5, it),
                    ReplayStep::Complete(5),
                    ReplayStep::Receive(it),
                ]
            };
            assert_eq!(first_stuck(&[begins_first(1), begins_first(0)]), expected);
            let completes_last = |peer| {
                let it = sized(peer, 1, bytes);
                vec![
                    ReplayStep::BeginSend(5, it),
                    ReplayStep::Receive(it),
                    ReplayStep::Complete(5),
                ]
            };
            assert_eq!(first_stuck(&[completes_last(1), completes_last(0)]), None);
            let exchange = |peer| {
                let it = sized(peer, 1, bytes);
                vec![ReplayStep::SendReceive(it, it)]
            };
            assert_eq!(first_stuck(&[exchange(1), exchange(0)]), None);
            let itself = sized(0, 1, bytes);
            assert_eq!(
                first_stuck(&[vec![ReplayStep::Send(itself), ReplayStep::Receive(itself)]]),
                None
            );
        }
        let long = |peer| {
            vec![
                ReplayStep::Call {
                    site: 1,
                    computed_ns: 0,
                },
                ReplayStep::Send(sized(peer, 1, 5000)),
            ]
        };
        let expected = Stuck {
            rank: 0,
            step: 1,
            peer: 1,
            sends: Some(5000),
        };
        assert_eq!(stuck(&[long(1), long(0)], 1000), Some(expected));
    }

    #[test]
    fn a_ring_of_sends_is_stuck_unless_one_receives_first() {
        const RANKS: u32 = 5;
        let ring = |receives_first: bool| -> Vec<Vec<ReplayStep>> {
            let of = |rank: u32| {
                let send = ReplayStep::Send(sized((rank + 1) % RANKS, 1, 5000));
                let receive = ReplayStep::Receive(sized((rank + RANKS - 1) % RANKS, 1, 5000));
                if rank == 3 && receives_first {
                    vec![receive, send]
                } else {
                    vec![send, receive]
                }
            };
            (0..RANKS).map(of).collect()
        };
        assert_eq!(first_stuck(&ring(true)), None);
        assert_eq!(first_stuck(&ring(false)), Some((0, 1)));
    }
}
