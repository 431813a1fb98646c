//! Every interleaving of the two ends of the deregistration queue, explored by loom.

use loom::thread;

use crate::communication::{
    Communication, CommunicationKind, FRAMES, PageRun, RegistrationOutcome,
};
use crate::queue::{RecordReader, queue};
use crate::time::Time;

fn record(number: u64) -> Communication {
    Communication {
        begun: Time(number),
        kind: CommunicationKind(number as u16),
        outcome: RegistrationOutcome::Found,
        addr: number,
        bytes: number,
        region: PageRun {
            addr: number,
            bytes: number,
        },
        stack: [number; FRAMES],
    }
}

/// The second record overwrites the first, maybe during its read. The test runs with either end on the first thread,
/// because loom varies the order from one side only.
#[test]
fn loom_a_record_is_read_whole_or_not_at_all() {
    for writes_first in [false, true] {
        loom::model(move || {
            let (mut writer, mut reader) = queue(1);
            let mut write = move || {
                writer.write(&record(1));
                writer.write(&record(2));
            };
            let mut seen = ReadSoFar::default();
            if writes_first {
                let helper = thread::spawn(move || {
                    seen.read(&mut reader);
                    seen.read(&mut reader);
                    (seen, reader)
                });
                write();
                (seen, reader) = helper.join().unwrap();
            } else {
                let application = thread::spawn(write);
                seen.read(&mut reader);
                seen.read(&mut reader);
                application.join().unwrap();
            }
            while seen.read(&mut reader) {}
            assert_eq!(seen.last, 2, "the newest is always there");
            assert_eq!(seen.count + reader.overwritten(), 2);
        });
    }
}

/// The records read so far.
#[derive(Default)]
struct ReadSoFar {
    last: u64,
    count: u64,
}

impl ReadSoFar {
    fn read(&mut self, reader: &mut RecordReader) -> bool {
        let Some(read) = reader.read() else {
            return false;
        };
        assert_eq!(read, record(read.begun.0), "torn");
        assert!(read.begun.0 > self.last, "out of order");
        self.last = read.begun.0;
        self.count += 1;
        true
    }
}
