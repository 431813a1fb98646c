//! The check that no room imports one above it, and that no files import each other.
//!
//! A room is a top-level module of a crate: a folder, or a file. It may import the rooms below it,
//! in the order that `xtask/rooms.toml` declares. Crates stand on floors in the same way. Files
//! import each other in no cycle, but a file may import its parent. Code that only tests or the
//! fuzzer use is exempt.

mod graph;
mod order;
mod source;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::packages::{self, Root};
use crate::rooms::graph::Graph;
use crate::rooms::order::{Judged, RoomPlan};
use crate::rooms::source::CrateReader;
use crate::rooms::tree::ModuleTree;

/// The file that declares the orders.
const PLAN: &str = "xtask/rooms.toml";

/// Checks every crate of the workspace. Returns a line about each.
pub(crate) fn rooms() -> Result<Vec<String>, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let plan = RoomPlan::read(&workspace.join(PLAN)).map_err(refused)?;
    let packages = packages::all()?;
    let mut problems = plan.misplaced(&packages);
    let mut notes = Vec::new();
    for package in &packages {
        for root in &package.roots {
            let graph = read(&workspace, root).map_err(refused)?;
            let Some(judged) = plan.judge(&root.key, &graph) else {
                continue;
            };
            notes.push(note(&root.key, &graph, &judged));
            problems.extend(judged.problems);
        }
    }
    for key in plan.unused(&packages) {
        problems.push(format!("{PLAN} orders {key}, which is no crate"));
    }
    if problems.is_empty() {
        return Ok(notes);
    }
    problems.extend(notes);
    Err(Error::Rooms { problems })
}

/// A type or a trait that a crate declares, tests apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Declared {
    /// Its name.
    pub(crate) name: String,
    /// The file that declares it, relative to the workspace.
    pub(crate) file: PathBuf,
    /// The line of its name.
    pub(crate) line: usize,
}

/// The types and traits of every crate of the workspace. A name counts once for each module.
pub(crate) fn types() -> Result<BTreeSet<Declared>, Error> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut types = BTreeSet::new();
    for package in packages::all()? {
        for root in &package.roots {
            types.extend(declared(&tree(&workspace, root).map_err(refused)?));
        }
    }
    Ok(types)
}

fn declared(tree: &ModuleTree) -> impl Iterator<Item = Declared> {
    tree.modules.iter().flat_map(|module| {
        module.types.iter().map(|(name, &line)| Declared {
            name: name.clone(),
            file: tree.files[module.file].clone(),
            line,
        })
    })
}

fn read(workspace: &Path, root: &Root) -> Result<Graph, String> {
    Ok(Graph::of(&tree(workspace, root)?))
}

fn tree(workspace: &Path, root: &Root) -> Result<ModuleTree, String> {
    let on_disk = |file: &Path| std::fs::read_to_string(workspace.join(file)).ok();
    CrateReader::new(&on_disk).read(&root.file)
}

/// A line about a crate, whether or not it is in order.
fn note(key: &str, graph: &Graph, judged: &Judged) -> String {
    let (files, edges) = (graph.files.len(), graph.edges.len());
    let state = match judged.problems.len() {
        0 => "in order".to_owned(),
        problems => format!("{problems} problems"),
    };
    format!("{key}: {files} files, {edges} edges; {state}")
}

