//! Operations that continue after their call returned.

use std::collections::HashSet;

use crate::{Error, Message, Rank, Ticket};

use super::{
    ContractCheck, Fixture,
    log::Log,
    memory::{AddressKind, Arena, BufferedTransfer, beyond},
    pattern::{self, assert_same},
    team::{TeamMember, each},
};

pub(super) const CHECKS: &[ContractCheck] = &[
    ContractCheck::new(
        "tickets_unique",
        "no two operations in flight have the same ticket",
        tickets,
    ),
    ContractCheck::new(
        "complete_once",
        "every pending operation completes exactly once, after local",
        |fixture| once(fixture, false),
    ),
    ContractCheck::new(
        "watched_once",
        "a watched end is not reported again, and a poll reports every other end",
        |fixture| once(fixture, true),
    ),
    ContractCheck::new(
        "watched_behind_messages",
        "a watched write ends once, and does not swallow messages before it",
        behind_messages,
    ),
    ContractCheck::new(
        "local_frees",
        "after local completion the source is not read again",
        frees,
    ),
    ContractCheck::new(
        "inline_frees",
        "the source of an inline write is not read after the call has returned",
        |fixture| inline(fixture, false),
    )
    .inline(),
    ContractCheck::new(
        "inline_frees_behind_refusals",
        "nor if an inline write is repeated because an earlier one was refused",
        |fixture| inline(fixture, true),
    )
    .inline(),
];

const TRANSFERS: usize = 24;

/// Posts writes to and reads from all peers without polling. The memory that is read holds a
/// constant. With `watched`, the caller waits for some of their ends.
fn launch<'a>(
    me: &TeamMember<'a>,
    log: &mut Log<'_>,
    arena: &Arena<'_>,
    len: usize,
    watched: bool,
) -> (Vec<BufferedTransfer<'a>>, Vec<BufferedTransfer<'a>>) {
    let remotes = arena.publish(me, log);
    let mut writes = Vec::new();
    let mut reads = Vec::new();
    for number in 0..TRANSFERS {
        for peer in me.ranks() {
            let at = (number * me.conduit.size() as usize + me.rank().index()) * len;
            let to = beyond(remotes[peer.index()], at);
            let data = pattern::bytes(seed(me.rank(), peer, number), len);
            let watch = watched && number % 3 == 2;
            let write = me.post_write_as(peer, to, &data, watch);
            writes.push(write.expect("within the arena"));
            let from = beyond(remotes[peer.index()], TRANSFERS * 3 * len);
            if me.reads() {
                let read = me.post_read_as(peer, from, len, watch);
                reads.push(read.expect("within the arena"));
            }
        }
    }
    (writes, reads)
}

fn seed(from: Rank, to: Rank, number: usize) -> u64 {
    (u64::from(from.0) << 40) + (u64::from(to.0) << 20) + number as u64
}

/// Makes an arena for [`launch`] among three ranks. Returns it with the length of a piece, which is
/// several messages if messages carry it.
fn arena<'a>(me: &TeamMember<'a>, place: AddressKind) -> (Arena<'a>, usize) {
    let len = (2 * me.conduit.caps().max_payload + 3).min(5000);
    let arena = Arena::new(me.conduit, place, (TRANSFERS * 3 + 1) * len);
    (arena.window.fill(TRANSFERS * 3 * len, len, 0xc4)).expect("in bounds");
    (arena, len)
}

/// Fails unless the writes of all ranks are in the arena.
fn check(me: &TeamMember<'_>, arena: &Arena<'_>, len: usize) {
    let bytes = arena.bytes();
    for number in 0..TRANSFERS {
        for from in me.ranks() {
            let at = (number * 3 + from.index()) * len;
            let expected = pattern::bytes(seed(from, me.rank(), number), len);
            assert_same(
                &bytes[at..at + len],
                &expected,
                format_args!("write {number} of {from}"),
            );
        }
    }
}

fn tickets(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        for place in AddressKind::of(me.conduit) {
            let (arena, len) = arena(me, place);
            let (writes, reads) = launch(me, log, &arena, len, false);
            let tickets: Vec<Ticket> = (writes.iter().chain(&reads))
                .filter_map(|transfer| transfer.ticket())
                .collect();
            let distinct: HashSet<Ticket> = tickets.iter().copied().collect();
            assert_eq!(
                distinct.len(),
                tickets.len(),
                "{place:?}: a ticket was given twice"
            );
            for transfer in writes.into_iter().chain(reads) {
                me.land(log, transfer).expect("within the arena");
            }
            me.meet(log);
            check(me, &arena, len);
            me.meet(log);
        }
    });
}

