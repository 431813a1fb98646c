//! The remote side of a piece under `auto`: its buckets are attached, or the piece is copied.

use super::{
    Initiator, StepContext,
    firehoses::{FirehoseTable, MoveChoice, RemoteHold, RemoteSide, RunLookup},
};
use crate::engine::{
    choice::{Miss, MissDecision, OperationClass, PieceRoute},
    pattern::Sequence,
};
use crate::wire::{Grant, MAX_LIST, Need};
use crate::{Run, Use};

/// The remote side that a piece needs.
#[derive(Clone, Copy)]
struct SoughtSide {
    id: u64,
    peer: u32,
    bytes: Sequence,
    class: OperationClass,
}

/// The missing part of the remote side, and the width of a move for it.
struct MissingPart {
    miss: Miss,
    /// The last missing run.
    last: Run,
    /// The number of buckets that a move would bring, from the first of that run on.
    wide: u64,
}

/// The decision about a piece.
enum PieceDecision {
    /// The piece is copied; with `takes_rest`, the rest of its operation too.
    Copied { takes_rest: bool },
    /// Its firehoses are held, or in flight.
    Held,
    /// The missing buckets are moved; with `passes`, they are the next victims.
    Moved { passes: bool },
}

impl Initiator {
    /// Holds the firehoses of a piece and moves the missing ones, or copies the piece. It never
    /// waits for its turn.
    pub(super) fn choose(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some((sought, run, used)) = self.sought(id, cx) else {
            return;
        };
        let table = self.table_of(sought.peer);
        let look = table.acquire_run(run, used);
        let missed = missed(table, &sought, &look, cx);
        let moved = match self.weigh(&sought, &look, missed.as_ref()) {
            PieceDecision::Copied { takes_rest } => {
                let table = self.table_of(sought.peer);
                if let Some(missed) = &missed {
                    table.follow(missed.last, missed.last.count);
                }
                table.drop_holds(&look.holds);
                if takes_rest {
                    self.take_rest(id);
                }
                return self.start_copy(id, cx);
            }
            PieceDecision::Held => None,
            PieceDecision::Moved { passes } => missed.as_ref().map(|missed| (missed, passes)),
        };
        let mut needs = Vec::new();
        if let Some((missed, _)) = moved {
            let table = self.table_of(sought.peer);
            let Some(aside) = set_aside(table, &look, missed) else {
                table.drop_holds(&look.holds);
                return self.start_copy(id, cx);
            };
            needs = aside;
        }
        let piggybacks = needs.len() == 1
            && look.joins.is_empty()
            && sought.bytes.len <= cx.config().piggyback as u64;
        self.hold(&sought, look.holds, (needs.len(), &look.joins));
        if let Some(moved) = moved {
            self.ask_for(&sought, &needs, moved, piggybacks, cx);
        }
        if !piggybacks {
            self.request_local(id, cx);
            if let Some((missed, _)) = moved {
                self.copy_head(id, (missed.miss.width, missed.miss.evicts), cx);
            }
        }
    }

