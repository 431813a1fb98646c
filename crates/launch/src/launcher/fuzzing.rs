//! Entry points of the launcher for the fuzzer.

use super::hosts;
use super::server::Server;

/// The number of ranks in the fuzzed job.
const RANKS: u32 = 3;

/// Feeds lines to a PMI-1 server. The first byte of each line selects the rank.
pub fn server(bytes: &[u8]) {
    let mut server = Server::new("job".into(), RANKS, &[2, 1]);
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some((rank, line)) = line.split_first() {
            drop(server.line(u32::from(*rank) % RANKS, line));
        }
    }
}

/// Decodes the bytes as frames to an agent, and as frames from an agent.
pub fn frames(bytes: &[u8]) {
    hosts::read_frames(bytes);
}
