//! What the fuzzer calls of the launcher.

use super::hosts;
use super::server::Server;

/// The ranks that the server serves.
const RANKS: u32 = 3;

/// Hands lines to a PMI-1 server, each from the rank that its first byte names.
pub fn server(bytes: &[u8]) {
    let mut server = Server::new("job".into(), RANKS, &[2, 1]);
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some((rank, line)) = line.split_first() {
            drop(server.line(u32::from(*rank) % RANKS, line));
        }
    }
}

/// Reads the bytes as frames to an agent, and as frames from one.
pub fn frames(bytes: &[u8]) {
    hosts::read_frames(bytes);
}
