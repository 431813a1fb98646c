//! The headers match the library: they are generated from its source, and kept in the repository.
//!
//! `HYDRANT_TEST_BLESS=1 cargo test -p hydrant-armci --test header` generates them again.

use std::{env, fs, path::Path};

use cbindgen::{Builder, Config, Language, Style};

/// The parts of a header besides its declarations.
struct HeaderParts {
    name: &'static str,
    sources: &'static [&'static str],
    guard: &'static str,
    before: &'static str,
    after: &'static str,
    /// The text after the declarations.
    last: &'static str,
}

const HEADERS: [HeaderParts; 4] = [
    HeaderParts {
        name: "armci.h",
        sources: &[
            "armci/types.rs",
            "armci/lifecycle.rs",
            "armci/synchronize.rs",
            "armci/allocate.rs",
            "armci/mutexes.rs",
            "armci/nodes.rs",
            "armci/group.rs",
            "transfer.rs",
            "nonblocking.rs",
        ],
        guard: "_ARMCI_H",
        before: "#include <stdio.h>\n#include <stdlib.h>\n#include <stdarg.h>\n#include <string.h>\n#ifdef MSG_COMMS_MPI\n#include \
                 <mpi.h>\n#endif",
        after: include_str!("header/armci.txt"),
        last: include_str!("header/armci_mpi.txt"),
    },
    HeaderParts {
        name: "message.h",
        sources: &["message/mod.rs"],
        guard: "_MESSAGE_H_",
        before: "#include \"armci.h\"",
        after: include_str!("header/message.txt"),
        last: include_str!("header/message_mpi.txt"),
    },
    HeaderParts {
        name: "gpc.h",
        sources: &["gpc.rs"],
        guard: "__GPCDEF",
        before: "#include \"armci.h\"",
        after: "#define GPC_INIT 1\n#define GPC_PROBE 2\n#define GPC_WAIT 3\n#define GPC_DONE 4\n#define GPC_PENDING 5\n",
        last: "",
    },
    HeaderParts {
        name: "armcix.h",
        sources: &["armcix.rs"],
        guard: "_ARMCIX_H_",
        before: "#include \"armci.h\"",
        after: "",
        last: "",
    },
];

#[test]
fn headers_match_the_library() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    for header in HEADERS {
        let config = Config {
            language: Language::C,
            style: Style::Type,
            cpp_compat: true,
            usize_is_size_t: true,
            no_includes: true,
            include_guard: Some(header.guard.to_owned()),
            header: Some(format!(
                "/* ARMCI on Hydrant. Made by cbindgen from {} of crates/armci/src/c. */",
                header.sources.join(", ")
            )),
            trailer: Some(header.last.to_owned()).filter(|last| !last.is_empty()),
            after_includes: Some(format!(
                "{}\n#include <stddef.h>\n\n{}",
                header.before, header.after
            )),
            ..Config::default()
        };
        let sources = header.sources.iter();
        let made = sources
            .fold(Builder::new().with_config(config), |builder, source| {
                builder.with_src(crate_dir.join("src/c").join(source))
            })
            .generate()
            .expect("the source can be read");
        let mut text = Vec::new();
        made.write(&mut text);
        let text = String::from_utf8(text).expect("names are ASCII");
        assert_kept(header.name, &text);
    }
    check_profiling_names();
}

/// Checks that each profiling name has the declaration of its function.
fn check_profiling_names() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(crate_dir.join(path)).expect("a text");
    let declared = read("include/armci.h") + &read("include/message.h");
    let source = read("src/c/parmci.rs");
    let mut text = "/* The profiling names of ARMCI's functions. A program that replaces these functions by its own\n   \
                    calls the originals by these names. Made from armci.h, message.h and \
                    crates/armci/src/c/parmci.rs. */\n\n#ifndef _PARMCI_H_\n#define _PARMCI_H_\n\n\
                    #include \"armci.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
        .to_owned();
    let names = source.lines().filter_map(|line| {
        let (profiled, of) = line.trim().split_once(" = ")?;
        let (name, _) = of.split_once("::")?.1.split_once('(')?;
        (profiled.to_lowercase() == format!("p{}", name.to_lowercase())).then_some((profiled, name))
    });
    let mut count = 0;
    for (profiled, name) in names {
        let called = format!("{name}(");
        let declaration = (declared.split(';'))
            .find_map(|some| {
                let lines = some.rsplit("*/").next()?.trim();
                let (before, after) = lines.split_once(&called)?;
                before
                    .ends_with([' ', '*'])
                    .then(|| format!("{before}{profiled}({after};"))
            })
            .unwrap_or_else(|| panic!("{name} is declared nowhere"));
        let words: Vec<_> = declaration.split_whitespace().collect();
        text += &(words.join(" ") + "\n");
        count += 1;
    }
    assert!(count > 55, "{count} names");
    text += "\n#ifdef MSG_COMMS_MPI\nint PARMCI_Init_mpi_comm(MPI_Comm comm);\n\
             int PARMCI_Init_thread_comm(int armci_requested, MPI_Comm comm);\n#endif\n\n#ifdef __cplusplus\n}\n#endif\n\n#endif /* _PARMCI_H_ */\n";
    assert_kept("parmci.h", &text);
}

#[track_caller]
fn assert_kept(name: &str, text: &str) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("include")
        .join(name);
    if env::var_os("HYDRANT_TEST_BLESS").is_some() {
        fs::write(&kept, text).expect("the header can be written");
    }
    let kept = fs::read_to_string(&kept).unwrap_or_default();
    assert!(kept == text, "{name} does not match the library");
}
