//! The parsers of what strangers and peers send, for the fuzzer.

use crate::{
    introduction::{ADMIT, FabricIntroduction, INTRODUCE},
    locator, message, session,
};

/// Parses bytes as everything that another process may send or hand out.
pub fn from_others(bytes: &[u8]) {
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    if let Some(message) = message::decode(&bytemuck::cast_slice(&words)[..bytes.len()]) {
        introduction(message.payload);
        let _ = session::parse(message.payload, session::HELLO);
    }
    introduction(bytes);
    if let Ok(addresses) = locator::read(bytes) {
        // Entries of unknown providers are left out.
        assert_eq!(locator::read(&locator::write(&addresses)), Ok(addresses));
    }
}

/// Opens an introduction. One that is believed is the same when it is sealed and opened again.
fn introduction(bytes: &[u8]) {
    let key = [0; 16];
    for step in [INTRODUCE, ADMIT] {
        if let Some(opened) = FabricIntroduction::open(&key, bytes, step) {
            assert_eq!(opened.seal(&key), bytes);
        }
        // Most bytes prove nothing. So what is behind the proof gets one.
        if let Some(proved) = FabricIntroduction::prove(&key, bytes) {
            let _ = FabricIntroduction::open(&key, &proved, step);
        }
    }
}
