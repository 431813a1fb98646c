//! The ring against a plain queue, on the heap.

use std::{cell::RefCell, collections::VecDeque, sync::Arc, thread};

use hydrant_conduit::Window;
use proptest::prelude::*;

use super::*;
use crate::sync::Ordering::Relaxed;

/// A ring on the heap.
#[derive(Clone)]
struct Heap {
    slots: Arc<Vec<RingSlot>>,
    consumed: Arc<Consumed>,
    payload: Window,
}

impl Heap {
    fn new(slots: usize, payload: usize) -> Self {
        Self {
            slots: Arc::new((0..slots).map(|_| RingSlot::default()).collect()),
            consumed: Arc::default(),
            payload: Window::private(payload),
        }
    }
}

impl Slots for Heap {
    fn slots(&self) -> &[RingSlot] {
        &self.slots
    }
    fn consumed(&self) -> &Consumed {
        &self.consumed
    }
    fn payload_len(&self) -> usize {
        self.payload.len()
    }
    fn write_payload(&self, offset: usize, data: &[u8]) {
        self.payload.write(offset, data).unwrap();
    }
}

fn payload_of(memory: &Heap, taken: &TakenMessage) -> Vec<u8> {
    let mut data = vec![0; taken.head.payload];
    memory.payload.read(taken.offset, &mut data).unwrap();
    data
}

#[derive(Debug, Clone)]
enum Step {
    Push {
        tag: u16,
        args: Vec<u64>,
        payload: Vec<u8>,
    },
    Pop,
    Tell,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<u16>(), prop::collection::vec(any::<u64>(), 0..=MAX_ARGS),
              prop::collection::vec(any::<u8>(), 0..=64))
            .prop_map(|(tag, args, payload)| Step::Push { tag, args, payload }),
        3 => Just(Step::Pop),
        1 => Just(Step::Tell),
    ]
}

/// Short lengths, long lengths, and lengths around the limit between them.
fn payload_len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..=512, 2 => 505_usize..=520, 2 => 1_usize..=10_000]
}

