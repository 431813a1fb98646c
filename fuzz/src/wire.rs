//! The messages between engines: a decoded message encodes to the same bytes.

#![no_main]

use hydrant_pinning::EngineMessage;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((message, data)) = EngineMessage::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    message.encode(&mut again);
    again.extend_from_slice(data);
    let (read, rest) = EngineMessage::decode(&again).expect("an encoded message can be decoded");
    assert_eq!((read, rest), (message, data));
});