fn once(fixture: &dyn Fixture, watched: bool) {
    each(fixture, 3, |me| {
        for place in AddressKind::of(me.conduit) {
            let log = &mut CompletionOrder::default();
            let (arena, len) = arena(me, place);
            let (writes, reads) = launch(me, &mut Log::new(), &arena, len, watched);
            let written: Vec<Ticket> = writes.iter().filter_map(BufferedTransfer::ticket).collect();
            let read: Vec<Ticket> = reads.iter().filter_map(BufferedTransfer::ticket).collect();
            let all = written.len() + read.len();
            me.until(log, "all operations", |log| log.complete.len() >= all);
            me.meet(log);
            me.linger(log);
            me.meet(log);
            let complete: HashSet<Ticket> = log.complete.iter().copied().collect();
            assert_eq!(
                complete,
                written.iter().chain(&read).copied().collect(),
                "{place:?}"
            );
            assert_eq!(
                log.complete.len(),
                all,
                "{place:?}: completed more than once"
            );
            let local: HashSet<Ticket> = log.local.iter().copied().collect();
            assert_eq!(
                local.len(),
                log.local.len(),
                "{place:?}: a local completion was reported twice"
            );
            assert!(
                local.is_subset(&written.iter().copied().collect()),
                "{place:?}: not of a write"
            );
            assert!(
                !log.late,
                "{place:?}: local completion after the remote one"
            );
            for transfer in reads {
                let data = me
                    .land(&mut log.landed(), transfer)
                    .expect("within the arena");
                assert_same(&data, &vec![0xc4; len], format_args!("read, {place:?}"));
            }
            for transfer in writes {
                me.land(&mut log.landed(), transfer)
                    .expect("within the arena");
            }
            check(me, &arena, len);
            me.meet(log);
        }
    });
}

/// Sends messages and watched writes in turns: no, some or many messages before each write.
fn behind_messages(fixture: &dyn Fixture) {
    const KIND: u8 = 2;
    each(fixture, 3, |me| {
        for place in AddressKind::of(me.conduit) {
            let log = &mut Log::new();
            let (arena, len) = arena(me, place);
            let remotes = arena.publish(me, log);
            let mut transfers = Vec::new();
            let mut sent = 0;
            for number in 0..TRANSFERS {
                let before = (number * 7 % 12) as u64;
                for peer in me.ranks() {
                    for next in sent..sent + before {
                        let args = &[next];
                        let message = Message {
                            kind: KIND,
                            tag: 0,
                            args,
                            payload: &[],
                        };
                        me.send(log, peer, &message);
                    }
                    let at = (number * me.conduit.size() as usize + me.rank().index()) * len;
                    let to = beyond(remotes[peer.index()], at);
                    let data = pattern::bytes(seed(me.rank(), peer, number), len);
                    let write = me.post_write_as(peer, to, &data, true);
                    transfers.push(write.expect("within the arena"));
                }
                sent += before;
            }
            let pending: HashSet<Ticket> = transfers
                .iter()
                .filter_map(BufferedTransfer::ticket)
                .collect();
            for transfer in transfers {
                me.land(log, transfer).expect("within the arena");
            }
            let all = me.conduit.size() as usize * sent as usize;
            me.until(log, "all messages", |log| log.requests.len() >= all);
            me.meet(log);
            me.linger(log);
            me.meet(log);
            let ended: HashSet<Ticket> = log.ended.iter().map(|(ticket, _)| *ticket).collect();
            assert_eq!(
                ended, pending,
                "{place:?}: an end that must not be reported"
            );
            assert_eq!(ended.len(), log.ended.len(), "{place:?}: ended twice");
            for from in me.ranks() {
                let came = log.requests.iter().filter(|it| it.from == from);
                let came: Vec<u64> = came.map(|it| it.args[0]).collect();
                assert_eq!(came, (0..sent).collect::<Vec<_>>(), "from {from}");
            }
            check(me, &arena, len);
            me.meet(log);
        }
    });
}

