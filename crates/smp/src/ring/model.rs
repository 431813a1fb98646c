//! The ring under loom: every order of every access that the memory model allows.

#![allow(unsafe_code)] // loom's cells

use loom::{cell::UnsafeCell, sync::Arc, thread};

use super::*;

/// The bytes of the byte ring. Each is a cell whose races loom reports.
const PAYLOAD: usize = 32;

struct Memory {
    slots: [RingSlot; 2],
    consumed: Consumed,
    payload: [UnsafeCell<u8>; PAYLOAD],
}

#[derive(Clone)]
struct Checked(Arc<Memory>);

impl Checked {
    fn new() -> Self {
        Self(Arc::new(Memory {
            slots: Default::default(),
            consumed: Consumed::default(),
            payload: std::array::from_fn(|_| UnsafeCell::new(0)),
        }))
    }

    fn payload(&self, offset: usize, len: usize) -> Vec<u8> {
        (self.0.payload[offset..offset + len].iter())
            // SAFETY: loom fails the test if a thread writes at the same time.
            .map(|cell| cell.with(|byte| unsafe { *byte }))
            .collect()
    }
}

impl Slots for Checked {
    fn slots(&self) -> &[RingSlot] {
        &self.0.slots
    }
    fn consumed(&self) -> &Consumed {
        &self.0.consumed
    }
    fn payload_len(&self) -> usize {
        PAYLOAD
    }
    fn write_payload(&self, offset: usize, data: &[u8]) {
        for (cell, value) in self.0.payload[offset..].iter().zip(data) {
            // SAFETY: loom fails the test if a thread reads at the same time.
            cell.with_mut(|byte| unsafe { *byte = *value });
        }
    }
}

fn exchange(lens: &'static [usize]) {
    loom::model(move || {
        let memory = Checked::new();
        let mut writer = RingWriter::new(memory.clone());
        let content = |number: usize, len: usize| vec![number as u8 + 1; len];
        let sender = thread::spawn(move || {
            for (number, &len) in lens.iter().enumerate() {
                while !writer.push(0, 0, &[number as u64], &content(number, len)) {
                    thread::yield_now();
                }
            }
        });
        let mut reader = RingReader::new(memory.clone());
        let mut number = 0;
        while number < lens.len() {
            match reader.take().unwrap() {
                Some(taken) => {
                    assert_eq!(reader.args()[0], number as u64);
                    assert_eq!(taken.head.payload, lens[number]);
                    let payload = memory.payload(taken.offset, taken.head.payload);
                    assert_eq!(payload, content(number, lens[number]));
                    reader.finish(&taken);
                    number += 1;
                }
                None => {
                    reader.publish();
                    thread::yield_now();
                }
            }
        }
        sender.join().unwrap();
    });
}

/// With more messages than slots, the writer must wait for the reader, and laps change.
#[test]
fn loom_slots_are_handed_back_and_forth() {
    exchange(&[0, 0, 0]);
}

/// A payload that does not fit at the end of the ring begins at its start.
#[test]
fn loom_payloads_are_handed_back_and_forth() {
    exchange(&[8, 8, 8]);
}
