//! Rows for a reader: a table for each bench, with its references explained below it.

use hydrant_report::machine::Machine;
use hydrant_report::table::{Align, Table};
use hydrant_report::units;

use crate::args::Network;
use crate::peers::PublishedPeer;
use crate::place::{HostPlace, JobPlace};
use crate::row::{Other, Row, WORKING_SET};
use crate::timing::Spread;

/// The lines above the tables: the machine and the ranks.
pub(crate) fn header(machine: &Machine, ranks: u32) -> String {
    let crowded = match machine.cores_allowed {
        cores if (cores as u32) < ranks => format!(
            "\nmore ranks than cores ({ranks} on {cores}): bare references wait by sched_yield, goals are not judged"
        ),
        _ => String::new(),
    };
    format!("{}{crowded}", machine.line())
}

/// The lines above the tables of a job on several hosts: the network, then each host. The job with the most ranks is on
/// all of them.
pub(crate) fn header_of_hosts(rows: &[Row]) -> String {
    let places = rows.iter().filter_map(|row| row.place.as_ref());
    let Some(place) = places.max_by_key(|place| place.ranks) else {
        return String::new();
    };
    let (ranks, hosts) = (place.ranks, place.hosts.len());
    let JobPlace {
        version, conduit, ..
    } = place;
    let title = format!("hydrant {version}, {conduit}, {ranks} ranks on {hosts} hosts");
    let columns = [
        ("host", Align::Left),
        ("ranks", Align::Right),
        ("port", Align::Left),
        ("machine", Align::Left),
    ];
    let mut table = Table::new(title, &columns);
    for host in &place.hosts {
        let HostPlace {
            host,
            ranks,
            machine,
            port,
        } = host.clone();
        table.row([host, ranks.to_string(), port, machine]);
    }
    table.to_string().trim_end().to_owned()
}

/// One table for each bench, in the order of the rows.
pub(crate) fn tables(rows: &[Row], peer: &PublishedPeer, network: Network) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|a, b| a.bench == b.bench) {
        text += &table(rows, peer).to_string();
        let has_reference = rows.iter().any(|row| row.reference.is_some());
        text += match network {
            _ if !has_reference => "",
            Network::Mapped => reference(&rows[0].bench),
            Network::Registered => network_reference(&rows[0].bench),
        };
        text += "\n";
    }
    text
}

fn table(rows: &[Row], peer: &PublishedPeer) -> Table {
    let mut columns = vec![
        ("case", Align::Left),
        ("bytes", Align::Right),
        ("median", Align::Right),
        ("min", Align::Right),
        ("p90", Align::Right),
        ("p99", Align::Right),
        ("reference", Align::Right),
        ("ratio", Align::Right),
        ("goal", Align::Left),
        ("met", Align::Left),
        (peer.name, Align::Right),
    ];
    columns.extend(Other::ALL.iter().map(|other| (other.name(), Align::Right)));
    let mut table = Table::new(rows[0].bench.clone(), &columns);
    for row in rows {
        let with_unit = |figure| figure_in_words(figure, &row.unit);
        let spread = |of: fn(&Spread) -> f64| {
            let figure = row.spread.as_ref().map(of);
            figure.map_or_else(String::new, with_unit)
        };
        let met = match row.met {
            Some(true) => "✓",
            Some(false) => "✗",
            None => "",
        };
        let mut cells = vec![
            row.case.clone(),
            row.bytes
                .map_or_else(String::new, |bytes| units::bytes(bytes as f64)),
            with_unit(row.median),
            spread(|spread| spread.min),
            spread(|spread| spread.p90),
            spread(|spread| spread.p99),
            row.reference.map_or_else(String::new, with_unit),
            row.ratio.map_or_else(String::new, units::digits),
            row.goal.clone().unwrap_or_default(),
            met.to_owned(),
            peer.beside(row).map_or_else(String::new, with_unit),
        ];
        cells.extend(
            Other::ALL.map(|other| (row.others.of(other)).map_or_else(String::new, with_unit)),
        );
        table.row(cells);
    }
    table
}

/// Times and sizes in the unit that fits them, all else as measured.
fn figure_in_words(figure: f64, unit: &str) -> String {
    match unit {
        "ns" => units::nanos(figure),
        "bytes" => units::bytes(figure),
        unit => format!("{} {unit}", units::digits(figure)),
    }
}

