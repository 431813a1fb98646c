//! Tests of the pages that are pinned, and that a key names.

use hydrant_conduit::{Conduit, Permission, Rank, conformance::Log};
use hydrant_testing::{family::Child, ranks};

use super::{MappedPages, PAGE, format_remote, get, parse_remote, pinned_pages, put};
use crate::options;

/// Starts ranks as threads of this process.
fn start(count: u32) -> Vec<hydrant_pin::Pinned> {
    ranks::joined(count, |mut bootstrap| {
        hydrant_pin::attach(&mut bootstrap, &options()).expect("ranks of one host")
    })
}

/// The kernel counts the pages of each registration, and no other pages.
pub(crate) fn the_kernel_counts_registered_pages() {
    let conduit = start(1).remove(0);
    assert_eq!(pinned_pages(), 0, "something is pinned from the start");
    let mut held = Vec::new();
    let mut sum = 0;
    for (number, pages) in [1, 7, 512, 2000, 64].into_iter().enumerate() {
        let memory = MappedPages::new(pages);
        // The pages are untouched; the permission varies.
        let permission = [Permission::Read, Permission::ReadWrite][number % 2];
        held.push((memory.register(&conduit, permission).expect("room"), pages));
        sum += pages;
        assert_eq!(pinned_pages(), sum, "{pages} pages more");
    }
    // Read-only memory is pinned as a copy.
    let constant = MappedPages::new(3);
    constant.fill(1);
    // SAFETY: the pages belong to this test, which holds no reference to them.
    unsafe {
        rustix::mm::mprotect(
            constant.base.cast(),
            constant.len,
            rustix::mm::MprotectFlags::READ,
        )
    }
    .expect("mapped");
    held.push((
        constant.register(&conduit, Permission::Read).expect("room"),
        3,
    ));
    sum += 3;
    assert_eq!(pinned_pages(), sum, "a copy");
    assert!(constant.register(&conduit, Permission::ReadWrite).is_err());
    // A part of a page pins the whole page.
    let part = MappedPages {
        len: 100,
        ..MappedPages::new(1)
    };
    held.push((
        part.register(&conduit, Permission::ReadWrite)
            .expect("room"),
        1,
    ));
    sum += 1;
    assert_eq!(pinned_pages(), sum, "a part of a page");
    for (key, pages) in held {
        conduit.deregister(key).expect("in force");
        sum -= pages;
        assert_eq!(pinned_pages(), sum, "{pages} pages fewer");
    }
    let left = MappedPages::new(100).register(&conduit, Permission::ReadWrite);
    left.expect("room");
    drop(conduit);
    assert_eq!(
        pinned_pages(),
        0,
        "the conduit is gone and something is pinned"
    );
}

/// Addresses that are unmapped and mapped again are other memory. The key accesses the old pages.
pub(crate) fn a_key_names_pages() {
    let mut conduits = start(2);
    let (owner, peer) = (conduits.remove(0), conduits.remove(0));
    let log = &mut Log::new();
    for pages in [1, 33] {
        let memory = MappedPages::new(pages);
        memory.fill(1);
        let key = memory
            .register(&owner, Permission::ReadWrite)
            .expect("room");
        let remote = memory.remote(key);
        let buffer = MappedPages::new(pages);
        let local = buffer.register(&peer, Permission::ReadWrite).expect("room");
        memory.remap();
        assert!(memory.all_bytes_are(0), "new pages");
        buffer.fill(9);
        let done = get(log, &peer, owner.rank(), remote, buffer, local);
        done.expect("a key in force");
        assert!(buffer.all_bytes_are(1), "a read did not find the old pages");
        buffer.fill(2);
        let done = put(log, &peer, owner.rank(), remote, buffer, local);
        done.expect("a key in force");
        assert!(
            memory.all_bytes_are(0),
            "a write under the old key landed in the new pages"
        );
        buffer.fill(9);
        let done = get(log, &peer, owner.rank(), remote, buffer, local);
        done.expect("a key in force");
        assert!(buffer.all_bytes_are(2), "a write was lost");
        // The same holds for the initiator's memory.
        buffer.fill(3);
        buffer.remap();
        let done = put(log, &peer, owner.rank(), remote, buffer, local);
        done.expect("a key in force");
        buffer.fill(4);
        let done = get(log, &peer, owner.rank(), remote, buffer, local);
        done.expect("a key in force");
        assert!(buffer.all_bytes_are(4), "a read landed in the new pages");
        // A copy by address finds the new pages, unlike a NIC.
        let address = hydrant_conduit::Remote {
            key: hydrant_conduit::Key::ANY,
            ..remote
        };
        let any = hydrant_conduit::Key::ANY;
        let done = put(log, &owner, owner.rank(), address, buffer, any);
        done.expect("mapped");
        assert!(
            memory.all_bytes_are(4),
            "a copy by address found other pages"
        );
        owner.deregister(key).expect("in force");
        peer.deregister(local).expect("in force");
    }
    assert_eq!(pinned_pages(), 0);
}

