//! `hydrant-repro replay` on traces of real programs, of class S, and on invalid traces.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn replay(trace: &Path, arguments: &[&str]) -> Output {
    stepping_back("on", trace, arguments)
}

fn stepping_back(on: &str, trace: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hydrant-repro"))
        .arg("replay")
        .arg(trace)
        .args(arguments)
        .env("HYDRANT_FORESIGHT_STEPS_BACK", on)
        .output()
        .expect("the command starts")
}

/// The printed rows of a run that must succeed.
fn rows(trace: &Path, arguments: &[&str]) -> Vec<serde_json::Value> {
    rows_stepping_back("on", trace, arguments)
}

fn rows_stepping_back(on: &str, trace: &Path, arguments: &[&str]) -> Vec<serde_json::Value> {
    let arguments = [arguments, &["--format", "json"]].concat();
    let output = stepping_back(on, trace, &arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", trace.display());
    let text = String::from_utf8(output.stdout).expect("it is text");
    let parse = |line: &str| serde_json::from_str(line).expect("it is JSON");
    text.lines().map(parse).collect()
}

fn recorded(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/data");
    traces.join(format!("{name}.S.4.tar.zst"))
}

/// A folder of this test; the drop removes it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hydrant-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    /// A trace's files, unpacked.
    fn with(name: &str, trace: &str) -> Self {
        let folder = Self::new(name);
        let packed = fs::File::open(recorded(trace)).expect("the trace is there");
        let unpacked = ruzstd::decoding::StreamingDecoder::new(packed).expect("it is packed");
        let mut archive = tar::Archive::new(unpacked);
        for entry in archive.entries().expect("it is an archive") {
            let mut entry = entry.expect("it is whole");
            let path = entry.path().expect("it has a name").into_owned();
            if let Some(file) = path
                .file_name()
                .filter(|_| entry.header().entry_type().is_file())
            {
                entry
                    .unpack(folder.0.join(file))
                    .expect("it can be written");
            }
        }
        folder
    }

    fn file(&self, rank: u32) -> PathBuf {
        self.0.join(format!("rank{rank}.pmt"))
    }

    /// Changes a file.
    fn change(&self, rank: u32, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.file(rank);
        let mut bytes = fs::read(&path).expect("the file is there");
        change(&mut bytes);
        fs::write(&path, bytes).expect("it can be written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn number(row: &serde_json::Value, field: &str) -> u64 {
    row[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} of {row}"))
}

#[test]
fn every_message_of_a_trace_arrives_and_memory_is_saved() {
    // The large buffers of FT are used together, a few times, which is enough to learn from.
    for (name, messages) in [("ft", 100), ("is", 100), ("bt", 2000), ("lu", 4000)] {
        let strategies = [
            "--registration",
            "foresight,on-demand-leave-pinned",
            "--check",
        ];
        let bounded = rows(&recorded(name), &strategies);
        let took = |at: usize| number(&bounded[at], "run_ns");
        assert!(100 * took(0) <= 101 * took(1), "{name}: {bounded:?}");
        // These runs are too short to save much.
        let rows = rows_stepping_back("off", &recorded(name), &strategies);
        let [foresight, pinned] = &rows[..2] else {
            panic!("{rows:?}");
        };
        assert_eq!(rows.len(), 2 + 2 * 4);
        assert_eq!(foresight["strategy"], "foresight");
        assert!(
            number(foresight, "checked") >= messages,
            "{name}: {foresight}"
        );
        assert_eq!(number(foresight, "checked"), number(pinned, "checked"));
        assert!(
            number(foresight, "peak_bytes") <= number(pinned, "peak_bytes"),
            "{name}"
        );
        if number(pinned, "mean_bytes") > 0 {
            assert!(
                number(foresight, "mean_bytes") < number(pinned, "mean_bytes"),
                "{name}"
            );
            assert!(number(foresight, "off_path") > 0, "{name}: {foresight}");
        }
        assert_eq!(number(pinned, "off_path"), 0);
    }
}

#[test]
fn every_strategy_replays_a_trace() {
    let all = "pin-everything,bounce,rendezvous-unpin,rendezvous-no-unpin,on-demand,pipeline,\
               pipeline-leave-pinned,pin-down,firehose,auto";
    let rows = rows(&recorded("ft"), &["--registration", all, "--check"]);
    let checked = number(&rows[0], "checked");
    assert!(
        rows[..10].iter().all(|it| number(it, "checked") == checked),
        "{rows:?}"
    );
}

#[test]
fn a_replay_in_virtual_time_is_repeated_exactly() {
    let once = || rows(&recorded("is"), &["--registration", "foresight,firehose"]);
    assert_eq!(once(), once());
}

#[test]
fn a_trace_is_replayed_on_memory_that_is_really_pinned() {
    let arguments = [
        "--conduit",
        "smp+pin",
        "--registration",
        "foresight",
        "--check",
    ];
    let rows = rows(&recorded("ft"), &arguments);
    assert!(number(&rows[0], "checked") > 0);
    assert_eq!(rows[0]["conduit"], "smp+pin");
}

#[test]
fn a_picture_has_a_curve_for_each_strategy() {
    let folder = Folder::with("replay-plot", "ft");
    let picture = folder.0.join("ft.svg");
    let plot = picture.to_str().expect("it is text");
    rows(
        &folder.0,
        &["--registration", "foresight,pin-down", "--plot", plot],
    );
    let drawn = fs::read_to_string(&picture).expect("it is drawn");
    for word in ["<svg", "foresight", "pin-down", "milliseconds"] {
        assert!(drawn.contains(word), "{word}");
    }
}

#[test]
fn a_limit_that_leaving_all_pinned_exceeds_is_kept() {
    let arguments = ["--registration", "foresight", "--limit", "1M", "--check"];
    let rows = rows(&recorded("ft"), &arguments);
    assert!(number(&rows[0], "peak_bytes") <= 1 << 20, "{}", rows[0]);
}

/// The error for an invalid trace.
fn refused(trace: &Path) -> String {
    let output = replay(trace, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let told = String::from_utf8(output.stderr).expect("it is text");
    assert!(
        told.starts_with("hydrant: ") && told.lines().count() == 1,
        "{told}"
    );
    told
}

#[test]
fn the_fault_of_a_trace_is_named_with_its_position() {
    let folder = Folder::with("replay-cut", "lu");
    folder.change(2, |bytes| bytes.truncate(bytes.len() - 40));
    let told = refused(&folder.0);
    assert!(
        told.contains("rank2.pmt") && told.contains("byte"),
        "{told}"
    );

    let folder = Folder::with("replay-missing", "lu");
    fs::remove_file(folder.file(3)).expect("it is there");
    let told = refused(&folder.0);
    assert!(told.contains("rank 3"), "{told}");

    let folder = Folder::with("replay-twice", "lu");
    fs::copy(folder.file(1), folder.file(3)).expect("both are there");
    let told = refused(&folder.0);
    assert!(told.contains("rank 1"), "{told}");

    let folder = Folder::with("replay-magic", "lu");
    folder.change(0, |bytes| bytes[0] ^= 1);
    let told = refused(&folder.0);
    assert!(told.contains("rank0.pmt"), "{told}");

    // The peer of the message is a rank that does not exist.
    let folder = Folder::with("replay-peer", "lu");
    folder.change(0, |bytes| {
        for record in bytes[64..].chunks_exact_mut(72) {
            if record[56..58] == 3_u16.to_le_bytes() {
                record[48..52].copy_from_slice(&77_i32.to_le_bytes());
                return;
            }
        }
        panic!("it sends nothing");
    });
    let told = refused(&folder.0);
    assert!(told.contains("77") && told.contains("rank0.pmt"), "{told}");
}

#[test]
fn a_file_that_is_no_archive_is_refused() {
    let folder = Folder::new("replay-none");
    assert!(refused(&folder.0).contains(".pmt"));
    let archive = folder.0.join("nothing.tar.zst");
    fs::write(&archive, b"this is no archive").expect("it can be written");
    assert!(refused(&archive).contains("nothing.tar.zst"));
    let packed = fs::read(recorded("is")).expect("the trace is there");
    fs::write(&archive, &packed[..packed.len() / 2]).expect("it can be written");
    assert!(refused(&archive).contains("nothing.tar.zst"));
    assert!(refused(&folder.0.join("there-is-none")).contains("there-is-none"));
}

/// A record of a trace: the kind of the call, the peer, and the address and length of its buffer.
type Record = (u16, i32, u64, u64);

/// Writes a trace of these calls of each rank, with this much computation before the last.
fn written(name: &str, computed_ns: u64, ranks: &[&[Record]]) -> Folder {
    const INIT: Record = (1, -1, 0, 0);
    const FINALIZE: Record = (2, -1, 0, 0);
    let folder = Folder::new(name);
    for (rank, records) in ranks.iter().enumerate() {
        let head = [0x3254_4d50, 72, rank as u64, ranks.len() as u64, 0, 1, 0, 0];
        let mut bytes: Vec<u8> = head.iter().flat_map(|it| it.to_le_bytes()).collect();
        let all: Vec<_> = [&[INIT], *records, &[FINALIZE]].concat();
        for (number, (kind, peer, addr, len)) in all.iter().enumerate() {
            let at = 1000 * number as u64;
            for word in [at, 10, *addr, *len, number as u64 + 1, 0] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(peer.to_le_bytes());
            bytes.extend(0_i32.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(0_u16.to_le_bytes());
            bytes.extend((number as u32).to_le_bytes());
            let is_last = number + 1 == all.len();
            bytes.extend(if is_last { computed_ns } else { 0 }.to_le_bytes());
        }
        fs::write(folder.file(rank as u32), bytes).expect("it can be written");
    }
    folder
}

const SEND: u16 = 3;
const RECEIVE: u16 = 4;
const REDUCE: u16 = 11;

#[test]
fn lengths_and_times_that_no_machine_has_are_refused() {
    for bytes in [1 << 50, u64::MAX - 8] {
        let sent: &[Record] = &[(SEND, 1, 8, bytes)];
        let folder = written("replay-huge", 0, &[sent, &[(RECEIVE, 0, 8, bytes)]]);
        let told = refused(&folder.0);
        assert!(
            told.contains("rank 0") && told.contains("no room"),
            "{told}"
        );
        let all: &[Record] = &[(REDUCE, 0, 8, bytes)];
        let told = refused(&written("replay-huge-all", 0, &[all, all]).0);
        assert!(told.contains("no room"), "{told}");
    }
    let folder = written("replay-long", u64::MAX, &[&[], &[]]);
    let told = refused(&folder.0);
    assert!(
        told.contains("rank0.pmt") && told.contains("days"),
        "{told}"
    );
}

#[test]
fn messages_may_be_shorter_than_their_buffers() {
    for bytes in [0, 3, 8, 4000] {
        let sent: &[Record] = &[(SEND, 1, 1 << 16, bytes)];
        let received: &[Record] = &[(RECEIVE, 0, 1 << 16, 4096)];
        let folder = written("replay-short", 0, &[sent, received]);
        let rows = rows(&folder.0, &["--check"]);
        assert_eq!(
            number(&rows[0], "checked"),
            u64::from(bytes > 0),
            "{rows:?}"
        );
    }
}

#[test]
fn ranks_that_wait_for_each_other_for_ever_are_refused() {
    let ranks = [1, 0].map(|peer| [(RECEIVE, peer, 1 << 16, 8), (SEND, peer, 1 << 20, 8)]);
    let folder = written("replay-stuck", 0, &[&ranks[0], &ranks[1]]);
    let told = refused(&folder.0);
    for part in [
        "rank0.pmt, record 1 at byte 136",
        "rank 0 waits for ever for a message of rank 1",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn ranks_that_both_send_first_what_the_network_does_not_take_are_refused() {
    const LONG: u64 = 64 << 10;
    let sends_first = |peer| [(SEND, peer, 1 << 20, LONG), (RECEIVE, peer, 1 << 22, LONG)];
    let ranks = [1, 0].map(sends_first);
    let told = refused(&written("replay-both-send", 0, &[&ranks[0], &ranks[1]]).0);
    // After the header and the first record of the trace.
    for part in [
        "rank0.pmt, record 1 at byte 136",
        "rank 0 waits for ever",
        "65536 bytes",
        "8192 bytes",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // No rank waits as long as the network takes the messages eagerly.
    let short = |peer| [(SEND, peer, 1 << 20, 8192), (RECEIVE, peer, 1 << 22, 8192)];
    let ranks = [1, 0].map(short);
    let folder = written("replay-both-send-short", 0, &[&ranks[0], &ranks[1]]);
    let rows = rows(&folder.0, &["--check"]);
    assert_eq!(number(&rows[0], "checked"), 2);
}
