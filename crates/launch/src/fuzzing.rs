//! Entry points for the fuzzer. They call the parsers that read input of other processes.

use crate::pmi1::{value, wire};

pub use crate::launcher::fuzzing::{frames, server};

/// Parses the bytes as lines of PMI-1 and as a value, and feeds them to a server.
pub fn pmi1(bytes: &[u8]) {
    server(bytes);
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        if let Ok(line) = wire::PmiLine::parse(line) {
            let _ = line.number::<u32>("rc");
            let _ = line.field("value").map(wire::unescape);
        }
    }
    let escaped = wire::escape(&text);
    assert_eq!(wire::unescape(&escaped), text);
    if let Ok((_, digits)) = value::first(&text) {
        let _ = value::decode(digits);
    }
}