/// Every rank writes to and reads from the next one, whose application sleeps or computes.
pub(crate) fn between_processes(conduit: &dyn Conduit, child: &mut Child) {
    const PAGES: usize = 700;
    let log = &mut Log::new();
    let me = conduit.rank().0;
    let right = Rank((me + 1) % 3);
    let (memory, buffer) = (MappedPages::new(PAGES), MappedPages::new(PAGES));
    let key = memory
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let local = buffer
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let places = child.exchange(&format_remote(memory.remote(key)));
    let to = parse_remote(&places[right.index()]);
    for round in 0..20_u8 {
        let value = |rank: u32| round.wrapping_mul(3) + rank as u8 + 1;
        buffer.fill(value(me));
        put(log, conduit, right, to, buffer, local).expect("a key in force");
        buffer.fill(0);
        get(log, conduit, right, to, buffer, local).expect("a key in force");
        assert!(buffer.all_bytes_are(value(me)), "round {round}");
        // The target does not poll meanwhile: its NIC needs no help.
        child.meet(|| ());
        assert!(memory.all_bytes_are(value((me + 2) % 3)), "round {round}");
        child.meet(|| ());
    }
    assert_eq!(pinned_pages(), 2 * PAGES);
    conduit.deregister(key).expect("in force");
    conduit.deregister(local).expect("in force");
    assert_eq!(pinned_pages(), 0);
    child.meet(|| ());
}

/// The child of a fork writes to its own copy of pinned pages. Peers access the parent's pages.
pub(crate) fn fork(conduit: &dyn Conduit, child: &mut Child) {
    let log = &mut Log::new();
    let (memory, buffer) = (MappedPages::new(4), MappedPages::new(4));
    memory.fill(7);
    let key = memory
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let local = buffer
        .register(conduit, Permission::ReadWrite)
        .expect("room");
    let places = child.exchange(&format_remote(memory.remote(key)));
    // SAFETY: the child only stores to its own memory and exits.
    match unsafe { libc::fork() } {
        0 => {
            memory.fill(8);
            // SAFETY: `_exit` ends the child without running any code of the parent.
            unsafe { libc::_exit(0) };
        }
        pid => {
            // SAFETY: `waitpid` with a null status waits for the child just made.
            let waited = unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            assert_eq!(waited, pid);
        }
    }
    child.meet(|| ());
    let peer = Rank(1 - conduit.rank().0);
    let there = parse_remote(&places[peer.index()]);
    let done = get(log, conduit, peer, there, buffer, local);
    done.expect("a key in force");
    assert!(buffer.all_bytes_are(7), "the child's memory was read");
    child.meet(|| ());
    buffer.fill(9);
    let done = put(log, conduit, peer, there, buffer, local);
    done.expect("a key in force");
    child.meet(|| ());
    assert!(
        memory.all_bytes_are(9),
        "the pages are no longer the parent's"
    );
    assert_eq!(PAGE * pinned_pages(), memory.len + buffer.len);
    child.meet(|| ());
}
