//! `#[derive(hydrant::Pod)]` and `#[derive(hydrant::Zeroable)]`, for crates that do not depend on
//! `bytemuck`.
//!
//! The code from `bytemuck`'s own derives begins with `::bytemuck`, a path that only exists in
//! crates that depend on it. An attribute of the struct, `#[bytemuck(crate = "…")]`, gives them
//! another path. However, a derive cannot add an attribute to its struct.
//!
//! So these derives define the struct a second time, under another name, in a private block. That
//! *mirror* has the attribute and `bytemuck`'s derive, which checks the mirror's fields and layout.
//! The check also holds for the struct, because both have the same `repr` and the same fields. This
//! crate adds no check of its own that could be wrong.

use std::iter::Peekable;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree, token_stream::IntoIter};

/// Plain old data: any bytes of the right length are a value, and no byte of a value is padding.
///
/// For structs without type parameters that are `#[repr(C)]` or `#[repr(transparent)]`, `Copy` and
/// [`Zeroable`](macro@Zeroable), and whose fields are all `Pod`:
///
/// ```
/// #[derive(Clone, Copy, hydrant::Pod, hydrant::Zeroable)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f64,
/// }
///
/// hydrant::run(|job| {
///     let particles = job.alloc::<Particle>(100)?;
///     let earth = Particle { position: [1.0, 0.0, 0.0], mass: 5.97e24 };
///     particles.put(job.right(), 0, &[earth])?;
///     job.barrier()
/// })?;
/// # Ok::<(), hydrant::Error>(())
/// ```
///
/// The crate needs `hydrant` under that name, and no `bytemuck`. For other cases (structs with type
/// parameters, other traits), use `bytemuck`'s derive with the path of the crate:
/// `#[derive(hydrant::bytemuck::Pod)] #[bytemuck(crate = "hydrant::bytemuck")]`.
///
/// A field that is not plain old data is refused:
///
/// ```compile_fail
/// #[derive(Clone, Copy, hydrant::Pod, hydrant::Zeroable)]
/// #[repr(C)]
/// struct Text(&'static str);
/// ```
#[proc_macro_derive(Pod)]
pub fn derive_pod(item: TokenStream) -> TokenStream {
    derive("Pod", item)
}

/// A value of all zero bytes is a value of the type.
///
/// For structs without type parameters whose fields are all `Zeroable`. See [`Pod`](macro@Pod) for
/// an example.
#[proc_macro_derive(Zeroable)]
pub fn derive_zeroable(item: TokenStream) -> TokenStream {
    derive("Zeroable", item)
}

/// The mirror's name; the compiler refuses a user's struct of the same name.
const MIRROR: &str = "HydrantMirror";

fn derive(name: &str, item: TokenStream) -> TokenStream {
    let made = match Struct::parse(item) {
        Ok(parsed) => parsed.implement(name),
        Err(why) => format!("::core::compile_error!({:?});", format!("{name}: {why}")).parse(),
    };
    made.expect("the generated code is Rust")
}

/// The parts of a struct that its mirror repeats.
struct Struct {
    /// Its `#[repr(…)]` attributes.
    repr: TokenStream,
    name: TokenTree,
    /// Its fields, in their braces or parentheses, without attributes of other derives.
    fields: TokenStream,
}

