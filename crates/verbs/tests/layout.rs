//! The layout of libibverbs' structures in the bindings, compared with a C compiler's.
//!
//! The generated bindings check themselves at compile time. This test checks the numbers that they
//! expect against the installed header, if there is one.

use std::{fs, path::Path, process::Command};

/// The source of the bindings, which contains the expected sizes and offsets.
const BINDINGS: &str = include_str!("../src/ffi/generated.rs");

/// Structures that this crate passes to libibverbs or reads from it.
const STRUCTURES: [&str; 16] = [
    "ibv_context",
    "verbs_context",
    "ibv_context_ops",
    "ibv_device_attr",
    "ibv_port_attr",
    "ibv_send_wr",
    "ibv_recv_wr",
    "ibv_sge",
    "ibv_wc",
    "ibv_qp_init_attr",
    "ibv_qp_attr",
    "ibv_qp",
    "ibv_srq_init_attr",
    "ibv_ah_attr",
    "ibv_mr",
    "ibv_comp_channel",
];

/// Parses lines such as
/// `["Offset of field: ibv_wc::status"][::std::mem::offset_of!(ibv_wc, status) - 8usize];`
/// into C expressions and their expected values.
fn expectations() -> Vec<(String, u64)> {
    let text: String = BINDINGS.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for part in text.split("[\"").skip(1) {
        let Some((what, rest)) = part.split_once("\"]") else {
            continue;
        };
        let number = (rest.split_once(" - "))
            .and_then(|(_, rest)| rest.split_once("usize"))
            .and_then(|(number, _)| number.trim().parse().ok());
        let Some(number) = number else {
            continue;
        };
        let words: Vec<&str> = what
            .split([' ', ':'])
            .filter(|word| !word.is_empty())
            .collect();
        let expression = match words.as_slice() {
            ["Size", "of", name] if STRUCTURES.contains(name) => format!("sizeof(struct {name})"),
            ["Offset", "of", "field", name, field]
                if STRUCTURES.contains(name) && !field.starts_with("__bindgen") =>
            {
                let field = field.strip_suffix('_').unwrap_or(field);
                format!("offsetof(struct {name}, {field})")
            }
            _ => continue,
        };
        found.push((expression, number));
    }
    found
}

#[test]
fn the_bindings_have_the_layout_of_the_c_header() {
    let header = Path::new("/usr/include/infiniband/verbs.h");
    if !header.exists() {
        eprintln!(
            "left out: {} is not installed (libibverbs-dev)",
            header.display()
        );
        return;
    }
    let expected = expectations();
    assert!(expected.len() > 200, "{} facts were found", expected.len());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let lines: String = expected
        .iter()
        .map(|(expression, _)| format!("  printf(\"%zu\\n\", (size_t){expression});\n"))
        .collect();
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         int main(void) {{\n{lines}  return 0;\n}}\n"
    );
    fs::write(&source, text).expect("a folder to write to");
    let compiled = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(
        compiled.expect("a C compiler").success(),
        "the header was not understood"
    );
    let printed = Command::new(&program)
        .output()
        .expect("a program just made");
    let printed = String::from_utf8(printed.stdout).expect("numbers");
    let actual: Vec<u64> = printed
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(actual.len(), expected.len());
    for ((expression, expected), actual) in expected.iter().zip(actual) {
        assert_eq!(*expected, actual, "{expression}");
    }
}
