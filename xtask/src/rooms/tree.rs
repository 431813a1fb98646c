//! The modules of one crate, and where a path written in one of them leads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// How many names may stand for one another before we give up following them.
const LONGEST_CHAIN: usize = 16;

/// A crate as its sources declare it.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Each file that was read.
    pub(super) files: Vec<PathBuf>,
    /// Each module, the root first.
    pub(super) modules: Vec<Module>,
    /// Each path that was written, in the order of the files.
    pub(super) imports: Vec<Import>,
}

/// One module, with a file to itself or inline in another's.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The file it is in, an index.
    pub(super) file: usize,
    /// The room it belongs to; none for the root itself.
    pub(super) room: Option<String>,
    /// The module around it, an index.
    pub(super) parent: Option<usize>,
    /// The modules it declares, by name.
    pub(super) children: BTreeMap<String, usize>,
    /// What its `use` declarations call by another name.
    pub(super) aliases: BTreeMap<String, Vec<String>>,
    /// The modules it takes everything from.
    pub(super) globs: Vec<Vec<String>>,
    /// The names it defines.
    pub(super) items: BTreeSet<String>,
    /// The types and traits among them, each with its line.
    pub(super) types: BTreeMap<String, usize>,
}

/// A path that code of a module goes.
#[derive(Debug)]
pub(super) struct Import {
    /// The module it is written in, an index.
    pub(super) module: usize,
    /// Its segments, as written.
    pub(super) path: Vec<String>,
    /// Where it is written, from 1.
    pub(super) line: usize,
    /// Whether it only hands the name on, as `pub use` does.
    pub(super) reexport: bool,
}

impl Tree {
    /// The module that defines what `path` names when written in `module`; none
    /// where the path leads out of the crate.
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
                // `use name::…` where `name` is a crate leads out of this one.
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
            // What a macro defined: it is here as far as we can tell.
            None => Some(module),
        }
    }
}
