//! The header matches the library: it is generated from its source, and kept in the repository.
//!
//! `HYDRANT_TEST_BLESS=1 cargo test -p hydrant-mooncake --test header` generates it again.

use std::{env, fs, mem::offset_of, path::Path, process::Command};

use cbindgen::{Builder, Config, Language, Style};
use transfer_engine::types::{
    buffer_entry, nic_load_stat, notify_msg, transfer_request, transfer_status,
};

/// The sources, in the order of the header.
const SOURCES: [&str; 8] = [
    "types.rs",
    "failure.rs",
    "c/engine.rs",
    "c/memory.rs",
    "c/segments.rs",
    "c/transfers.rs",
    "c/notifications.rs",
    "c/more.rs",
];

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn header_matches_the_library() {
    let about = include_str!("header/about.txt");
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        cpp_compat: true,
        usize_is_size_t: true,
        no_includes: true,
        include_guard: Some("TRANSFER_ENGINE_C".to_owned()),
        header: Some(about.trim_end().to_owned()),
        after_includes: Some("#include <stddef.h>\n#include <stdint.h>".to_owned()),
        line_length: 100,
        ..Config::default()
    };
    // Names that no function uses.
    config.export.include = [
        "transfer_request_t",
        "transfer_status_t",
        "notify_msg_t",
        "buffer_entry_t",
        "nic_load_stat_t",
        "segment_handle_t",
    ]
    .map(str::to_owned)
    .to_vec();
    let sources = SOURCES.iter();
    let made = sources
        .fold(Builder::new().with_config(config), |builder, source| {
            builder.with_src(Path::new(CRATE).join("src").join(source))
        })
        .generate()
        .expect("the source can be read");
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).expect("names are ASCII");
    let kept = Path::new(CRATE).join("include/transfer_engine_c.h");
    if env::var_os("HYDRANT_TEST_BLESS").is_some() {
        // The test with the C compiler may read it now.
        let fresh = kept.with_extension("new");
        fs::write(&fresh, &text).expect("the header can be written");
        fs::rename(&fresh, &kept).expect("the header can be replaced");
    }
    let kept = fs::read_to_string(&kept).unwrap_or_default();
    assert!(
        kept == text,
        "transfer_engine_c.h does not match the library"
    );
}

/// The structures lie in memory as programs expect that were compiled with Mooncake's header.
#[test]
fn structures_have_mooncakes_layout() {
    let facts = [
        (size_of::<transfer_request>(), 40),
        (offset_of!(transfer_request, opcode), 0),
        (offset_of!(transfer_request, source), 8),
        (offset_of!(transfer_request, target_id), 16),
        (offset_of!(transfer_request, target_offset), 24),
        (offset_of!(transfer_request, length), 32),
        (size_of::<transfer_status>(), 16),
        (offset_of!(transfer_status, status), 0),
        (offset_of!(transfer_status, transferred_bytes), 8),
        (size_of::<notify_msg>(), 16),
        (offset_of!(notify_msg, name), 0),
        (offset_of!(notify_msg, msg), 8),
        (size_of::<buffer_entry>(), 16),
        (offset_of!(buffer_entry, length), 8),
        (size_of::<nic_load_stat>(), 80),
        (offset_of!(nic_load_stat, inflight_bytes), 64),
        (offset_of!(nic_load_stat, ewma_bandwidth_bps), 72),
    ];
    for (at, (found, wanted)) in facts.into_iter().enumerate() {
        assert_eq!(found, wanted, "fact {at}");
    }
}

/// The C compiler sees the functions with Mooncake's types, and the same layout.
#[test]
fn the_c_compiler_agrees() {
    for (compiler, standard) in [("cc", "-std=c11"), ("c++", "-std=c++11")] {
        let source = Path::new(CRATE).join("tests/c/abi.c");
        let language = if compiler == "cc" { "c" } else { "c++" };
        let output = Command::new(compiler)
            .args([
                standard,
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
            ])
            .args(["-x", language, "-I"])
            .arg(Path::new(CRATE).join("include"))
            .arg(source)
            .output()
            .expect("a C compiler");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
