//! An engine that receives arbitrary messages from peers while its own operations are in flight.
//! Its driver carries out decisions sooner or later, with or without success.

#![no_main]

use std::collections::VecDeque;

use hydrant_pinning::{
    AccessVerdict, Action, Config, Data, Decisions, Direction, Engine, EngineMessage,
    EngineOperation, OutgoingMessage, OwnMemory, Refusal, RegionNumber, RegisteredExtent, Strategy,
};
use libfuzzer_sys::fuzz_target;

/// The ranks of the job; the engine's is 0.
const RANKS: u32 = 4;

/// Bytes of a page, and of a bucket.
const PAGE: u64 = 4096;

/// The pages that the engine's own operations access.
const PAGES: u64 = 64;

fuzz_target!(|bytes: &[u8]| {
    let Some((&[strategy, flags], rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let Ok(engine) = Engine::new(config(strategy, flags)) else {
        return;
    };
    let mut driver = Driver {
        engine,
        due: VecDeque::new(),
        named: 1,
    };
    let mut input = FuzzInput { rest };
    while driver.step(&mut input).is_some() {}
});

fn config(strategy: u8, flags: u8) -> Config {
    let flag = |bit: u8| flags & 1 << bit != 0;
    Config {
        strategy: Strategy::ALL[usize::from(strategy) % Strategy::ALL.len()],
        m: 48 * PAGE,
        maxvictim: 16 * PAGE,
        available: 1 << 20,
        max_extent: 32 * PAGE,
        chunk: 8 * PAGE,
        adaptive_victims: flag(0),
        borrowing: flag(1),
        widening: flag(2),
        reads: flag(3),
        piggyback: if flag(4) { 512 } else { 0 },
        entries: 16,
        ..Config::firehose_paper(0, RANKS)
    }
}

/// A reader of the fuzzer's input.
struct FuzzInput<'a> {
    /// The bytes that were not read yet.
    rest: &'a [u8],
}

impl<'a> FuzzInput<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    /// A run of bytes, preceded by its length.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?);
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        Some(bytes)
    }
}

/// Carries out the engine's decisions.
struct Driver {
    /// The engine under test.
    engine: Engine,
    /// Actions that the driver has not carried out yet.
    due: VecDeque<Action>,
    /// The next key or operation id.
    named: u64,
}

impl Driver {
    fn step(&mut self, input: &mut FuzzInput<'_>) -> Option<()> {
        let choice = input.byte()?;
        let mut out = Decisions::default();
        match choice % 8 {
            0..3 => {
                let from = u32::from(choice >> 4) % RANKS;
                if let Ok((message, _)) = EngineMessage::decode(input.bytes()?) {
                    let verdict = match choice >> 6 {
                        0 => AccessVerdict::Copy,
                        1 => AccessVerdict::Refused(Refusal::NotMapped),
                        _ => AccessVerdict::Fine,
                    };
                    // A message that breaks a rule is the peer's fault.
                    let _ = self.engine.message(from, message, verdict, &mut out);
                }
            }
            3 => {
                let (local, remote) = (u64::from(input.byte()?), u64::from(input.byte()?));
                let operation = EngineOperation {
                    id: self.name(),
                    peer: 1 + u32::from(choice >> 6) % (RANKS - 1),
                    direction: match choice & 8 {
                        0 => Direction::Get,
                        _ => Direction::Put,
                    },
                    local: local % PAGES * PAGE + 8,
                    region: RegionNumber::default(),
                    remote: remote % PAGES * PAGE + 16,
                    len: (1 + u64::from(input.byte()?)) * 100,
                    own: OwnMemory::Persistent,
                    copied: choice & 16 != 0,
                };
                let begun = self.engine.begin(operation, &mut out);
                assert_eq!(begun, Ok(()), "a valid operation");
            }
            4 if choice >= 0xf0 => self
                .engine
                .peer_lost(1 + u32::from(choice >> 3) % 2, &mut out),
            _ => {
                // Actions are sometimes carried out in another order than decided.
                let last = choice & 0x80 != 0;
                let next = if last {
                    self.due.pop_back()
                } else {
                    self.due.pop_front()
                };
                if let Some(action) = next {
                    self.act(action, choice & 0x70 == 0, &mut out);
                }
            }
        }
        for OutgoingMessage { message, data, .. } in &out.messages {
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            if let Data::Own { len, .. } | Data::Asked { len, .. } = data {
                bytes.resize(bytes.len() + *len as usize, 0);
            }
            let read = EngineMessage::decode(&bytes).map(|(read, _)| read);
            assert_eq!(
                read.as_ref(),
                Ok(message),
                "the engine's messages can be decoded"
            );
        }
        self.due.extend(out.actions);
        Some(())
    }

    fn act(&mut self, action: Action, fails: bool, out: &mut Decisions) {
        match action {
            Action::Register { id, need, .. } => {
                let registered = RegisteredExtent {
                    run: need,
                    key: self.name(),
                    writable: true,
                };
                let result = if fails {
                    Err(Refusal::NotMapped)
                } else {
                    Ok(registered)
                };
                self.engine.registered(id, result, out);
            }
            Action::Deregister { id, .. } => self.engine.deregistered(id, out),
            Action::Transfer { id, .. } => self.engine.transferred(id, Ok(()), out),
            // Peers answer only if the input makes them.
            _ => {}
        }
    }

    fn name(&mut self) -> u64 {
        self.named += 1;
        self.named
    }
}