    /// The remote side of a piece, its buckets, and their use.
    #[inline]
    fn sought(&self, id: u64, cx: &StepContext<'_>) -> Option<(SoughtSide, Run, Use)> {
        let Some(piece) = self.pieces.get(&id) else {
            self.impossible
                .note("a route is chosen for a piece that is over");
            return None;
        };
        let Some(trial) = piece.trial else {
            self.impossible
                .note("a route is chosen for a piece without a trial");
            return None;
        };
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            self.impossible
                .note("an operation was begun that leaves the address space");
            return None;
        };
        let sought = SoughtSide {
            id,
            peer: piece.peer,
            bytes: Sequence {
                addr: piece.remote,
                len: piece.len,
            },
            class: trial.class,
        };
        Some((sought, run, piece.direction.remote()))
    }

    /// Decides about the remote side.
    #[inline]
    fn weigh(
        &mut self,
        sought: &SoughtSide,
        look: &RunLookup,
        missed: Option<&MissingPart>,
    ) -> PieceDecision {
        if look.read_only {
            // One read-only page makes the whole extent read-only, so a copy may still succeed.
            return PieceDecision::Copied { takes_rest: false };
        }
        if let Some(missed) = missed {
            return match self
                .choice
                .as_mut()
                .map(|choice| choice.weigh(&missed.miss))
            {
                Some(MissDecision::Attach { passes }) => PieceDecision::Moved { passes },
                Some(MissDecision::Copy) | None => {
                    let choice = self.choice.as_ref();
                    let takes_rest = choice.is_some_and(|choice| choice.copies_all(sought.class));
                    PieceDecision::Copied { takes_rest }
                }
            };
        }
        if look.joins.is_empty() {
            let choice = self.choice.as_mut();
            return if choice.is_some_and(|choice| choice.choose_copy_over_hit(sought.class)) {
                PieceDecision::Copied { takes_rest: true }
            } else {
                PieceDecision::Held
            };
        }
        let choice = self.choice.as_ref();
        if choice.is_none_or(|choice| choice.copies_rather_than_joins(sought.class)) {
            PieceDecision::Copied { takes_rest: false }
        } else {
            PieceDecision::Held
        }
    }

    /// Gives a piece its holds, and has it wait for moves: those in flight with some of its
    /// buckets, and those about to start for `needs`.
    #[inline]
    fn hold(
        &mut self,
        sought: &SoughtSide,
        holds: Vec<RemoteHold>,
        (needs, joins): (usize, &[(u64, Run)]),
    ) {
        let id = sought.id;
        for (join, part) in joins {
            if let Some(asked) = self.table_of(sought.peer).asked.get_mut(join) {
                asked.waiters.push((id, *part));
            }
        }
        let pending = (needs + joins.len()) as u32;
        if pending == 0 {
            self.stats.remote_hits += 1;
        }
        self.with_piece(id, |piece| {
            if pending == 0 {
                piece.set_route(PieceRoute::Hit);
            }
            piece.remote_side = RemoteSide {
                holds,
                refused: None,
                pending,
            };
        });
    }

    /// Asks for the missing buckets, in as many moves as it takes.
    #[inline]
    fn ask_for(
        &mut self,
        sought: &SoughtSide,
        needs: &[Need],
        (missed, passes): (&MissingPart, bool),
        piggybacks: bool,
        cx: &mut StepContext<'_>,
    ) {
        let (id, peer, evicts) = (sought.id, sought.peer, missed.miss.evicts);
        if evicts {
            self.table_of(peer).load.begin_move();
            // A move of more than the need is no sample of the operation's own route.
            if missed.wide == missed.last.count {
                self.set_route(id, PieceRoute::PeerRegisters);
            }
        }
        for needs in needs.chunks(MAX_LIST) {
            let chosen = MoveChoice {
                class: sought.class,
                evicts,
                passes,
                begun: self.choice.as_mut().and_then(|choice| choice.start_move()),
            };
            let cached = (true, Some(chosen));
            self.send_move(id, peer, needs.to_vec(), cached, piggybacks, cx);
        }
    }

    /// Decides about a get that the peer may write here: the peer is asked to, or the data is
    /// copied.
    pub(super) fn choose_pull(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("a route is chosen for a piece that is over");
        };
        let (peer, used, trial) = (piece.peer, piece.direction.remote(), piece.trial);
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            return self
                .impossible
                .note("an operation was begun that leaves the address space");
        };
        let table = self.table_of(peer);
        let look = table.acquire_run(run, used);
        table.drop_holds(&look.holds);
        let attached = look.gaps.is_empty() && look.joins.is_empty();
        let kept = table.peer_share(cx.limits().total, cx.config().ranks);
        let near = attached || table.pulled.is_near(run.first, run.count, kept);
        let room = table.pulled.has_room(run.count);
        let is_reused = table.reuse.is_likely();
        let route = match (&mut self.choice, trial) {
            (Some(choice), Some(trial)) => choice.choose_pull_route(
                trial.class,
                (peer, run.first),
                near,
                room.then_some(is_reused),
            ),
            _ => PieceRoute::PeerRegisters,
        };
        if route != PieceRoute::Copied && !attached {
            let table = self.table_of(peer);
            table.pulled.note(run.first, run.count, near);
        }
        match route {
            PieceRoute::Copied => {
                self.take_rest(id);
                self.start_copy(id, cx);
            }
            route => {
                self.set_route(id, route);
                self.request_both(id, cx);
            }
        }
    }

    /// Notes the room that a peer has for registrations of its pulls.
    pub(in crate::engine) fn note_room(&mut self, peer: u32, room: u8) {
        if self.choice.is_some()
            && let Some(table) = self.tables.get_mut(&peer)
        {
            table.pulled.note_room(room);
        }
    }

    /// Records the buckets and the time of a move that was chosen. `refused` is the number of
    /// buckets asked for, if not all of them were granted.
    pub(super) fn record_move_outcome(
        &mut self,
        peer: u32,
        landed: &[Grant],
        chosen: &MoveChoice,
        refused: Option<u64>,
    ) {
        let Some(choice) = &mut self.choice else {
            return;
        };
        let count: u64 = landed.iter().map(|grant| grant.run.count).sum();
        let took = choice.stop_move(chosen.begun);
        if let Some(asked) = refused {
            if let Some(table) = self.tables.get_mut(&peer) {
                table.note_full(asked.saturating_sub(count));
            }
        } else if let Some(nanos) = took {
            choice.record_move(count, chosen.evicts, nanos);
        }
        choice.measure_hits(chosen.class);
        let Some(table) = self.tables.get_mut(&peer) else {
            return;
        };
        if chosen.evicts {
            table.load.answer_move();
        }
        for grant in landed {
            if chosen.passes {
                table.mark_passing(grant);
            }
            // The use that it was attached for is no reuse.
            table.forget_hit(grant.run.first);
        }
    }
}

