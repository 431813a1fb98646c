//! The modules of one crate, and the module that a path leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The longest chain of aliases that is followed.
const LONGEST_CHAIN: usize = 16;

/// A crate as its sources declare it.
#[derive(Debug, Default)]
pub(super) struct ModuleTree {
    /// Each file that was read.
    pub(super) files: Vec<PathBuf>,
    /// Each module, the root first.
    pub(super) modules: Vec<Module>,
    /// Each path that was written, in the order of the files.
    pub(super) imports: Vec<Import>,
}

/// One module, in a file of its own or inline in another's.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The index of its file.
    pub(super) file: usize,
    /// Its room; none for the root itself.
    pub(super) room: Option<String>,
    /// The index of its parent module.
    pub(super) parent: Option<usize>,
    /// Its child modules, by name.
    pub(super) children: BTreeMap<String, usize>,
    /// The aliases of its `use` declarations.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
    /// The modules whose names it imports by glob.
    pub(super) globs: Vec<Vec<String>>,
    /// The names that it defines.
    pub(super) items: BTreeSet<String>,
    /// The types and traits that it defines, each with its line.
    pub(super) types: BTreeMap<String, usize>,
}

/// A path that the code of a module names.
#[derive(Debug)]
pub(super) struct Import {
    /// The index of its module.
    pub(super) module: usize,
    /// Its segments, as written.
    pub(super) path: Vec<String>,
    /// Its line, from 1.
    pub(super) line: usize,
    /// True if it only reexports the name, as `pub use` does.
    pub(super) reexport: bool,
}

impl ModuleTree {
    /// The module that defines the name of `path`, as written in `module`. Returns none if the path
    /// leads out of the crate.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Option<usize> {
        self.follow(module, path, LONGEST_CHAIN)
    }

    fn follow(&self, module: usize, path: &[String], chain: usize) -> Option<usize> {
        let chain = chain.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = &self.modules[module];
        match first.as_str() {
            "crate" => self.descend(0, rest, chain),
            "self" => self.descend(module, rest, chain),
            "super" => self.descend(start.parent?, rest, chain),
            name if start.children.contains_key(name) => self.descend(module, path, chain),
            name => {
                let target = start.aliases.get(name)?;
                // `use name::…` leads out of this crate where `name` is another crate.
                if target.first() == Some(first) {
                    return None;
                }
                self.follow(module, &[target, rest].concat(), chain)
            }
        }
    }

    fn descend(&self, module: usize, path: &[String], chain: usize) -> Option<usize> {
        let Some((name, rest)) = path.split_first() else {
            return Some(module);
        };
        let here = &self.modules[module];
        if name == "super" {
            return self.descend(here.parent?, rest, chain);
        }
        if let Some(&child) = here.children.get(name) {
            return self.descend(child, rest, chain);
        }
        if here.items.contains(name) {
            return Some(module);
        }
        if let Some(target) = here.aliases.get(name) {
            let whole = [target, rest].concat();
            return self.follow(module, &whole, chain);
        }
        let mut globs = here.globs.iter();
        let behind = globs.find_map(|glob| {
            let target = self.follow(module, glob, chain)?;
            let there = &self.modules[target];
            let known = there.items.contains(name) || there.children.contains_key(name);
            known.then_some(target)
        });
        match behind {
            Some(target) => self.descend(target, path, chain.checked_sub(1)?),
            // A macro defined the name: this module owns it as far as the check can tell.
            None => Some(module),
        }
    }
}
