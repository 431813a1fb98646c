//! The header matches the library: it is generated from its source, and kept in the repository.
//!
//! `HYDRANT_TEST_BLESS=1 cargo test -p hydrant-capi --test header` generates it again.

use std::{env, fs, path::Path};

use cbindgen::{Builder, Config, Language, Style};

/// The sources, in the order of the header.
const SOURCES: [&str; 28] = [
    "status/mod.rs",
    "job/types.rs",
    "job/lifecycle.rs",
    "job/memory.rs",
    "job/exposed.rs",
    "job/rma.rs",
    "operations/mod.rs",
    "operations/ends.rs",
    "job/sections.rs",
    "job/signals.rs",
    "job/atomics.rs",
    "job/accumulate.rs",
    "job/anywhere.rs",
    "job/teams.rs",
    "job/collectives.rs",
    "job/reductions.rs",
    "job/background.rs",
    "job/messages.rs",
    "job/two_sided.rs",
    "job/locks.rs",
    "job/counters.rs",
    "endpoint/types.rs",
    "endpoint/lifecycle.rs",
    "endpoint/peers.rs",
    "endpoint/regions.rs",
    "endpoint/remote.rs",
    "endpoint/batches.rs",
    "endpoint/events.rs",
];

/// Marks functions that never return.
const NO_RETURN: &str = "\n#ifdef __GNUC__\n#define HYDRANT_NORETURN_ __attribute__((noreturn))\n#else\n\
                         #define HYDRANT_NORETURN_\n#endif\n";

#[test]
fn header_matches_the_library() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = env!("CARGO_PKG_VERSION");
    let numbers: Vec<&str> = version.split('.').collect();
    let [major, minor, patch] = numbers[..] else {
        panic!("{version} has three numbers");
    };
    let about = include_str!("header/about.txt");
    let versions = format!(
        "#define HYDRANT_VERSION_MAJOR {major}\n#define HYDRANT_VERSION_MINOR {minor}\n\
         #define HYDRANT_VERSION_PATCH {patch}\n"
    );
    let mut config = Config {
        language: Language::C,
        style: Style::Type,
        cpp_compat: true,
        usize_is_size_t: true,
        no_includes: true,
        include_guard: Some("HYDRANT_H".to_owned()),
        header: Some(about.trim_end().to_owned()),
        trailer: Some(include_str!("header/inline.txt").trim_end().to_owned()),
        after_includes: Some(format!(
            "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n{versions}{NO_RETURN}"
        )),
        ..Config::default()
    };
    config.function.no_return = Some("HYDRANT_NORETURN_".to_owned());
    config.line_length = 100;
    let sources = SOURCES.iter();
    let made = sources
        .fold(Builder::new().with_config(config), |builder, source| {
            builder.with_src(crate_dir.join("src").join(source))
        })
        .generate()
        .expect("the source can be read");
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).expect("names are ASCII");
    // Negative numbers are values of any expression only in parentheses.
    let text: Vec<String> = (text.lines())
        .map(|line| match line.rsplit_once(" -") {
            Some((name, number)) if line.starts_with("#define") => format!("{name} (-{number})"),
            _ => line.to_owned(),
        })
        .collect();
    let text = text.join("\n") + "\n";
    let kept = crate_dir.join("include/hydrant.h");
    if env::var_os("HYDRANT_TEST_BLESS").is_some() {
        fs::write(&kept, &text).expect("the header can be written");
    }
    let kept = fs::read_to_string(&kept).unwrap_or_default();
    assert!(kept == text, "hydrant.h does not match the library");
}

/// Each source with functions of C is in the list above.
#[test]
fn no_source_is_left_out() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for folder in ["", "status", "job", "operations", "endpoint"] {
        for file in fs::read_dir(sources.join(folder)).expect("a folder") {
            let path = file.expect("a file").path();
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let name = path.strip_prefix(&sources).expect("below it");
            let is_listed = SOURCES.iter().any(|source| Path::new(source) == name);
            let is_of_c = text.contains("extern \"C\" fn hydrant_");
            assert!(is_listed || !is_of_c, "{} is in no header", name.display());
        }
    }
}
