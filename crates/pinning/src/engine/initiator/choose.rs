//! The remote side of a piece by `auto`: whether it is attached, or the piece is copied.

use super::{
    Context, Initiator,
    firehoses::{Chosen, RemoteSide},
};
use crate::engine::{
    choice::{Miss, Verdict, Way},
    impossible::impossible,
};
use crate::wire::{Grant, MAX_LIST};

impl Initiator {
    /// Holds the firehoses of a piece, moves those that are missing, or copies the piece: it never
    /// waits for its turn.
    pub(super) fn choose(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return impossible("a way is chosen for a piece that is over");
        };
        let Some(tried) = piece.tried else {
            return impossible("a way is chosen for a piece that is not tried");
        };
        let (peer, len, used) = (piece.peer, piece.len, piece.direction.remote());
        let Ok(run) = cx.limits().geometry.span(piece.remote, len) else {
            return impossible("an operation was begun that leaves the address space");
        };
        let most = match cx.config().widening {
            true => cx.limits().amortised,
            false => 1,
        };
        let max_extent = cx.limits().max_extent;
        let class = tried.class;
        let table = self.table_of(peer);
        let look = table.look(run, used);
        let missing: u64 = look.gaps.iter().map(|gap| gap.count).sum();
        let (mut chosen, mut takes_rest) = (None, false);
        let copies = if look.read_only {
            // An extent is read-only as a whole, though it may be so in a page only.
            true
        } else if let (Some(first), Some(last)) = (look.gaps.first(), look.gaps.last()) {
            table.note_miss();
            let streak = table.streak(*last);
            // What nobody has asked for yet takes nothing from what is used, nor from what is attached while some
            // are free.
            let free = match table.unattached().checked_sub(missing) {
                Some(more) => more + last.count,
                None if table.is_next_unused() => u64::MAX,
                None => last.count,
            };
            let widest = (most.min(table.widest(max_extent))).min(streak.next_power_of_two());
            let widest = widest.min(free);
            let wide = match streak > last.count {
                true => table.missing(last.first, widest.max(last.count)),
                false => last.count,
            };
            let width = missing - last.count + wide;
            let evicts = table.is_short(width);
            if evicts {
                table.reuse.note_full();
            }
            let miss = Miss {
                class,
                place: (peer, first.first),
                count: missing,
                width,
                evicts,
                is_next_unused: evicts && table.is_next_unused(),
                is_reused: table.reuse.is_likely(),
            };
            match self.choice.as_mut().map(|choice| choice.weigh(&miss)) {
                Some(Verdict::Attach { passes }) => {
                    chosen = Some((wide, evicts, passes));
                    false
                }
                Some(Verdict::Copy) | None => {
                    self.table_of(peer).follow(*last, last.count);
                    takes_rest =
                        (self.choice.as_ref()).is_some_and(|choice| choice.copies_all(class));
                    true
                }
            }
        } else if look.joins.is_empty() {
            takes_rest = true;
            (self.choice.as_mut()).is_some_and(|choice| choice.copies_hit(class))
        } else {
            (self.choice.as_ref()).is_none_or(|choice| choice.overtakes(class))
        };
        if copies {
            self.table_of(peer).drop_holds(&look.holds);
            if takes_rest {
                self.take_rest(id);
            }
            return self.start_copy(id, cx);
        }
        let mut needs = Vec::new();
        if let (Some((wide, ..)), Some(last)) = (chosen, look.gaps.last().copied()) {
            let table = self.table_of(peer);
            let Some(aside) = table.set_aside_wide(&look.gaps, wide) else {
                table.drop_holds(&look.holds);
                return self.start_copy(id, cx);
            };
            let wide = aside.last().map_or(last.count, |need| need.preferred.count);
            table.follow(last, wide);
            needs = aside;
        }
        for (join, part) in &look.joins {
            if let Some(asked) = self.table_of(peer).asked.get_mut(join) {
                asked.waiters.push((id, *part));
            }
        }
        let reach = RemoteSide {
            holds: look.holds,
            refused: None,
            pending: (needs.len() + look.joins.len()) as u32,
        };
        if reach.pending == 0 {
            self.stats.remote_hits += 1;
            self.goes(id, Way::Hit);
        }
        self.with_piece(id, |piece| piece.remote_side = reach);
        let piggybacks =
            needs.len() == 1 && look.joins.is_empty() && len <= cx.config().piggyback as u64;
        if let (Some((wide, true, _)), Some(last)) = (chosen, look.gaps.last()) {
            self.table_of(peer).calm.move_begins();
            // What brings more than is needed says nothing of what the operation alone would take.
            if wide == last.count {
                self.goes(id, Way::Far);
            }
        }
        for needs in needs.chunks(MAX_LIST) {
            let chosen = Chosen {
                class,
                evicts: chosen.is_some_and(|(_, evicts, _)| evicts),
                passes: chosen.is_some_and(|(_, _, passes)| passes),
                begun: self.choice.as_mut().and_then(|choice| choice.start_move()),
            };
            let cached = (true, Some(chosen));
            self.ask(id, peer, needs.to_vec(), cached, piggybacks, cx);
        }
        if !piggybacks {
            self.request_local(id, cx);
            if let Some((wide, evicts, _)) = chosen {
                let width = missing - look.gaps.last().map_or(0, |last| last.count) + wide;
                self.copy_head(id, (width, evicts), cx);
            }
        }
    }

    /// A get that the peer may write here: it is asked to, or the data is copied.
    pub(super) fn choose_pull(&mut self, id: u64, cx: &mut Context<'_>) {
        let Some(piece) = self.pieces.get(&id) else {
            return impossible("a way is chosen for a piece that is over");
        };
        let (peer, used, tried) = (piece.peer, piece.direction.remote(), piece.tried);
        let Ok(run) = cx.limits().geometry.span(piece.remote, piece.len) else {
            return impossible("an operation was begun that leaves the address space");
        };
        let table = self.table_of(peer);
        let look = table.look(run, used);
        table.drop_holds(&look.holds);
        let attached = look.gaps.is_empty() && look.joins.is_empty();
        let kept = table.kept(cx.limits().total, cx.config().ranks);
        let near = attached || table.pulled.is_near(run.first, run.count, kept);
        let room = table.pulled.has_room(run.count);
        let is_reused = table.reuse.is_likely();
        let way = match (&mut self.choice, tried) {
            (Some(choice), Some(tried)) => choice.pull(
                tried.class,
                (peer, run.first),
                near,
                room.then_some(is_reused),
            ),
            _ => Way::Far,
        };
        if way != Way::Copied && !attached {
            let table = self.table_of(peer);
            table.pulled.note(run.first, run.count, near);
        }
        match way {
            Way::Copied => {
                self.take_rest(id);
                self.start_copy(id, cx);
            }
            way => {
                self.goes(id, way);
                self.request_both(id, cx);
            }
        }
    }

    /// A peer said what room it has for what is registered for its pulls.
    pub(in crate::engine) fn told_of_room(&mut self, peer: u32, room: u8) {
        if self.choice.is_some()
            && let Some(table) = self.tables.get_mut(&peer)
        {
            table.pulled.told_of_room(room);
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
            choice.moved(count, chosen.evicts, nanos);
        }
        choice.landed(chosen.class);
        let Some(table) = self.tables.get_mut(&peer) else {
            return;
        };
        if chosen.evicts {
            table.calm.move_is_answered();
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
