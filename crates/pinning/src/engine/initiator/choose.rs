//! The remote side of a piece by `auto`: whether it is attached, or the piece is copied.

use super::{
    Initiator, StepContext,
    firehoses::{Chosen, FirehoseTable, Look, RemoteHold, RemoteSide},
};
use crate::engine::{
    choice::{Miss, MissDecision, OperationClass, PieceRoute},
    pattern::Sequence,
};
use crate::wire::{Grant, MAX_LIST, Need};
use crate::{Run, Use};

/// The remote side of a piece that is to go some way.
#[derive(Clone, Copy)]
struct Sought {
    id: u64,
    peer: u32,
    bytes: Sequence,
    class: OperationClass,
}

/// What is missing of it, and what a move would bring.
struct Missed {
    miss: Miss,
    /// The last of what is missing.
    last: Run,
    /// Buckets that a move would bring from the first of those on.
    wide: u64,
}

/// What becomes of it.
enum Becomes {
    /// The piece is copied. `takes_rest`: with what is left of its operation.
    Copied { takes_rest: bool },
    /// Its firehoses are held, or on their way.
    Held,
    /// What is missing is moved. `passes`: and is given up first.
    Moved { passes: bool },
}

impl Initiator {
    /// Holds the firehoses of a piece, moves those that are missing, or copies the piece: it never
    /// waits for its turn.
    pub(super) fn choose(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some((sought, run, used)) = self.sought(id, cx) else {
            return;
        };
        let table = self.table_of(sought.peer);
        let look = table.look(run, used);
        let missed = missed(table, &sought, &look, cx);
        let moved = match self.weigh(&sought, &look, missed.as_ref()) {
            Becomes::Copied { takes_rest } => {
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
            Becomes::Held => None,
            Becomes::Moved { passes } => missed.as_ref().map(|missed| (missed, passes)),
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

    /// The remote side of a piece that is tried, its buckets, and what they are used for.
    #[inline]
    fn sought(&self, id: u64, cx: &StepContext<'_>) -> Option<(Sought, Run, Use)> {
        let Some(piece) = self.pieces.get(&id) else {
            self.impossible
                .note("a route is chosen for a piece that is over");
            return None;
        };
        let Some(tried) = piece.tried else {
            self.impossible
                .note("a route is chosen for a piece that is not tried");
            return None;
        };
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            self.impossible
                .note("an operation was begun that leaves the address space");
            return None;
        };
        let sought = Sought {
            id,
            peer: piece.peer,
            bytes: Sequence {
                addr: piece.remote,
                len: piece.len,
            },
            class: tried.class,
        };
        Some((sought, run, piece.direction.remote()))
    }

    /// Chooses what becomes of the remote side.
    #[inline]
    fn weigh(&mut self, sought: &Sought, look: &Look, missed: Option<&Missed>) -> Becomes {
        if look.read_only {
            // An extent is read-only as a whole, though it may be so in a page only.
            return Becomes::Copied { takes_rest: false };
        }
        if let Some(missed) = missed {
            return match self
                .choice
                .as_mut()
                .map(|choice| choice.weigh(&missed.miss))
            {
                Some(MissDecision::Attach { passes }) => Becomes::Moved { passes },
                Some(MissDecision::Copy) | None => {
                    let choice = self.choice.as_ref();
                    let takes_rest = choice.is_some_and(|choice| choice.copies_all(sought.class));
                    Becomes::Copied { takes_rest }
                }
            };
        }
        if look.joins.is_empty() {
            let choice = self.choice.as_mut();
            return if choice.is_some_and(|choice| choice.choose_copy_over_hit(sought.class)) {
                Becomes::Copied { takes_rest: true }
            } else {
                Becomes::Held
            };
        }
        let choice = self.choice.as_ref();
        if choice.is_none_or(|choice| choice.copies_rather_than_joins(sought.class)) {
            Becomes::Copied { takes_rest: false }
        } else {
            Becomes::Held
        }
    }

    /// Gives a piece what is held for it, and has it wait for moves: those under way that bring some of
    /// it, and those that begin, for so many needs.
    #[inline]
    fn hold(
        &mut self,
        sought: &Sought,
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
                piece.goes(PieceRoute::Hit);
            }
            piece.remote_side = RemoteSide {
                holds,
                refused: None,
                pending,
            };
        });
    }

    /// Asks for what is missing, in as many moves as it takes.
    #[inline]
    fn ask_for(
        &mut self,
        sought: &Sought,
        needs: &[Need],
        (missed, passes): (&Missed, bool),
        piggybacks: bool,
        cx: &mut StepContext<'_>,
    ) {
        let (id, peer, evicts) = (sought.id, sought.peer, missed.miss.evicts);
        if evicts {
            self.table_of(peer).load.begin_move();
            // What brings more than is needed says nothing of what the operation alone would take.
            if missed.wide == missed.last.count {
                self.goes(id, PieceRoute::PeerRegisters);
            }
        }
        for needs in needs.chunks(MAX_LIST) {
            let chosen = Chosen {
                class: sought.class,
                evicts,
                passes,
                begun: self.choice.as_mut().and_then(|choice| choice.start_move()),
            };
            let cached = (true, Some(chosen));
            self.ask(id, peer, needs.to_vec(), cached, piggybacks, cx);
        }
    }

    /// A get that the peer may write here: it is asked to, or the data is copied.
    pub(super) fn choose_pull(&mut self, id: u64, cx: &mut StepContext<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return self
                .impossible
                .note("a route is chosen for a piece that is over");
        };
        let (peer, used, tried) = (piece.peer, piece.direction.remote(), piece.tried);
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            return self
                .impossible
                .note("an operation was begun that leaves the address space");
        };
        let table = self.table_of(peer);
        let look = table.look(run, used);
        table.drop_holds(&look.holds);
        let attached = look.gaps.is_empty() && look.joins.is_empty();
        let kept = table.kept(cx.limits().total, cx.config().ranks);
        let near = attached || table.pulled.is_near(run.first, run.count, kept);
        let room = table.pulled.has_room(run.count);
        let is_reused = table.reuse.is_likely();
        let route = match (&mut self.choice, tried) {
            (Some(choice), Some(tried)) => choice.choose_pull_route(
                tried.class,
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
                self.goes(id, route);
                self.request_both(id, cx);
            }
        }
    }

    /// A peer said what room it has for what is registered for its pulls.
    pub(in crate::engine) fn note_room(&mut self, peer: u32, room: u8) {
        if self.choice.is_some()
            && let Some(table) = self.tables.get_mut(&peer)
        {
            table.pulled.note_room(room);
        }
    }

    /// What a move that was chosen brought, and took. `refused`: the buckets that it asked for, if not
    /// all of them were granted.
    pub(super) fn learn(
        &mut self,
        peer: u32,
        landed: &[Grant],
        chosen: &Chosen,
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
                table.let_pass(grant);
            }
            // What it was attached for is no reuse.
            table.forget_hit(grant.run.first);
        }
    }
}

/// What is missing, if anything is, and what is there may be used.
#[inline]
fn missed(
    table: &mut FirehoseTable,
    sought: &Sought,
    look: &Look,
    cx: &StepContext<'_>,
) -> Option<Missed> {
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
        is_next_unused: evicts && table.is_next_unused(),
        is_reused: table.reuse.is_likely(),
    };
    Some(Missed {
        miss,
        last: *last,
        wide,
    })
}

/// Buckets from the first of the last gap on that a move would bring: more than the gap has if it ends a
/// sequence of misses.
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
    // What nobody has asked for yet takes nothing from what is used, nor from what is attached while some
    // are free.
    let free = match table.unattached().checked_sub(missing) {
        Some(more) => more + last.count,
        None if table.is_next_unused() => u64::MAX,
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

/// Sets firehoses aside for what is missing; none if there are too few.
#[inline]
fn set_aside(table: &mut FirehoseTable, look: &Look, missed: &Missed) -> Option<Vec<Need>> {
    let last = missed.last;
    let aside = table.set_aside_wide(&look.gaps, missed.wide)?;
    let wide = aside.last().map_or(last.count, |need| need.preferred.count);
    table.follow(last, wide);
    Some(aside)
}
