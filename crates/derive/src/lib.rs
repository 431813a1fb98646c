//! `#[derive(hydrant::Pod)]` and `#[derive(hydrant::Zeroable)]`, which need no `bytemuck` in the
//! crate that uses them.
//!
//! The code that `bytemuck`'s own derives make begins with `::bytemuck`, a path that only exists
//! in crates that depend on it. They take another path by an attribute of the struct,
//! `#[bytemuck(crate = "…")]`, but a derive cannot add an attribute to the struct it is applied to.
//! So these derives write the struct down a second time, under another name, in a block that
//! nobody sees. That *mirror* has the attribute and `bytemuck`'s derive, which checks its fields
//! and its layout exactly as it would check the struct's; what holds for the mirror holds for the
//! struct, as both have the same `repr` and the same fields. There is no check of our own that
//! could be wrong.

use std::iter::Peekable;

use proc_macro::{Delimiter, Group, TokenStream, TokenTree, token_stream::IntoIter};

/// Plain old data: any bytes of the right length are a value, and no byte of a value is padding.
///
/// For structs without type parameters that are `#[repr(C)]` or `#[repr(transparent)]`, `Copy`
/// and [`Zeroable`](macro@Zeroable), and all of whose fields are `Pod`:
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
/// The crate needs `hydrant` under that name, and no `bytemuck`. For what is not covered here
/// (structs with type parameters, other traits) use `bytemuck`'s derive and say where the crate
/// is: `#[derive(hydrant::bytemuck::Pod)] #[bytemuck(crate = "hydrant::bytemuck")]`.
///
/// A field that is not plain data is refused:
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

/// A value of zero bytes is a value of the type.
///
/// For structs without type parameters all of whose fields are `Zeroable`. See
/// [`Pod`](macro@Pod) for an example.
#[proc_macro_derive(Zeroable)]
pub fn derive_zeroable(item: TokenStream) -> TokenStream {
    derive("Zeroable", item)
}

/// The mirror's name: a struct that is called so itself would be refused by the compiler.
const MIRROR: &str = "HydrantMirror";

fn derive(name: &str, item: TokenStream) -> TokenStream {
    let made = match Struct::parse(item) {
        Ok(parsed) => parsed.implement(name),
        Err(why) => format!("::core::compile_error!({:?});", format!("{name}: {why}")).parse(),
    };
    made.expect("what is put together here is Rust")
}

/// What a mirror takes over of a struct.
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
        // What may come before the word `struct` is `pub` and where it is public.
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
        // Braces or parentheses and a semicolon, with or without `where`, or nothing at all.
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

    /// The trait `hydrant::bytemuck::{name}` for the struct.
    fn implement(self, name: &str) -> Result<TokenStream, proc_macro::LexError> {
        let Self {
            repr,
            name: of,
            fields,
        } = self;
        // `Pod` asks for `Copy` and `Zeroable` of the mirror; the struct's own are asked for below.
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
        // SAFETY (of the code made): the mirror has the fields and the `repr` of the struct, and
        // `bytemuck` found it to be what the trait says. The sizes are compared in case another
        // attribute ever changes how a struct is laid out.
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

/// Takes the attributes at the front: what is in the brackets of each.
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
/// derives do not know. Only an attribute begins with `#` in a list of fields; types keep what is
/// nested in them.
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
