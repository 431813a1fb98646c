//! Every interleaving of the two ends of the deregistration queue, by loom.

use loom::thread;

use crate::communication::{Communication, FRAMES, Kind, Region, Way};
use crate::queue::{Reader, queue};
use crate::time::Time;

fn record(number: u64) -> Communication {
    Communication {
        begun: Time(number),
        kind: Kind(number as u16),
        way: Way::Found,
        addr: number,
        bytes: number,
        region: Region {
            addr: number,
            bytes: number,
        },
        stack: [number; FRAMES],
    }
}

#[test]
fn loom_a_record_is_read_whole_or_not_at_all() {
    loom::model(|| {
        // The second overwrites the first, maybe while that is read.
        let (mut writer, mut reader) = queue(1);
        let application = thread::spawn(move || {
            writer.write(&record(1));
            writer.write(&record(2));
        });
        let (mut last, mut seen) = (0, 0);
        let mut read = |reader: &mut Reader| {
            let Some(read) = reader.read() else {
                return false;
            };
            assert_eq!(read, record(read.begun.0), "torn");
            assert!(read.begun.0 > last, "out of order");
            last = read.begun.0;
            seen += 1;
            true
        };
        read(&mut reader);
        read(&mut reader);
        application.join().unwrap();
        while read(&mut reader) {}
        assert_eq!(last, 2, "the newest is always there");
        assert_eq!(seen + reader.overwritten(), 2);
    });
}
