//! Reads the sources of a crate: its modules, and the paths that they name.

use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemMod, ItemUse, UseTree, Visibility};

use crate::rooms::tree::{Import, Module, ModuleTree};

/// The feature of the code that only the fuzzer calls, as a condition writes it.
const FUZZING: &str = "\"fuzzing\"";

/// Reads one crate, file by file, through `text`.
pub(super) struct CrateReader<'a> {
    /// Gives the text of a file; none where there is no such file.
    text: &'a dyn Fn(&Path) -> Option<String>,
    /// The tree so far.
    tree: ModuleTree,
}

impl<'a> CrateReader<'a> {
    /// A reader that gets files from `text`.
    pub(super) fn new(text: &'a dyn Fn(&Path) -> Option<String>) -> Self {
        let tree = ModuleTree::default();
        Self { text, tree }
    }

    /// Reads the crate whose root is `file`.
    pub(super) fn read(mut self, file: &Path) -> Result<ModuleTree, String> {
        let text = (self.text)(file).ok_or_else(|| format!("no file {}", file.display()))?;
        self.tree.modules.push(Module::default());
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        self.file(0, file, &text, folder)?;
        Ok(self.tree)
    }

    /// Parses the text of `file`. The file is `module`, and its children are in `folder`.
    fn file(
        &mut self,
        module: usize,
        file: &Path,
        text: &str,
        folder: PathBuf,
    ) -> Result<(), String> {
        let parsed = syn::parse_file(text).map_err(|error| {
            let line = error.span().start().line;
            format!("{}:{line}: {error}", file.display())
        })?;
        self.tree.modules[module].file = self.tree.files.len();
        self.tree.files.push(file.to_owned());
        self.items(module, &parsed.items, &folder)
    }

    fn items(&mut self, module: usize, items: &[Item], folder: &Path) -> Result<(), String> {
        for item in items {
            if only_for_tests(attributes(item)) {
                continue;
            }
            match item {
                Item::Mod(item) => self.child(module, item, folder)?,
                Item::Use(item) => self.names(module, item),
                other => {
                    let module = &mut self.tree.modules[module];
                    module.items.extend(name(other).map(ToString::to_string));
                    let declared = type_name(other);
                    let line = |it: &Ident| (it.to_string(), it.span().start().line);
                    module.types.extend(declared.map(line));
                }
            }
            let mut paths = Paths {
                tree: &mut self.tree,
                module,
            };
            // Modules were visited above.
            if !matches!(item, Item::Mod(_)) {
                paths.visit_item(item);
            }
        }
        Ok(())
    }

    /// Reads the module that `item` declares in `parent`.
    fn child(&mut self, parent: usize, item: &ItemMod, folder: &Path) -> Result<(), String> {
        let name = item.ident.to_string();
        let above = &self.tree.modules[parent];
        let child = Module {
            file: above.file,
            room: above.room.clone().or_else(|| Some(name.clone())),
            parent: Some(parent),
            ..Module::default()
        };
        let index = self.tree.modules.len();
        self.tree.modules.push(child);
        let children = &mut self.tree.modules[parent].children;
        children.insert(name.clone(), index);
        let inside = folder.join(&name);
        if let Some((_, items)) = &item.content {
            return self.items(index, items, &inside);
        }
        let candidates = [folder.join(format!("{name}.rs")), inside.join("mod.rs")];
        for file in candidates {
            if let Some(text) = (self.text)(&file) {
                return self.file(index, &file, &text, inside);
            }
        }
        let folder = folder.display();
        Err(format!("module {name} has no file in {folder}"))
    }

    /// Records the names that a `use` declaration brings into `module`.
    fn names(&mut self, module: usize, item: &ItemUse) {
        let module = &mut self.tree.modules[module];
        for used in flattened(&item.tree) {
            match used.name {
                Some(name) => drop(module.aliases.insert(name, used.path)),
                None => module.globs.push(used.path),
            }
        }
    }
}

/// Collects the paths that one item names.
struct Paths<'a> {
    /// The tree that collects them.
    tree: &'a mut ModuleTree,
    /// The module of the item.
    module: usize,
}

