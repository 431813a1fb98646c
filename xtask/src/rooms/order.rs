//! The orders that `xtask/rooms.toml` declares, and the verdict on each crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::packages::Package;
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
    /// The rooms from the ground up; none where the order is not yet decided.
    order: Option<Vec<RoomLevel>>,
    /// The number of backward edges that are accepted until they are mended.
    #[serde(default)]
    at_most: usize,
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
    /// Where none is declared: the best order that was found, from the ground up.
    pub(super) found: Option<Vec<String>>,
    /// The number of edges between files from a lower room to a higher one. Where no order is
    /// declared, the best order found counts.
    pub(super) backward: usize,
    /// The number of such edges that is accepted.
    pub(super) at_most: usize,
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
        let declared = self.crates.get(key);
        let at_most = declared.map_or(0, |it| it.at_most);
        let mut problems = Vec::new();
        if declared.is_none() {
            problems.push(format!("{key} has no order"));
        }
        let order = declared.and_then(|it| it.order.as_deref());
        let levels = match order {
            Some(order) => {
                let levels = levels(order);
                let missing = rooms.iter().filter(|room| !levels.contains_key(*room));
                problems.extend(missing.map(|room| format!("{key}: room {room} has no place")));
                let root = graph.files.iter().find(|it| it.is_root);
                let is_root = |room: &str| root.is_some_and(|it| it.room == room);
                let gone = levels.keys().copied();
                let gone = gone.filter(|room| !rooms.contains(room) && !is_root(room));
                problems.extend(gone.map(|room| format!("{key}: there is no room {room}")));
                levels
            }
            None => best(graph),
        };
        let backward = backward(graph, &levels);
        let count = backward.len();
        if count > at_most {
            problems.extend(backward);
            if at_most > 0 {
                problems.push(format!("{key}: {count} edges backward, at most {at_most}"));
            }
        }
        Some(Judged {
            found: order.is_none().then(|| listed(&levels)),
            backward: count,
            at_most,
            problems,
        })
    }
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

fn listed(levels: &Levels<'_>) -> Vec<String> {
    let mut rooms: Vec<_> = levels.iter().collect();
    rooms.sort_by_key(|(_, level)| **level);
    rooms.iter().map(|(room, _)| (**room).to_owned()).collect()
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

/// An order with few edges backward, for a crate that declares none. Rooms move one at a time while
/// that helps. The fewest edges are hard to find, and a ceiling needs only the same answer each
/// time.
fn best(graph: &Graph) -> Levels<'_> {
    let files = &graph.files;
    let mut rooms: Vec<&str> = files.iter().map(|it| it.room.as_str()).collect();
    rooms.sort_unstable();
    rooms.dedup();
    let place = |file: usize| rooms.binary_search(&files[file].room.as_str());
    // The number of edges from one room to another.
    let mut weights = vec![vec![0_i64; rooms.len()]; rooms.len()];
    for &(from, to) in graph.edges.keys() {
        if let (Ok(from), Ok(to)) = (place(from), place(to)) {
            weights[from][to] += 1;
        }
    }
    let mut order: Vec<usize> = (0..rooms.len()).collect();
    // At the start, the rooms that are imported most and import least stand lowest.
    order.sort_by_key(|&room| {
        let out: i64 = weights[room].iter().sum();
        let into: i64 = weights.iter().map(|row| row[room]).sum();
        out - into
    });
    while let Some((from, to)) = better(&order, &weights) {
        let room = order.remove(from);
        order.insert(to, room);
    }
    order
        .iter()
        .enumerate()
        .map(|(level, &room)| (rooms[room], level))
        .collect()
}

/// The move of one room, from one position to another, that reverses most backward edges.
fn better(order: &[usize], weights: &[Vec<i64>]) -> Option<(usize, usize)> {
    let mut found = (0, None);
    for from in 0..order.len() {
        let room = order[from];
        // The gain of passing `other` upward: edges to it were backward and are no longer.
        let gain = |other: usize| weights[room][other] - weights[other][room];
        let mut up = 0;
        for (to, &other) in order.iter().enumerate().skip(from + 1) {
            up += gain(other);
            if up > found.0 {
                found = (up, Some((from, to)));
            }
        }
        let mut down = 0;
        for (to, &other) in order.iter().enumerate().take(from).rev() {
            down -= gain(other);
            if down > found.0 {
                found = (down, Some((from, to)));
            }
        }
    }
    found.1
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
    fn an_order_with_few_edges_backward_is_found() {
        // 0 imports 1, 1 imports 2, and once 2 imports 0.
        let weights = vec![vec![0, 3, 0], vec![0, 0, 3], vec![1, 0, 0]];
        let mut order = vec![0, 1, 2];
        while let Some((from, to)) = better(&order, &weights) {
            let room = order.remove(from);
            order.insert(to, room);
        }
        assert_eq!(order, [2, 1, 0]);
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        assert!(RoomPlan::parse("[crate.a]\nat_mots = 1").is_err());
    }
}
