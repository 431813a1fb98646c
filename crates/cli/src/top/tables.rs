//! A look as tables: a heading for each job, the use of memory by rank, and the rates.

use std::fmt::Write as _;

use hydrant::top::RegisteredMemory;
use hydrant_report::table::{Align, Table};
use hydrant_report::units;

use super::NOBODY;
use super::look::{Look, SeenRank, SeenState};

/// The columns from which on the tables have all that fits into this many.
const WIDE: usize = 110;

/// No figure.
const NONE: &str = "-";

/// The rates shown, by counter: the name of the column, and whether only wide tables have it.
const RATES: [(&str, &str, bool); 8] = [
    ("puts", "puts", true),
    ("gets", "gets", true),
    ("hits", "hits", false),
    ("misses", "misses", false),
    ("moves", "moves", false),
    ("revocations", "revoked", false),
    ("registration_messages", "notified", false),
    ("memory_changes", "changes", false),
];

/// The tables of all jobs, no line longer than `columns`.
pub(super) fn text(look: &Look, columns: usize, peers: bool) -> String {
    let mut text = String::new();
    for job in look.ranks.chunk_by(|a, b| a.job == b.job) {
        let is_wide = columns >= WIDE;
        let _ = writeln!(text, "{}", heading(look, job));
        let _ = writeln!(text, "{}", memory(job, is_wide));
        let _ = writeln!(text, "{}", rates(look, job, is_wide));
        if peers && job.iter().any(|it| firehoses(it).is_some()) {
            let _ = writeln!(text, "{}", by_peer(job));
        }
    }
    if look.ranks.is_empty() {
        let _ = writeln!(text, "{}: {NOBODY}", look.host);
    }
    let lines: Vec<String> = text.lines().map(|line| cut(line, columns)).collect();
    lines.join("\n").trim_end().to_owned() + "\n"
}

/// The job, its program and network, and the limits of its ranks.
fn heading(look: &Look, job: &[SeenRank]) -> String {
    let first = &job[0];
    let program = job.iter().find_map(|it| it.process.as_ref());
    let program = program.map_or("", |it| &it.program);
    let conduit = (job.iter().find_map(|it| it.conduit.as_deref())).unwrap_or_default();
    let ranks = match (job.len(), first.ranks) {
        (here, all) if here == all as usize => format!("{all} ranks"),
        (here, all) => format!("{here} of {all} ranks"),
    };
    let words = [
        format!("{}  job {}", look.host, first.job),
        program.to_owned(),
        conduit.to_owned(),
        ranks,
    ];
    let words: Vec<String> = words.into_iter().filter(|it| !it.is_empty()).collect();
    let limits = job.iter().find_map(|it| it.memory.as_ref());
    let limits = limits.map(|it| {
        let [m, victims, all] = [it.m_bytes, it.maxvictim_bytes, it.limit_bytes].map(bytes);
        format!("\nlimit of each rank: {all} (M {m} + MAXVICTIM {victims})")
    });
    words.join("  ") + &limits.unwrap_or_default()
}

fn memory(job: &[SeenRank], is_wide: bool) -> Table {
    let right = |name| (name, Align::Right);
    let mut columns = vec![right("rank")];
    if is_wide {
        columns.push(right("pid"));
    }
    columns.push(right("registered"));
    if is_wide {
        columns.push(right("of limit"));
    }
    let uses = ["VmPin", "for good", "peers", "in use", "victims", "dead"];
    columns.extend(uses.map(right));
    if is_wide {
        columns.push(right("changing"));
    }
    let mut table = Table::new("", &columns);
    for it in job {
        let of = |field: fn(&RegisteredMemory) -> u64| {
            (it.memory.as_ref()).map_or(NONE.to_owned(), |memory| bytes(field(memory)))
        };
        let pinned = it.process.as_ref().and_then(|it| it.pinned_bytes);
        let mut row = vec![it.rank.to_string()];
        if is_wide {
            row.push(it.pid.map_or(NONE.to_owned(), |pid| pid.to_string()));
        }
        row.push(of(|it| it.registered_bytes));
        if is_wide {
            row.push((it.memory.as_ref()).map_or(NONE.to_owned(), share));
        }
        row.extend([
            pinned.map_or(NONE.to_owned(), bytes),
            of(|it| it.permanent_bytes),
            of(|it| it.peers_bytes),
            of(|it| it.in_use_bytes),
            of(|it| it.victim_bytes),
            of(|it| it.dead_bytes),
        ]);
        if is_wide {
            row.push(of(|it| it.changing_bytes));
        }
        table.row(row);
    }
    table
}