proptest! {
    #[test]
    fn behaves_like_a_queue(steps in prop::collection::vec(step(), 0..400)) {
        let memory = Heap::new(8, 256);
        let mut writer = RingWriter::new(memory.clone());
        let mut reader = RingReader::new(memory.clone());
        let mut model = VecDeque::new();
        for step in steps {
            match step {
                Step::Push { tag, args, payload } => {
                    if writer.push(3, tag, &args, &payload) {
                        model.push_back((tag, args, payload));
                        prop_assert!(model.len() <= 8);
                    } else {
                        prop_assert!(!model.is_empty() || reader_is_behind(&writer));
                    }
                }
                Step::Pop => {
                    let taken = reader.take().unwrap();
                    prop_assert_eq!(taken.is_some(), !model.is_empty());
                    prop_assert_eq!(reader.waiting(), !model.is_empty());
                    if let (Some(taken), Some((tag, args, payload))) = (taken, model.pop_front()) {
                        prop_assert_eq!(taken.head.tag, tag);
                        prop_assert_eq!(taken.head.kind, 3);
                        prop_assert_eq!(&reader.args()[..taken.head.count], &args[..]);
                        prop_assert_eq!(payload_of(&memory, &taken), payload);
                        reader.finish(&taken);
                    }
                }
                Step::Tell => {
                    reader.publish();
                }
            }
        }
        while let Some(taken) = reader.take().unwrap() {
            prop_assert_eq!(Some(taken.head.tag), model.pop_front().map(|message| message.0));
            reader.finish(&taken);
        }
        reader.publish();
        prop_assert!(model.is_empty());
        let (handled, sent) = writer.progress();
        prop_assert_eq!(handled, sent);
        prop_assert!(writer.push(0, 0, &[], &[0; 64]), "an empty ring has room");
    }

    /// Laps of short payloads end early here, and laps of long payloads do not.
    #[test]
    fn payloads_never_overwrite_a_payload_that_was_not_taken(
        slots in prop::sample::select(vec![2_usize, 8, 32]),
        ring in (16_usize..600).prop_map(|lines| 64 * lines),
        steps in prop::collection::vec((payload_len(), 0_usize..4, any::<bool>()), 0..300),
    ) {
        let memory = Heap::new(slots, ring);
        let mut writer = RingWriter::new(memory.clone());
        let mut reader = RingReader::new(memory.clone());
        let mut waiting = VecDeque::new();
        let mut take = |waiting: &mut VecDeque<Vec<u8>>, tells: bool| {
            let taken = reader.take().unwrap().unwrap();
            // A later payload that overwrites this one would change it.
            assert_eq!(payload_of(&memory, &taken), waiting.pop_front().unwrap());
            reader.pass(&taken);
            if tells || waiting.is_empty() {
                reader.publish();
            }
        };
        for (number, (len, takes, tells)) in steps.into_iter().enumerate() {
            let payload = vec![number as u8; len.min(ring / 4)];
            loop {
                let fits = writer.find_room(payload.len());
                prop_assert_eq!(writer.push(0, 0, &[], &payload), fits);
                if fits {
                    break;
                }
                prop_assert!(!waiting.is_empty(), "an empty ring of {} has no room", ring);
                take(&mut waiting, tells);
            }
            waiting.push_back(payload);
            for _ in 0..takes.min(waiting.len()) {
                take(&mut waiting, tells);
            }
        }
        while !waiting.is_empty() {
            take(&mut waiting, false);
        }
        prop_assert!(writer.find_room(ring / 4));
    }

    #[test]
    fn garbage_is_refused_or_read_within_bounds(words in prop::collection::vec(any::<u64>(), 8)) {
        let memory = Heap::new(8, 256);
        for (slot, word) in memory.slots.iter().zip(words) {
            // The lap that the reader expects, and any other bits.
            slot.header.store(word & 0xffff_ffff_ffff | 1 << 48, Relaxed);
        }
        let mut reader = RingReader::new(memory.clone());
        for _ in 0..8 {
            match reader.take() {
                Ok(Some(taken)) => {
                    prop_assert!(taken.offset + taken.head.payload <= 256);
                    reader.finish(&taken);
                }
                Ok(None) => unreachable!("every slot shows the lap"),
                Err(MalformedHeader(_)) => break,
            }
        }
    }
}

/// A push fails on a ring that the writer takes for full.
fn reader_is_behind(writer: &RingWriter<Heap>) -> bool {
    let (handled, sent) = writer.progress();
    handled < sent
}

/// The lap exceeds 16 bits and wraps, and no message is lost.
#[test]
fn the_lap_wraps() {
    let memory = Heap::new(2, 64);
    let mut writer = RingWriter::new(memory.clone());
    let mut reader = RingReader::new(memory);
    for number in 0..300_000_u64 {
        assert!(writer.push(0, 0, &[number], &[]));
        let taken = reader.take().unwrap().unwrap();
        assert_eq!(reader.args()[0], number);
        reader.finish(&taken);
        assert!(reader.take().unwrap().is_none());
    }
}

/// Two threads exchange payloads of every size, and each byte is checked.
#[test]
fn two_threads_agree() {
    const MESSAGES: u64 = 100_000;
    let memory = Heap::new(16, 1024);
    let mut writer = RingWriter::new(memory.clone());
    let content =
        |number: u64| -> Vec<u8> { (0..number % 200).map(|i| (number + i) as u8).collect() };
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..MESSAGES {
                while !writer.push(1, number as u16, &[number], &content(number)) {
                    thread::yield_now();
                }
            }
        });
        let seen = RefCell::new(0);
        let mut reader = RingReader::new(memory.clone());
        while *seen.borrow() < MESSAGES {
            let Some(taken) = reader.take().unwrap() else {
                reader.publish();
                thread::yield_now();
                continue;
            };
            let number = *seen.borrow();
            assert_eq!(reader.args()[0], number);
            assert_eq!(payload_of(&memory, &taken), content(number));
            reader.finish(&taken);
            *seen.borrow_mut() += 1;
        }
    });
}
