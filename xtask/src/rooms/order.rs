//! The orders that `xtask/rooms.toml` declares, and the verdict on each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::packages::Package;
use crate::rooms::PLAN;
use crate::rooms::graph::Graph;

/// The declared orders.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoomPlan {
    /// The packages on each floor, from the ground up.
    #[serde(default)]
    floors: Vec<Vec<String>>,
    /// The order of each crate, by its key.
    #[serde(default, rename = "crate")]
    crates: BTreeMap<String, RoomOrder>,
}

/// The order of one crate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoomOrder {
    /// The rooms from the ground up.
    order: Vec<RoomLevel>,
    /// The number of cycles of files that are accepted until they are broken.
    #[serde(default)]
    cycles: usize,
}

/// One room, or several that may import each other.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RoomLevel {
    One(String),
    Several(Vec<String>),
}

/// The verdict on one crate.
#[derive(Debug)]
pub(super) struct Judged {
    /// A sentence for each problem.
    pub(super) problems: Vec<String>,
}

/// The level of each room.
type Levels<'a> = BTreeMap<&'a str, usize>;

impl RoomPlan {
    /// Reads the file of orders.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        Self::parse(&text)
    }

    /// Parses the text of that file.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// The packages that this file names and the workspace lacks.
    pub(super) fn unused(&self, packages: &[Package]) -> Vec<&str> {
        let roots = || packages.iter().flat_map(|it| &it.roots);
        let keys = self.crates.keys().map(String::as_str);
        keys.filter(|key| roots().all(|it| it.key != *key))
            .collect()
    }

    /// A sentence for each package that imports a package that is not on a lower floor.
    pub(super) fn misplaced(&self, packages: &[Package]) -> Vec<String> {
        let floor = |name: &str| {
            let on = |floor: &Vec<String>| floor.iter().any(|it| it == name);
            self.floors.iter().position(on)
        };
        let mut problems = Vec::new();
        for package in packages {
            let name = &package.name;
            let Some(here) = floor(name) else {
                problems.push(format!("{name} is on no floor"));
                continue;
            };
            for other in &package.imports {
                if floor(other).is_some_and(|there| there >= here) {
                    problems.push(format!("{name} imports {other}, which is not below it"));
                }
            }
        }
        problems
    }

    /// Judges the crate `key`. Returns none if the crate has fewer than two rooms.
    pub(super) fn judge(&self, key: &str, graph: &Graph) -> Option<Judged> {
        let rooms = graph.rooms();
        if rooms.len() < 2 {
            return None;
        }
        let Some(RoomOrder { order, cycles }) = self.crates.get(key) else {
            let problems = vec![format!("{key} has no order")];
            return Some(Judged { problems });
        };
        let mut problems = cycles_of(graph);
        if problems.len() == *cycles {
            problems.clear();
        } else if *cycles > 0 {
            let found = problems.len();
            problems.push(format!(
                "{key}: {found} cycles of files, {cycles} in {PLAN}"
            ));
        }
        let levels = levels(order);
        let missing = rooms.iter().filter(|room| !levels.contains_key(*room));
        problems.extend(missing.map(|room| format!("{key}: room {room} has no place")));
        let root = graph.files.iter().find(|it| it.is_root);
        let is_root = |room: &str| root.is_some_and(|it| it.room == room);
        let gone = levels.keys().copied();
        let gone = gone.filter(|room| !rooms.contains(room) && !is_root(room));
        problems.extend(gone.map(|room| format!("{key}: there is no room {room}")));
        problems.extend(backward(graph, &levels));
        Some(Judged { problems })
    }
}

/// A sentence for each cycle of files.
fn cycles_of(graph: &Graph) -> Vec<String> {
    let path = |file: usize| graph.files[file].path.display();
    let sentence = |cycle: BTreeSet<usize>| {
        let inside =
            |(from, to, _): &(usize, usize, usize)| cycle.contains(from) && cycle.contains(to);
        let edges = graph.sideward().filter(inside);
        let edges =
            edges.map(|(from, to, line)| format!("{}:{line} imports {}", path(from), path(to)));
        let edges: Vec<_> = edges.collect();
        format!("a cycle of {} files: {}", cycle.len(), edges.join(", "))
    };
    graph.cycles().into_iter().map(sentence).collect()
}

fn levels(order: &[RoomLevel]) -> Levels<'_> {
    let mut levels = Levels::new();
    for (level, rooms) in order.iter().enumerate() {
        match rooms {
            RoomLevel::One(room) => drop(levels.insert(room, level)),
            RoomLevel::Several(rooms) => levels.extend(rooms.iter().map(|it| (it.as_str(), level))),
        }
    }
    levels
}

/// A sentence for each edge from a lower room to a higher one.
fn backward(graph: &Graph, levels: &Levels<'_>) -> Vec<String> {
    let level = |file: usize| {
        let file = &graph.files[file];
        let unplaced = if file.is_root { usize::MAX } else { 0 };
        levels.get(file.room.as_str()).copied().unwrap_or(unplaced)
    };
    let upward = graph.edges.iter();
    let upward = upward.filter(|((from, to), _)| level(*from) < level(*to));
    let sentence = |((from, to), line): (&(usize, usize), &usize)| {
        let (from, to) = (&graph.files[*from], &graph.files[*to]);
        let (file, low, high) = (from.path.display(), &from.room, &to.room);
        format!("{file}:{line}: room {low} (lower) imports room {high} (higher)")
    };
    upward.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, imports: &[&str]) -> Package {
        Package {
            name: name.into(),
            folder: name.into(),
            depends_on: vec![],
            imports: imports.iter().map(|it| (*it).to_owned()).collect(),
            has_library: true,
            roots: vec![],
        }
    }

    #[test]
    fn crates_import_only_from_lower_floors() {
        let plan = RoomPlan::parse("floors = [['ground'], ['first', 'beside']]").unwrap();
        assert!(plan.misplaced(&[package("first", &["ground"])]).is_empty());
        for wrong in [
            package("ground", &["first"]),
            package("first", &["beside"]),
            package("nowhere", &[]),
        ] {
            assert_eq!(plan.misplaced(&[wrong]).len(), 1);
        }
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        assert!(RoomPlan::parse("[crate.a]\nodrer = []").is_err());
    }
}