/// The missing part, if there is one and the present part may be used.
#[inline]
fn missed(
    table: &mut FirehoseTable,
    sought: &SoughtSide,
    look: &RunLookup,
    cx: &StepContext<'_>,
) -> Option<MissingPart> {
    let (Some(first), Some(last)) = (look.gaps.first(), look.gaps.last()) else {
        return None;
    };
    if look.read_only {
        return None;
    }
    table.note_miss();
    let missing = look.gaps.iter().map(|gap| gap.count).sum();
    let wide = widened(table, *last, (missing, sought.bytes), cx);
    let width = missing - last.count + wide;
    let evicts = table.is_short(width);
    if evicts {
        table.reuse.note_full();
    }
    let miss = Miss {
        class: sought.class,
        place: (sought.peer, first.first),
        count: missing,
        width,
        evicts,
        is_next_unused: evicts && table.probe_next_victim(),
        is_reused: table.reuse.is_likely(),
    };
    Some(MissingPart {
        miss,
        last: *last,
        wide,
    })
}

/// The number of buckets that a move would bring from the first of the last gap on. It is more than
/// the gap if the gap ends a sequence of misses.
#[inline]
fn widened(
    table: &mut FirehoseTable,
    last: Run,
    (missing, bytes): (u64, Sequence),
    cx: &StepContext<'_>,
) -> u64 {
    let most = if cx.config().widening {
        cx.limits().amortised
    } else {
        1
    };
    let streak = table.streak(last);
    // Buckets that nobody has asked for yet take nothing from used ones, nor from attached ones
    // while some firehoses are free.
    let free = match table.unattached().checked_sub(missing) {
        Some(more) => more + last.count,
        None if table.probe_next_victim() => u64::MAX,
        None => last.count,
    };
    let widest = table.widest(cx.limits().max_extent);
    let widest = most.min(widest).min(streak.next_power_of_two()).min(free);
    if streak <= last.count {
        return last.count;
    }
    let end = bytes.end_by(last.first + widest, cx.limits().geometry);
    let wide = end.saturating_sub(last.first).max(last.count);
    table.missing(last.first, wide)
}

/// Sets firehoses aside for the missing part; `None` if there are too few.
#[inline]
fn set_aside(
    table: &mut FirehoseTable,
    look: &RunLookup,
    missed: &MissingPart,
) -> Option<Vec<Need>> {
    let last = missed.last;
    let aside = table.set_aside_wide(&look.gaps, missed.wide)?;
    let wide = aside.last().map_or(last.count, |need| need.preferred.count);
    table.follow(last, wide);
    Some(aside)
}