/// The reference of a bench.
fn reference(bench: &str) -> &'static str {
    match bench {
        "rma" => "  reference: the same bytes by a bare copy between the same two places\n",
        "am" => {
            "  reference: round trips, a bare two-word ping-pong of cache lines between the processes;\n  \
             floods, a bare stream of cache lines through a ring\n"
        }
        "atomics" => "  reference: the processor's own instruction on the same word\n",
        "armci" => {
            "  reference: the same bytes by a bare copy, by a loop of copies of each run, or by a serial\n  \
             y += a*x (AVX2 where it is there); words and mutexes, the processor's instructions; where\n  \
             ranks contend, one handover of a cache line or a core; all_fence, a put and a fence each\n"
        }
        "barrier" => {
            "  reference: with a core for each rank, a bare two-word ping-pong of cache lines between two\n  \
             processes; with more, the same with sched_yield between two that share a core\n"
        }
        "collectives" => {
            "  reference: up to 64 bytes a bare two-word ping-pong, above that the copies and additions that a\n  \
             rank must do of its own at the least, all ranks at once\n"
        }
        _ => "",
    }
}

/// The reference of a bench where memory must be registered.
fn network_reference(bench: &str) -> &'static str {
    match bench {
        "rma" => {
            "  reference: the same by a bare queue pair or endpoint, posted and polled, nothing else in between; of a miss, a bare\n  \
             round trip of eight bytes\n"
        }
        "am" | "atomics" | "barrier" => {
            "  reference: a bare round trip of as many bytes: send/receive on a queue pair or endpoint, or, where\n  \
             messages go through memory, a two-word ping-pong of cache lines\n"
        }
        "armci" => {
            "  reference: the same by a bare queue pair; strided and vector, one put or get for each run;\n  \
             words, mutexes and fences, a bare round trip; all_fence, a put and a fence each\n"
        }
        "collectives" => {
            "  reference: up to 64 bytes a bare round trip, above that a bare write of as many bytes, or\n  \
             a bare copy where messages go through memory\n"
        }
        "registration" => {
            "  reference: the system's own calls on the same pages; bytes: those of the pages\n"
        }
        "registration at once" => {
            "  reference: the system's own calls by one thread, each on as many bytes as the device takes, on memory of the\n  \
             same kind; fresh: the pages are made meanwhile\n"
        }
        "pinned" => "  reference: M + MAXVICTIM + what the conduit states for itself\n",
        bench if bench.ends_with(WORKING_SET) => {
            "  bytes: those of the working set; reference: the best other strategy\n"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::Goal;
    use super::*;

    #[test]
    fn a_measured_rival_has_a_column() {
        let mut row = Row::new("barrier", "barrier, 2 ranks", "ns", 300.0);
        let nobody = PublishedPeer::registered("").unwrap();
        let text = |row: &Row| tables(std::slice::from_ref(row), &nobody, Network::Mapped);
        assert!(!text(&row).contains("MPI"), "{}", text(&row));
        row.others.open_mpi = Some(1500.0);
        let text = text(&row);
        assert!(
            text.contains("Open MPI") && text.contains("1.50 µs"),
            "{text}"
        );
        assert!(!text.contains("MPICH"), "{text}");
    }

    #[test]
    fn rows_become_one_table_for_each_bench_with_marks_and_the_peer() {
        let rows = [
            Row::new("rma", "put", "ns", 3.25)
                .bytes(8)
                .against(3.0)
                .goal(Goal::Within(2.0, "ns")),
            Row::new("rma", "put bandwidth", "GB/s", 40.0)
                .bytes(65536)
                .against(50.0)
                .goal(Goal::AtLeastTimes(0.98)),
            Row::new("cost", "memory for each rank", "bytes", 1_048_576.0),
        ];
        let text = tables(&rows, &PublishedPeer::mapped().unwrap(), Network::Mapped);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "rma");
        assert!(lines[1].ends_with("GASNet-EX smp"), "{text}");
        assert!(
            lines[3].contains("✓") && lines[3].ends_with("3 ns"),
            "{text}"
        );
        assert!(
            lines[4].contains("✗") && lines[4].ends_with("47.0 GB/s"),
            "{text}"
        );
        let ends = |line: &str, cell: &str| {
            line.find(cell)
                .map(|at| line[..at].chars().count() + cell.chars().count())
        };
        assert_eq!(
            ends(lines[1], "median"),
            ends(lines[3], "3.25 ns"),
            "{text}"
        );
        assert_eq!(
            ends(lines[1], "median"),
            ends(lines[4], "40.0 GB/s"),
            "{text}"
        );
        assert!(
            text.contains("\ncost\n") && text.contains("1 MiB"),
            "{text}"
        );
    }
}
