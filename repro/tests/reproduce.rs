//! `hydrant-repro papers`, quickly. Every experiment runs to its end, writes its files, keeps the
//! papers' orderings, and prints the same figures again. No test checks speed, because time is
//! virtual.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use serde_json::Value;

/// All experiments, and the files that each writes beside the page.
const FILES: [(&str, &[&str]); 29] = [
    (
        "firehose-table-3",
        &["firehose-table-3.csv", "firehose-table-3-others.csv"],
    ),
    (
        "firehose-figure-3",
        &["firehose-figure-3.csv", "firehose-figure-3.svg"],
    ),
    (
        "firehose-figure-4",
        &["firehose-figure-4.csv", "firehose-figure-4.svg"],
    ),
    (
        "firehose-figure-5",
        &["firehose-figure-5.csv", "firehose-figure-5.svg"],
    ),
    (
        "firehose-shares",
        &["firehose-shares.csv", "firehose-shares.svg"],
    ),
    ("pindown-table-2", &["pindown-table-2.csv"]),
    ("pindown-table-3", &["pindown-table-3.csv"]),
    (
        "pindown-figure-5",
        &["pindown-figure-5.csv", "pindown-figure-5.svg"],
    ),
    (
        "pindown-figure-6",
        &[
            "pindown-figure-6.csv",
            "pindown-figure-6.svg",
            "pindown-figure-6-points.csv",
        ],
    ),
    (
        "armci-figure-2",
        &["armci-figure-2.csv", "armci-figure-2.svg"],
    ),
    (
        "armci-figure-6",
        &["armci-figure-6.csv", "armci-figure-6.svg"],
    ),
    (
        "armci-figure-7",
        &["armci-figure-7.csv", "armci-figure-7.svg"],
    ),
    ("armci-table-2", &["armci-table-2.csv"]),
    (
        "armci-figure-8",
        &["armci-figure-8.csv", "armci-figure-8.svg"],
    ),
    (
        "armci-figure-9",
        &["armci-figure-9.csv", "armci-figure-9.svg"],
    ),
    (
        "armci-figure-10",
        &["armci-figure-10.csv", "armci-figure-10.svg"],
    ),
    (
        "armci-figure-11",
        &["armci-figure-11.csv", "armci-figure-11.svg"],
    ),
    (
        "armci-figure-12",
        &[
            "armci-figure-12.csv",
            "armci-figure-12.svg",
            "armci-figure-12-times.csv",
        ],
    ),
    (
        "foresight-figure-2",
        &["foresight-figure-2-times.csv", "foresight-figure-2.svg"],
    ),
    (
        "foresight-figure-5",
        &[
            "foresight-figure-5.csv",
            "foresight-figure-5.svg",
            "foresight-figure-5-traces.csv",
            "foresight-figure-5-smooth.csv",
            "foresight-figure-5-traces-smooth.csv",
        ],
    ),
    (
        "foresight-figure-6",
        &[
            "foresight-figure-6-a.csv",
            "foresight-figure-6-a.svg",
            "foresight-figure-6-b.csv",
            "foresight-figure-6-b.svg",
            "foresight-figure-6-landmarks.csv",
            "foresight-figure-6-landmarks.svg",
        ],
    ),
    (
        "foresight-figure-8",
        &["foresight-figure-8.csv", "foresight-figure-8.svg"],
    ),
    (
        "foresight-figure-9",
        &[
            "foresight-figure-9.csv",
            "foresight-figure-9.svg",
            "foresight-figure-9-4mb.csv",
            "foresight-figure-9-medians.csv",
        ],
    ),
    (
        "foresight-figure-10",
        &[
            "foresight-figure-10.csv",
            "foresight-figure-10.svg",
            "foresight-figure-10-4mb.csv",
            "foresight-figure-10-medians.csv",
        ],
    ),
    (
        "foresight-figure-11",
        &[
            "foresight-figure-11.csv",
            "foresight-figure-11.svg",
            "foresight-table-2.csv",
            "foresight-figure-3.csv",
        ],
    ),
    (
        "foresight-figure-12",
        &["foresight-table-3.csv", "foresight-figure-12.svg"],
    ),
    (
        "foresight-figure-13",
        &["foresight-table-4.csv", "foresight-figure-13.svg"],
    ),
    (
        "scale-hot-spot",
        &["scale-hot-spot.csv", "scale-hot-spot.svg"],
    ),
    ("scale-traffic", &["scale-traffic.csv"]),
];