impl Paths<'_> {
    fn push(&mut self, path: Vec<String>, span: Span, reexport: bool) {
        let line = span.start().line;
        self.tree.imports.push(Import {
            module: self.module,
            path,
            line,
            reexport,
        });
    }

    /// Macros are not parsed: each `crate::…` and `super::…` among the tokens counts.
    fn words(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.words(group.stream()),
                TokenTree::Ident(word) if *word == "crate" || *word == "super" => {
                    let path = path_of(&tokens[at..]);
                    if path.len() > 1 {
                        self.push(path, word.span(), false);
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let reexport = !matches!(item.vis, Visibility::Inherited);
        for used in flattened(&item.tree) {
            self.push(used.path, used.span, reexport);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let names = path.segments.iter().map(|it| it.ident.to_string());
            self.push(names.collect(), path.segments[0].ident.span(), false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.words(item.tokens.clone());
    }

    // `pub(in crate::…)` imports nothing, and neither do attributes.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// The path at the beginning of these tokens.
fn path_of(tokens: &[TokenTree]) -> Vec<String> {
    let mut path = Vec::new();
    let mut tokens = tokens.iter();
    while let Some(TokenTree::Ident(word)) = tokens.next() {
        path.push(word.to_string());
        let colon =
            |it: Option<&TokenTree>| matches!(it, Some(TokenTree::Punct(c)) if c.as_char() == ':');
        if !(colon(tokens.next()) && colon(tokens.next())) {
            break;
        }
    }
    path
}

/// One name that a `use` declaration brings.
struct Used {
    /// The path that the name leads to; the module, for a glob import.
    path: Vec<String>,
    /// The name here; none for a glob import.
    name: Option<String>,
    /// The position in the source.
    span: Span,
}

fn flattened(tree: &UseTree) -> Vec<Used> {
    let mut used = Vec::new();
    flatten(tree, &[], &mut used);
    used
}

fn flatten(tree: &UseTree, before: &[String], into: &mut Vec<Used>) {
    let with = |name: String| {
        let mut path = before.to_vec();
        // `use a::{self}` is `use a`.
        if name != "self" || path.is_empty() {
            path.push(name);
        }
        path
    };
    match tree {
        UseTree::Path(tree) => flatten(&tree.tree, &with(tree.ident.to_string()), into),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before, into);
            }
        }
        UseTree::Name(tree) => {
            let path = with(tree.ident.to_string());
            let (name, span) = (path.last().cloned(), tree.ident.span());
            into.push(Used { path, name, span });
        }
        UseTree::Rename(tree) => {
            let path = with(tree.ident.to_string());
            let (name, span) = (Some(tree.rename.to_string()), tree.ident.span());
            into.push(Used { path, name, span });
        }
        UseTree::Glob(tree) => {
            let (path, name, span) = (before.to_vec(), None, tree.star_token.spans[0]);
            into.push(Used { path, name, span });
        }
    }
}

/// True if these attributes leave their item to tests or to the documentation.
fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        let condition = it.meta.require_list();
        it.path().is_ident("test")
            || it.path().is_ident("cfg")
                && condition.is_ok_and(|it| requires_test(it.tokens.clone()))
    })
}

/// True if the condition of a `cfg` can only hold in tests or for the documentation. Such
/// conditions are `test`, `doc`, the fuzzer's feature, and `all(…)` that contains one of them.
fn requires_test(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let word = match token {
            TokenTree::Ident(word) => word,
            TokenTree::Literal(feature) if feature.to_string() == FUZZING => return true,
            _ => continue,
        };
        match tokens.peek() {
            Some(TokenTree::Group(group)) if word == "all" && requires_test(group.stream()) => {
                return true;
            }
            Some(TokenTree::Group(_)) => {}
            Some(TokenTree::Punct(it)) if it.as_char() == '=' => {}
            _ if word == "test" || word == "doc" => return true,
            _ => {}
        }
    }
    false
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::ExternCrate(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::ForeignMod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::TraitAlias(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(it) => Some(&it.ident),
        Item::Fn(it) => Some(&it.sig.ident),
        Item::Macro(it) => it.ident.as_ref(),
        Item::Static(it) => Some(&it.ident),
        other => type_name(other),
    }
}

fn type_name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Enum(it) => Some(&it.ident),
        Item::Struct(it) => Some(&it.ident),
        Item::Trait(it) => Some(&it.ident),
        Item::Type(it) => Some(&it.ident),
        Item::Union(it) => Some(&it.ident),
        _ => None,
    }
}
