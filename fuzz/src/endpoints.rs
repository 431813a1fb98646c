//! Packets, addresses and descriptors of endpoints. What is accepted is written and read alike.

#![no_main]

use hydrant::endpoint::{Address, Descriptor};
use hydrant_local::WirePacket;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = WirePacket::parse(bytes) {
        let mut written = Vec::new();
        packet.encode(&mut written);
        assert_eq!(WirePacket::parse(&written), Ok(packet));
        if let WirePacket::Ask { question, .. } = packet {
            let _ = Descriptor::from_bytes(question);
        }
    }
    if let Ok(descriptor) = Descriptor::from_bytes(bytes) {
        assert_eq!(descriptor.to_bytes(), bytes);
    }
    if let Ok(address) = Address::from_bytes(bytes) {
        assert_eq!(address.to_bytes(), bytes);
    }
});
