//! Whether the ranks of a trace get to their ends: what was recorded of a program did, what was put together wrong may
//! wait for ever.

use std::collections::{HashMap, HashSet};

use super::schedule::{End, Step};

/// A message: from whom, to whom, and its number.
type Message = (u32, u32, u64);

/// The rank that waits for ever, and for whom: its peer. Sends wait for nobody here, as on a network that takes all
/// that is sent.
pub(super) fn stuck(schedules: &[Vec<Step>]) -> Option<(u32, u32)> {
    let mut sent: HashSet<Message> = HashSet::new();
    let mut ranks: Vec<Progress<'_>> = schedules.iter().map(|it| Progress::of(it)).collect();
    let mut ready: Vec<u32> = (0..ranks.len() as u32).rev().collect();
    while let Some(own) = ready.pop() {
        let rank = &mut ranks[own as usize];
        rank.go_on(own, &sent);
        let fresh = std::mem::take(&mut rank.sent);
        sent.extend(&fresh);
        let waits_for = rank.waits_for;
        if waits_for.is_some_and(|it| sent.contains(&it)) {
            ready.push(own);
        }
        // Whoever waits for one of these goes on.
        ready.extend(fresh.iter().filter_map(|message| {
            let peer = ranks.get(message.1 as usize)?;
            (message.1 != own && peer.waits_for == Some(*message)).then_some(message.1)
        }));
    }
    let waits = |(own, rank): (u32, &Progress<'_>)| Some((own, rank.waits_for?.0));
    (0..).zip(&ranks).find_map(waits)
}

/// How far a rank is.
struct Progress<'a> {
    left: std::slice::Iter<'a, Step>,
    /// Receives that were begun, by the number of the request.
    begun: HashMap<u64, Message>,
    /// What it sent since it went on.
    sent: Vec<Message>,
    waits_for: Option<Message>,
}

impl<'a> Progress<'a> {
    fn of(steps: &'a [Step]) -> Self {
        Self {
            left: steps.iter(),
            begun: HashMap::new(),
            sent: Vec::new(),
            waits_for: None,
        }
    }

    /// Does steps until it waits for something that was not sent.
    fn go_on(&mut self, own: u32, sent: &HashSet<Message>) {
        let to = |end: &End| (own, end.peer, end.tag);
        let from = |end: &End| (end.peer, own, end.tag);
        if self.waits_for.is_some_and(|it| !sent.contains(&it)) {
            return;
        }
        self.waits_for = None;
        for step in self.left.by_ref() {
            let needed = match step {
                Step::Call { .. } | Step::Copy { .. } => None,
                Step::Send(end) | Step::BeginSend(_, end) => {
                    self.sent.push(to(end));
                    None
                }
                Step::Receive(end) => Some(from(end)),
                Step::SendReceive(send, receive) => {
                    self.sent.push(to(send));
                    Some(from(receive))
                }
                Step::BeginReceive(request, end) => {
                    self.begun.insert(*request, from(end));
                    None
                }
                Step::Complete(request) => self.begun.remove(request),
            };
            if let Some(needed) = needed.filter(|it| !sent.contains(it)) {
                self.waits_for = Some(needed);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::schedule::Place, *};

    fn end(peer: u32, tag: u64) -> End {
        let place = Place::Scratch { bytes: 8 };
        End { peer, tag, place }
    }

    #[test]
    fn who_waits_for_ever_is_found() {
        let first = vec![Step::Receive(end(1, 1)), Step::Send(end(1, 2))];
        let second = vec![Step::Receive(end(0, 2)), Step::Send(end(0, 1))];
        assert_eq!(stuck(&[first.clone(), second]), Some((0, 1)));
        let begins = vec![
            Step::BeginReceive(7, end(0, 2)),
            Step::Send(end(0, 1)),
            Step::Complete(7),
        ];
        assert_eq!(stuck(&[first, begins]), None);
        let exchange = |peer| vec![Step::SendReceive(end(peer, 3), end(peer, 3))];
        assert_eq!(stuck(&[exchange(1), exchange(0)]), None);
        assert_eq!(stuck(&[exchange(0)]), None);
        let itself = vec![Step::Send(end(0, 1)), Step::Receive(end(0, 1))];
        assert_eq!(stuck(std::slice::from_ref(&itself)), None);
        assert_eq!(stuck(&[itself.into_iter().rev().collect()]), Some((0, 0)));
    }
}
