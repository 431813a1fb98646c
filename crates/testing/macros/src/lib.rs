//! `#[test_on(…)]`: one function that is a test on each of several networks. It is compiled once; a test binary for each
//! network would compile all of it again.

use proc_macro::{TokenStream, TokenTree};

/// What `every` stands for. Time is real on all but the last.
const EVERY: [&str; 5] = ["shared", "veiled", "pinned", "mixed", "simulated"];

/// Makes a function a test on each of the networks named: on that of `crate::network::shared` for `shared`, under the name
/// `function::shared`. `every` stands for all but `native`, and `real` for those of them in which time is real.
///
/// The test's root has a module `network`: its function `on` calls the function it is given while jobs are built by the
/// network's `builder`, which it is given first.
#[proc_macro_attribute]
pub fn test_on(networks: TokenStream, function: TokenStream) -> TokenStream {
    let Some(name) = name_of(&function) else {
        return error("#[test_on(…)] is for a function");
    };
    let mut tests = String::new();
    for token in networks {
        let network = token.to_string();
        let named = match network.as_str() {
            "," => continue,
            "every" => &EVERY[..],
            "real" => &EVERY[..EVERY.len() - 1],
            one => &[one],
        };
        for network in named {
            tests += &format!(
                "#[test] fn {network}() {{ \
                     crate::network::on(crate::network::{network}::builder, super::{name}); \
                 }}"
            );
        }
    }
    let Ok(tests) = format!("mod {name} {{ {tests} }}").parse::<TokenStream>() else {
        return error("#[test_on(…)] takes names of networks, with commas between them");
    };
    [function, tests].into_iter().collect()
}

/// What follows `fn`.
fn name_of(function: &TokenStream) -> Option<String> {
    let is_fn = |token: &TokenTree| matches!(token, TokenTree::Ident(it) if it.to_string() == "fn");
    let mut tokens = function.clone().into_iter();
    tokens.find(is_fn)?;
    Some(tokens.next()?.to_string())
}

fn error(what: &str) -> TokenStream {
    let error = format!("compile_error!({what:?});").parse();
    error.expect("a call of a macro")
}