/// The order of completions.
#[derive(Default)]
struct CompletionOrder {
    local: Vec<Ticket>,
    complete: Vec<Ticket>,
    late: bool,
}

impl CompletionOrder {
    /// Returns a log of the same completions.
    fn landed(&self) -> Log<'static> {
        let mut log = Log::new();
        log.ended = self
            .complete
            .iter()
            .map(|ticket| (*ticket, Ok(())))
            .collect();
        log
    }
}

impl crate::Sink for CompletionOrder {
    fn request(&mut self, delivery: crate::Delivery<'_>, _: &mut dyn crate::ReplyPort) {
        panic!("no rank sent {delivery:?}");
    }
    fn reply(&mut self, delivery: crate::Delivery<'_>) {
        panic!("no rank sent {delivery:?}");
    }
    fn local(&mut self, ticket: Ticket) {
        self.late |= self.complete.contains(&ticket);
        self.local.push(ticket);
    }
    fn complete(&mut self, ticket: Ticket, result: Result<(), Error>) {
        result.expect("within the arena");
        self.complete.push(ticket);
    }
    fn malformed(&mut self, error: Error) {
        panic!("{error}");
    }
}

fn frees(fixture: &dyn Fixture) {
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        for place in AddressKind::of(me.conduit) {
            let (arena, len) = arena(me, place);
            let (mut writes, reads) = launch(me, log, &arena, len, false);
            for transfer in &mut writes {
                if transfer.ticket().is_none() {
                    transfer.scribble();
                }
            }
            let mut seen = 0;
            let last = |log: &Log<'_>, transfer: &BufferedTransfer<'_>| {
                transfer
                    .ticket()
                    .is_none_or(|ticket| log.outcome(ticket).is_some())
            };
            me.until(log, "all writes", |log| {
                for ticket in &log.local[seen..] {
                    for transfer in &mut writes {
                        if transfer.ticket() == Some(*ticket) {
                            transfer.scribble();
                        }
                    }
                }
                seen = log.local.len();
                writes.iter().all(|transfer| last(log, transfer))
            });
            for transfer in writes.into_iter().chain(reads) {
                me.land(log, transfer).expect("within the arena");
            }
            me.meet(log);
            check(me, &arena, len);
            me.meet(log);
        }
    });
}

/// Posts inline writes to all peers, more than a NIC takes at once, from memory that is overwritten
/// at once. The first writes precede the connection. With `refused`, the peers refuse other writes
/// among them.
fn inline(fixture: &dyn Fixture, refused: bool) {
    const WRITES: usize = 300;
    each(fixture, 3, |me| {
        let log = &mut Log::new();
        let most = (me.conduit.caps().registration.as_ref()).map_or(0, |it| it.inline);
        let size = me.conduit.size() as usize;
        let arena = Arena::new(me.conduit, AddressKind::Extent, WRITES * size * most);
        let remotes = arena.publish(me, log);
        let gone = Arena::new(me.conduit, AddressKind::Extent, most);
        let missing = gone.publish(me, log);
        drop(gone);
        me.meet(log);
        let mut written = Vec::new();
        let mut failing = Vec::new();
        for number in 0..WRITES {
            for peer in me.ranks().filter(|peer| *peer != me.rank()) {
                let len = 1 + number % most;
                let data = pattern::bytes(seed(me.rank(), peer, number), len);
                if refused && number % 100 == 50 {
                    failing.push(me.post_inline(peer, missing[peer.index()], &data, false));
                }
                let at = (number * size + me.rank().index()) * most;
                let to = beyond(remotes[peer.index()], at);
                let write = me.post_inline(peer, to, &data, number % 7 == 6);
                written.push(write.expect("within the arena"));
            }
        }
        for posted in failing {
            let end = log.end(me.conduit, posted);
            assert!(matches!(end, Err(Error::Revoked { .. })), "{end:?}");
        }
        for posted in written {
            log.end(me.conduit, Ok(posted)).expect("within the arena");
        }
        me.meet(log);
        let bytes = arena.bytes();
        for number in 0..WRITES {
            for from in me.ranks().filter(|from| *from != me.rank()) {
                let at = (number * size + from.index()) * most;
                let expected = pattern::bytes(seed(from, me.rank(), number), 1 + number % most);
                let written = &bytes[at..at + expected.len()];
                assert_same(written, &expected, format_args!("write {number} of {from}"));
            }
        }
        me.meet(log);
    });
}
