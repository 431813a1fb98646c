//! The imports among the files of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::rooms::tree::ModuleTree;

/// The files of a crate and the edges between them.
#[derive(Debug)]
pub(super) struct Graph {
    /// Each file, with the room it belongs to.
    pub(super) files: Vec<File>,
    /// The imports: from a file to an imported file (indices), with the first line of the import.
    pub(super) edges: BTreeMap<(usize, usize), usize>,
}

/// One file of a crate.
#[derive(Debug)]
pub(super) struct File {
    /// The path of the file.
    pub(super) path: PathBuf,
    /// Its room: the top-level module. The root is a room of its own.
    pub(super) room: String,
    /// True for the root, which stands above all rooms unless the order places it.
    pub(super) is_root: bool,
}

impl Graph {
    /// The graph of a crate. A room's reexport of its own names is no edge, nor is any reexport of
    /// the root.
    pub(super) fn of(tree: &ModuleTree) -> Self {
        let named = |index: usize| {
            let path = &tree.files[index];
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let owner = tree.modules.iter().find(|it| it.file == index);
            let room = owner.and_then(|it| it.room.clone());
            File {
                path: path.clone(),
                is_root: index == 0,
                room: match room {
                    Some(room) if index != 0 => room,
                    _ => stem.into_owned(),
                },
            }
        };
        let files: Vec<File> = (0..tree.files.len()).map(named).collect();
        let mut edges = BTreeMap::new();
        for import in &tree.imports {
            let Some(target) = tree.resolve(import.module, &import.path) else {
                continue;
            };
            let from = tree.modules[import.module].file;
            let to = tree.modules[target].file;
            let own = files[from].is_root || files[from].room == files[to].room;
            if from == to || import.reexport && own {
                continue;
            }
            let line = edges.entry((from, to)).or_insert(import.line);
            *line = import.line.min(*line);
        }
        Self { files, edges }
    }

    /// The names of the rooms.
    pub(super) fn rooms(&self) -> BTreeSet<&str> {
        let rooms = self.files.iter().filter(|it| !it.is_root);
        rooms.map(|it| it.room.as_str()).collect()
    }

    /// The cycles: each largest set of files in which every file imports every other, directly or
    /// not. The import of an ancestor by a file of its folder does not count: a file extends the
    /// type that its parent declares.
    pub(super) fn cycles(&self) -> Vec<BTreeSet<usize>> {
        let reach: Vec<_> = (0..self.files.len()).map(|it| self.reachable(it)).collect();
        let mut cycles: Vec<BTreeSet<usize>> = Vec::new();
        for file in 0..self.files.len() {
            let back = |other: &&usize| reach[**other].contains(&file);
            let cycle: BTreeSet<usize> = reach[file].iter().filter(back).copied().collect();
            if !cycle.is_empty() && !cycles.contains(&cycle) {
                cycles.push(cycle);
            }
        }
        cycles
    }

    /// The edges that may be part of a cycle: those from a file to an ancestor apart.
    pub(super) fn sideward(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let edges = self
            .edges
            .iter()
            .map(|(&(from, to), &line)| (from, to, line));
        edges.filter(|&(from, to, _)| !self.files[from].path.starts_with(self.files[to].folder()))
    }

    /// All files reachable from a file. The file itself is among them only if another imports it.
    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for (_, to, _) in self.sideward().filter(|(from, ..)| *from == file) {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }
}

impl File {
    /// The folder of the files that this module has below it.
    fn folder(&self) -> PathBuf {
        match self.path.file_stem().and_then(|it| it.to_str()) {
            Some("mod" | "lib" | "main") => self.path.with_file_name(""),
            _ => self.path.with_extension(""),
        }
    }
}