/// An error of the check itself, which could not read its input.
fn refused(what: String) -> Error {
    Error::NotRead { what }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The graph of a crate made of these files.
    fn graph(files: &[(&str, &str)]) -> Graph {
        Graph::of(&tree(files))
    }

    /// The modules of a crate made of these files.
    fn tree(files: &[(&str, &str)]) -> ModuleTree {
        let files: HashMap<PathBuf, String> = files
            .iter()
            .map(|(name, text)| (PathBuf::from(name), (*text).to_owned()))
            .collect();
        let read = |file: &Path| files.get(file).cloned();
        CrateReader::new(&read)
            .read(Path::new("src/lib.rs"))
            .unwrap()
    }

    fn judge(plan: &str, files: &[(&str, &str)]) -> Judged {
        let plan = RoomPlan::parse(plan).unwrap();
        plan.judge("made-up", &graph(files)).unwrap()
    }

    const ORDER: &str = "[crate.made-up]\norder = ['low', 'high']";
    const ROOT: (&str, &str) = ("src/lib.rs", "mod high;\nmod low;\npub use high::High;");

    #[test]
    fn a_higher_room_may_import_a_lower_one() {
        let high = "use crate::low::Low;\npub struct High(Low);";
        let files = [
            ROOT,
            ("src/high.rs", high),
            ("src/low.rs", "pub struct Low;"),
        ];
        assert!(judge(ORDER, &files).problems.is_empty());
    }

    #[test]
    fn a_lower_room_may_not_import_a_higher_one() {
        let low = "pub struct Low;\nuse crate::high::High;";
        let files = [
            ROOT,
            ("src/high.rs", "pub struct High;"),
            ("src/low.rs", low),
        ];
        let judged = judge(ORDER, &files);
        assert_eq!(
            judged.problems,
            ["src/low.rs:2: room low (lower) imports room high (higher)"]
        );
    }

    #[test]
    fn every_spelling_of_a_path_is_an_import() {
        for low in [
            "fn f() { crate::high::f() }",
            "fn f() { super::high::f() }",
            "fn f() { use crate::{high as h}; }",
            "fn f() { log!(1, crate::high::f()) }",
            "use crate::high::*;",
            "use crate::High;",
            "pub(crate) use crate::high::High as Mine;",
            "mod inner { use super::super::high::High; }",
            "fn f() -> Vec<super::high::High> { todo() }",
        ] {
            let high = "pub struct High; pub fn f() {}";
            let files = [ROOT, ("src/high.rs", high), ("src/low.rs", low)];
            assert_eq!(judge(ORDER, &files).problems.len(), 1, "{low}");
        }
    }

    #[test]
    fn tests_may_import_what_they_like() {
        for low in [
            "#[cfg(test)] mod tests { use crate::high::High; }",
            "#[cfg(all(test, not(loom)))] use crate::high::High;",
            "#[cfg(doc)] use crate::high::High;",
            "#[test] fn t() { crate::high::f() }",
            "#[cfg(test)] mod tests;",
            "#[cfg(feature = \"fuzzing\")] use crate::high::High;",
        ] {
            let files = [ROOT, ("src/high.rs", ""), ("src/low.rs", low)];
            assert_eq!(judge(ORDER, &files).problems.len(), 0, "{low}");
        }
        let low = "#[cfg(not(test))] use crate::high::High;";
        let files = [ROOT, ("src/high.rs", ""), ("src/low.rs", low)];
        assert_eq!(judge(ORDER, &files).problems.len(), 1);
    }

    #[test]
    fn a_room_is_a_folder_with_all_its_files() {
        let files = [
            ROOT,
            ("src/high/mod.rs", "mod deep;"),
            ("src/high/deep.rs", "use crate::low::thing::f;"),
            ("src/low/mod.rs", "pub mod thing;"),
            ("src/low/thing.rs", "use super::super::high;"),
        ];
        let judged = judge(ORDER, &files);
        assert_eq!(
            judged.problems,
            ["src/low/thing.rs:1: room low (lower) imports room high (higher)"]
        );
    }

    #[test]
    fn rooms_named_together_may_know_each_other() {
        let plan = "[crate.made-up]\norder = [['low', 'high']]";
        let files = [
            ROOT,
            ("src/high/mod.rs", "mod deep; use crate::low;"),
            ("src/high/deep.rs", ""),
            ("src/low.rs", "use crate::high::deep::Deep;"),
        ];
        assert_eq!(judge(plan, &files).problems.len(), 0);
    }

    #[test]
    fn every_room_has_its_place_and_every_crate_its_order() {
        let files = [ROOT, ("src/high.rs", ""), ("src/low.rs", "")];
        let judged = judge("[crate.made-up]\norder = ['low']", &files);
        assert!(judged.problems[0].contains("room high"));
        let judged = judge("[crate.made-up]\norder = ['low', 'high', 'attic']", &files);
        assert!(judged.problems[0].contains("room attic"));
        let judged = judge("", &files);
        assert!(judged.problems[0].contains("no order"));
    }

    #[test]
    fn the_root_is_above_all_rooms_unless_it_is_placed() {
        let root = "mod low;\nmod high;\npub struct Root;";
        let low = "use crate::Root;";
        let files = [
            ("src/lib.rs", root),
            ("src/high.rs", ""),
            ("src/low.rs", low),
        ];
        assert_eq!(judge(ORDER, &files).problems.len(), 1);
        let placed = "[crate.made-up]\norder = ['lib', 'low', 'high']";
        assert_eq!(judge(placed, &files).problems.len(), 0);
    }

    #[test]
    fn files_may_not_import_each_other() {
        let plan = "[crate.made-up]\norder = [['a', 'b', 'c']]";
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b::B;"),
            ("src/b.rs", "\nuse crate::c::C;"),
            ("src/c.rs", "use crate::a::A;"),
        ];
        let expected = "a cycle of 3 files: src/a.rs:1 imports src/b.rs, src/b.rs:2 imports src/c.rs, src/c.rs:1 imports src/a.rs";
        assert_eq!(judge(plan, &files).problems, [expected]);
        let accepted = format!("{plan}\ncycles = 1");
        assert!(judge(&accepted, &files).problems.is_empty());
        let too_many = format!("{plan}\ncycles = 2");
        assert_eq!(judge(&too_many, &files).problems.len(), 2);
    }

    #[test]
    fn a_file_may_import_its_parent() {
        let plan = "[crate.made-up]\norder = ['a', 'b']";
        let b = ("src/b.rs", "");
        for parent in ["src/a.rs", "src/a/mod.rs"] {
            let files = [
                ("src/lib.rs", "mod a; mod b;"),
                (parent, "mod deep; use deep::Deep; pub struct A;"),
                ("src/a/deep.rs", "use super::A; pub struct Deep;"),
                b,
            ];
            assert!(judge(plan, &files).problems.is_empty(), "{parent}");
        }
    }

    #[test]
    fn types_are_listed_by_module_and_those_of_tests_are_not() {
        let low = "pub struct A;\nfn f() {}\nmod inner { enum A {} }\n#[cfg(test)] mod tests { struct B; }";
        let files = [
            ROOT,
            ("src/high.rs", "trait T {}\ntype L = A;"),
            ("src/low.rs", low),
        ];
        let types: BTreeSet<_> = declared(&tree(&files)).collect();
        let told = |it: Declared| format!("{} {}:{}", it.name, it.file.display(), it.line);
        let types: Vec<_> = types.into_iter().map(told).collect();
        let expected = [
            "A src/low.rs:1",
            "A src/low.rs:3",
            "L src/high.rs:2",
            "T src/high.rs:1",
        ];
        assert_eq!(types, expected);
    }
}