impl Struct {
    fn parse(item: TokenStream) -> Result<Self, &'static str> {
        let mut tokens = item.into_iter().peekable();
        let repr = attributes(&mut tokens)
            .filter(is_repr)
            .flat_map(|attribute| [punct('#'), TokenTree::Group(attribute)])
            .collect();
        // Only `pub` and its scope may come before the word `struct`.
        let word = tokens.find(|token| {
            matches!(token, TokenTree::Ident(word)
                if ["struct", "enum", "union"].contains(&word.to_string().as_str()))
        });
        if word.is_none_or(|word| word.to_string() != "struct") {
            return Err("only structs are covered");
        }
        let name = tokens.next().ok_or("the struct has no name")?;
        match tokens.peek() {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '<' => {
                return Err("structs with parameters are not covered; use \
                            #[derive(hydrant::bytemuck::Pod, hydrant::bytemuck::Zeroable)] \
                            #[bytemuck(crate = \"hydrant::bytemuck\")]");
            }
            _ => {}
        }
        // Braces, or parentheses and a semicolon, with or without `where`, or nothing at all.
        let fields = tokens.map(|token| match token {
            TokenTree::Group(group) => {
                let inside = without_attributes(group.stream());
                let mut same = Group::new(group.delimiter(), inside);
                same.set_span(group.span());
                TokenTree::Group(same)
            }
            token => token,
        });
        Ok(Self {
            repr,
            name,
            fields: fields.collect(),
        })
    }

    /// Generates the trait `hydrant::bytemuck::{name}` for the struct.
    fn implement(self, name: &str) -> Result<TokenStream, proc_macro::LexError> {
        let Self {
            repr,
            name: of,
            fields,
        } = self;
        // `Pod` requires `Copy` and `Zeroable` of the mirror; the `impl` below requires the
        // struct's own.
        let beside = match name {
            "Pod" => "::core::clone::Clone, ::core::marker::Copy, ::hydrant::bytemuck::Zeroable,",
            _ => "",
        };
        let before: TokenStream = format!(
            "#[allow(dead_code)]
             #[derive({beside} ::hydrant::bytemuck::{name})]
             #[bytemuck(crate = \"::hydrant::bytemuck\")]"
        )
        .parse()?;
        let named: TokenStream = format!("struct {MIRROR}").parse()?;
        // SAFETY (of the generated code): the mirror has the fields and the `repr` of the struct,
        // and `bytemuck` has checked that the mirror meets the trait's contract. The assertion on
        // size and alignment guards against any future attribute that changes a struct's layout.
        let after: TokenStream = format!(
            "const _: () = ::core::assert!(
                ::core::mem::size_of::<{of}>() == ::core::mem::size_of::<{MIRROR}>()
                    && ::core::mem::align_of::<{of}>() == ::core::mem::align_of::<{MIRROR}>()
             );
             unsafe impl ::hydrant::bytemuck::{name} for {of} {{}}"
        )
        .parse()?;
        let block = [before, repr, named, fields, after].into_iter().collect();
        let mut made: TokenStream = "const _: () =".parse()?;
        made.extend([
            TokenTree::Group(Group::new(Delimiter::Brace, block)),
            punct(';'),
        ]);
        Ok(made)
    }
}

/// Takes the attributes at the front, and returns the bracketed group of each.
fn attributes(tokens: &mut Peekable<IntoIter>) -> impl Iterator<Item = Group> {
    let mut found = Vec::new();
    while tokens.next_if(is_hash).is_some() {
        if let Some(TokenTree::Group(group)) = tokens.next() {
            found.push(group);
        }
    }
    found.into_iter()
}

/// The fields without their attributes (of documentation, of other derives), which the mirror's
/// derives do not know. Only an attribute begins with `#` in a list of fields. The tokens nested in
/// types stay.
fn without_attributes(fields: TokenStream) -> TokenStream {
    let mut tokens = fields.into_iter().peekable();
    let mut kept = TokenStream::new();
    loop {
        attributes(&mut tokens).for_each(drop);
        match tokens.next() {
            Some(token) => kept.extend([token]),
            None => return kept,
        }
    }
}

fn is_hash(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '#')
}

fn is_repr(attribute: &Group) -> bool {
    let first = attribute.stream().into_iter().next();
    matches!(first, Some(TokenTree::Ident(word)) if word.to_string() == "repr")
}

fn punct(sign: char) -> TokenTree {
    TokenTree::Punct(proc_macro::Punct::new(sign, proc_macro::Spacing::Alone))
}