/// The expectations that hold for any amount of work: by experiment and part of the criterion's
/// text.
const ORDERINGS: [(&str, &str); 47] = [
    (
        "firehose-table-3",
        "Cannon, 4 ranks: puts that are one-sided",
    ),
    (
        "firehose-table-3",
        "Cannon, 4 ranks: with unpin takes at least 5",
    ),
    ("firehose-table-3", "Cannon, 4 ranks: no-unpin takes longer"),
    (
        "firehose-table-3",
        "Bitonic sort, 8 ranks: puts that are one-sided",
    ),
    (
        "firehose-table-3",
        "Bitonic sort, 8 ranks: with unpin takes at least 5",
    ),
    (
        "firehose-table-3",
        "Bitonic sort, 8 ranks: no-unpin takes longer",
    ),
    ("firehose-figure-3", "no-unpin above firehose up to M"),
    ("firehose-figure-3", "the knee is at M + MAXVICTIM"),
    ("firehose-figure-3", "passes no-unpin only beyond the knee"),
    ("firehose-figure-4", "full bandwidth up to M"),
    ("firehose-figure-5", "firehose above no-unpin"),
    ("firehose-shares", "borrowing beats the static share"),
    ("pindown-figure-5", "1 MB, all hits"),
    ("pindown-figure-5", "more hits, more bandwidth"),
    ("pindown-figure-6", "later with no hits than with all"),
    ("armci-figure-7", "zero copy loses"),
    ("armci-table-2", "get, myrinet"),
    ("armci-table-2", "lock, clan"),
    ("armci-table-2", "unlock, myrinet"),
    ("armci-table-2", "unlock, clan"),
    ("armci-figure-8", "put is ahead of get"),
    ("armci-figure-9", "strided is not far behind"),
    ("armci-figure-10", "put is ahead of get"),
    ("armci-figure-11", "strided is not far behind"),
    ("armci-figure-12", "requests: 3, 5 and 7 outstanding"),
    ("armci-figure-12", "requests: the improvement is lower"),
    ("armci-figure-12", "copies: 3, 5 and 7 outstanding"),
    ("armci-figure-12", "copies: the improvement is lower"),
    ("pindown-table-3", "IS: most uses hit"),
    ("foresight-figure-2", "makes communication longer"),
    ("foresight-figure-5", "without jitter"),
    ("foresight-figure-6", "(a) more than the communication"),
    ("foresight-figure-8", "the aggressive policy saves more"),
    ("foresight-figure-8", "the conservative policy saves more"),
    ("foresight-figure-9", "registers less at most"),
    ("foresight-figure-9", "once it knows the period"),
    ("foresight-figure-9", "is slower than leaving pinned"),
    (
        "foresight-figure-10",
        "leaving pinned registers several times",
    ),
    ("foresight-figure-10", "as fast as leaving pinned"),
    ("foresight-figure-10", "the pipeline is the fastest"),
    ("foresight-figure-11", "registered memory falls over time"),
    ("foresight-figure-11", "not leaving pinned takes longer"),
    ("foresight-figure-11", "FT finishes with the helper"),
    ("foresight-figure-12", "test 1: a host's peak falls"),
    ("foresight-figure-13", "strong scaling: about a third"),
    ("scale-hot-spot", "borrowing keeps hits"),
    ("scale-traffic", "borrowing never hits less"),
];