/// The part of the limit that is registered.
fn share(memory: &RegisteredMemory) -> String {
    let part = memory.registered_bytes as f64 / memory.limit_bytes.max(1) as f64;
    format!("{:.1} %", 100.0 * part)
}

/// The rates; in a first look, the counts since the start of the job.
fn rates(look: &Look, job: &[SeenRank], is_wide: bool) -> Table {
    let shown = RATES.iter().filter(|(.., only_wide)| is_wide || !only_wide);
    let names: Vec<(&str, String)> = shown
        .map(|(counter, name, _)| match look.is_first() {
            true => (*counter, (*name).to_owned()),
            false => (*counter, format!("{name}/s")),
        })
        .collect();
    let mut columns = vec![("rank", Align::Right)];
    columns.extend(names.iter().map(|(_, name)| (name.as_str(), Align::Right)));
    columns.push(("", Align::Left));
    let mut table = Table::new("", &columns);
    for it in job {
        let cell = |counter: &str| match (look.is_first(), &it.counters, &it.rates) {
            (true, Some(counters), _) => (counters.get(counter)).map(|it| number(*it as f64)),
            (false, _, Some(rates)) => rates.get(counter).map(|rate| number(*rate)),
            _ => None,
        };
        let mut row = vec![it.rank.to_string()];
        let cells = names.iter().map(|(counter, _)| cell(counter));
        row.extend(cells.map(|it| it.unwrap_or_else(|| NONE.to_owned())));
        row.push(match it.state {
            SeenState::Running => String::new(),
            state => state.name().to_owned(),
        });
        table.row(row);
    }
    table
}

/// The firehoses between pairs of ranks.
fn by_peer(job: &[SeenRank]) -> Table {
    let names = ["rank", "peer", "held here", "held there"];
    let mut table = Table::new("firehoses", &names.map(|name| (name, Align::Right)));
    for it in job {
        for of_peer in firehoses(it).into_iter().flatten() {
            table.row([
                it.rank.to_string(),
                of_peer.peer.to_string(),
                bytes(of_peer.held_here_bytes),
                bytes(of_peer.held_there_bytes),
            ]);
        }
    }
    table
}

fn firehoses(rank: &SeenRank) -> Option<&[hydrant::top::FirehoseBytes]> {
    let memory = rank.memory.as_ref()?;
    (!memory.firehoses.is_empty()).then_some(&memory.firehoses)
}

fn bytes(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

/// The begin of a line. The name of a program may have any letters: a terminal could take some as commands.
fn cut(line: &str, columns: usize) -> String {
    let shown = |letter: char| if letter.is_control() { '?' } else { letter };
    line.chars().take(columns).map(shown).collect()
}

/// A number in at most six letters.
fn number(number: f64) -> String {
    match number {
        it if it < 999.5 => units::plain(it),
        it if it < 999.5e3 => units::plain(it / 1e3) + "k",
        it if it < 999.5e6 => units::plain(it / 1e6) + "M",
        it => units::plain(it / 1e9) + "G",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_command_no_terminal() {
        assert_eq!(cut("a \x1b]0;name\x07\u{9b}2J é", 14), "a ?]0;name??2J");
    }

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 0.25, 7.0, 999.0, 1500.0, 999_600.0, 12.3e9]
            .map(number)
            .to_vec();
        assert_eq!(shown, ["0", "0.25", "7", "999", "1.50k", "1M", "12.3G"]);
    }
}
