//! `#[test_on(…)]` turns one function into a test on each of several networks. The function is
//! compiled once; a test binary for each network would compile all of it again.

use proc_macro::{TokenStream, TokenTree};

/// The networks of `every`. Time is real on all but the last.
const EVERY: [&str; 5] = ["shared", "veiled", "pinned", "mixed", "simulated"];

/// Makes a function a test on each of the named networks. The test on `shared` is called
/// `function::shared` and runs on `crate::network::shared`. `every` means all networks but
/// `native`; `real` means those of them with real time.
///
/// The test's root has a module `network`. Its function `on` takes the network's `builder` and a
/// test function. It calls the test function while jobs are built by that `builder`.
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

/// The name after `fn`.
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
