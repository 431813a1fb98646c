//! Bindings compared with a C compiler: the sizes and offsets of structures.
//!
//! Generated bindings check themselves at compile time. This compares the numbers that they expect with those of the
//! installed headers.

use std::{fmt::Write as _, fs, path::Path, process::Command};

/// Compares bindings that bindgen wrote with C headers. Does nothing if `header` is not installed, and says that its
/// Debian package is missing.
///
/// - `bindings`: the source that bindgen wrote.
/// - `structures`: the structures to compare; others are not looked at.
/// - `header`: a file that exists if the headers are installed, and the Debian package that has it.
/// - `includes`: the headers to include.
/// - `folder`: a folder for the C program.
///
/// # Panics
/// If a number differs, or if fewer than `least` numbers were compared.
pub fn compare(
    bindings: &str,
    structures: &[&str],
    (header, package): (&str, &str),
    includes: &[&str],
    folder: &Path,
    least: usize,
) {
    if !Path::new(header).exists() {
        eprintln!("left out: {header} is not installed ({package})");
        return;
    }
    let expected = expectations(bindings, structures);
    assert!(
        expected.len() >= least,
        "{} facts were found",
        expected.len()
    );
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let mut text = "#include <stddef.h>\n#include <stdio.h>\n".to_owned();
    for include in includes {
        let _ = writeln!(text, "#include <{include}>");
    }
    text += "int main(void) {\n";
    for (expression, _) in &expected {
        let _ = writeln!(text, "  printf(\"%zu\\n\", (size_t){expression});");
    }
    text += "  return 0;\n}\n";
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

/// Parses lines such as
/// `["Offset of field: ibv_wc::status"][::std::mem::offset_of!(ibv_wc, status) - 8usize];`
/// into C expressions and their expected values.
fn expectations(bindings: &str, structures: &[&str]) -> Vec<(String, u64)> {
    let text: String = bindings.split_whitespace().collect::<Vec<_>>().join(" ");
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
            ["Size", "of", name] if structures.contains(name) => format!("sizeof(struct {name})"),
            ["Offset", "of", "field", name, field]
                if structures.contains(name) && !field.starts_with("__bindgen") =>
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