fn reproduce(arguments: &[&str], out: &Path) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_hydrant-repro"))
        .arg("papers")
        .args(arguments)
        .arg("--out")
        .arg(out)
        .output()
        .expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_quick_run_keeps_the_papers_orderings_and_is_the_same_again() {
    let out = std::env::temp_dir().join(format!("hydrant-reproduce-{}", std::process::id()));
    let (fine, said, errors) = reproduce(&["all", "--quick", "--format", "json"], &out);
    assert!(fine, "{said}\n{errors}");

    let criteria: Vec<Value> = (said.lines())
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    for (part, what) in ORDERINGS {
        let found = criteria.iter().find(|criterion| {
            criterion["part"] == part
                && criterion["what"]
                    .as_str()
                    .is_some_and(|text| text.contains(what))
        });
        let criterion = found.unwrap_or_else(|| panic!("{part} says nothing of {what:?}\n{said}"));
        assert_eq!(criterion["met"], true, "{criterion}");
        assert!(
            criterion["paper"].is_string() && criterion["ours"].is_string(),
            "{criterion}"
        );
    }

    let page = std::fs::read_to_string(out.join("index.html")).expect("the page");
    for (part, files) in FILES {
        assert!(
            page.contains(&format!("<h2 id=\"{part}\">")),
            "{part} is not on the page"
        );
        for file in files {
            let text = std::fs::read_to_string(out.join(file)).expect(file);
            if let Some(picture) = file.strip_suffix(".svg") {
                assert!(text.starts_with("<svg"), "{file}");
                let figure = format!("<figure id=\"{picture}\"><svg");
                assert!(page.contains(&figure), "{file} is not on the page");
            } else {
                check_csv(file, &text);
            }
        }
    }
    for outside in ["<script", "<link", "<img", "src=\"http", "url(http"] {
        assert!(!page.contains(outside), "the page needs {outside}");
    }

    let again = out.join("again");
    let (fine, ..) = while_others_compute(|| reproduce(&["all", "--quick"], &again));
    assert!(fine, "the second run");
    let (first, second) = (written(&out), written(&again));
    assert!(first.keys().eq(second.keys()), "the runs wrote other files");
    for (file, text) in &first {
        assert!(second[file] == *text, "{file} is another the second time");
    }
    std::fs::remove_dir_all(&out).expect("it is ours");
}

/// Runs `body` while more threads than cores compute: the lost real time must not show in the
/// result.
fn while_others_compute<R>(body: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    let threads = 2 * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = body();
        over.store(true, Relaxed);
        result
    })
}

/// All files of a run, without the lines of its duration.
fn written(out: &Path) -> BTreeMap<String, String> {
    let files = std::fs::read_dir(out).expect("the folder is there");
    let files = files.map(|file| file.expect("it is readable").path());
    let text = |path: &Path| {
        let text = std::fs::read_to_string(path).expect("it is text");
        let lines = text.lines().filter(|line| !line.contains("of real time"));
        lines.collect::<Vec<_>>().join("\n")
    };
    files
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap_or_default();
            (name.to_string_lossy().into_owned(), text(&path))
        })
        .collect()
}

/// Checks that rows are as wide as the heading, that there is at least one, and that each has a
/// number.
fn check_csv(file: &str, text: &str) {
    let mut lines = text.lines();
    let columns = lines.next().map_or(0, |heading| heading.split(',').count());
    assert!(columns >= 3, "{file}: {text}");
    let mut rows = 0;
    for line in lines {
        assert_eq!(cells(line).len(), columns, "{file}: {line}");
        let numbers = cells(line)
            .iter()
            .filter(|cell| cell.parse::<f64>().is_ok())
            .count();
        assert!(numbers >= 1, "{file}: {line}");
        rows += 1;
    }
    assert!(rows >= 1, "{file} is empty");
}

fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cells.last_mut().expect("there is one").push(character),
        }
    }
    cells
}

#[test]
fn a_folder_without_traces_is_an_error() {
    let out = std::env::temp_dir().join(format!("hydrant-no-traces-{}", std::process::id()));
    std::fs::create_dir_all(&out).expect("a folder can be made");
    let folder = out.to_str().expect("it is text");
    let (fine, _, errors) = reproduce(&["foresight", "--traces", folder], &out);
    assert!(!fine);
    assert!(errors.contains("it holds neither an archive"), "{errors}");
    let (fine, _, errors) = reproduce(&["foresight", "--traces", "/nowhere"], &out);
    assert!(!fine);
    assert!(errors.contains("no traces from /nowhere"), "{errors}");
    std::fs::remove_dir_all(&out).expect("it is ours");
}

#[test]
fn an_unwritable_file_is_an_error() {
    let (fine, _, errors) = reproduce(&["armci", "--quick"], Path::new("/proc/nowhere"));
    assert!(!fine);
    assert!(errors.contains("cannot write /proc/nowhere"), "{errors}");
}
