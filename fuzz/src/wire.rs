//! The messages between engines: what can be read is written the same again.

#![no_main]

use hydrant_pinning::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((message, data)) = Message::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    message.encode(&mut again);
    again.extend_from_slice(data);
    let (read, rest) = Message::decode(&again).expect("what was written can be read");
    assert_eq!((read, rest), (message, data));
});
