//! Memory that is revoked, unmapped, or left behind while operations are in flight.

#![allow(unsafe_code)] // posts accesses

use std::time::Duration;

use hydrant_conduit::{
    Access, Conduit, Error, Key, Local, Membership, Permission, Posted, Rank, Remote, Window,
    conformance::Log,
};
use hydrant_sim::Faults;

use crate::support::{each, register, world};

#[test]
fn keys_are_checked_when_the_data_arrives() {
    let world = world("myrinet-gm", 2, 1, Faults::default());
    each(&world, |me| {
        let (window, read_only) = (Window::private(4096), Window::private(4096));
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let closed = me.publish(&read_only, Permission::Read, 1);
        let own = places[me.rank().index()].key;
        let log = &mut Log::new();
        if me.rank() == Rank(0) {
            window.fill(0, 4096, 9).unwrap();
            me.nap_until(Duration::from_secs(1));
            let ticket = me.post(Rank(1), places[1], &window, 64, own).unwrap();
            // Rank 1 revokes its key while the data is in flight.
            me.meet();
            let error = me.finish(log, ticket).unwrap_err();
            assert!(
                matches!(error, Error::Revoked { peer: Rank(1), .. }),
                "{error}"
            );
            let error = (me.put(log, Rank(1), closed[1], &window, 8, own)).unwrap_err();
            assert!(
                matches!(error, Error::BadAddress { peer: Rank(1), .. }),
                "{error}"
            );
            let beyond = Remote {
                offset: closed[1].offset + 4090,
                ..closed[1]
            };
            let error = (me.put(log, Rank(1), beyond, &window, 8, own)).unwrap_err();
            assert!(
                matches!(error, Error::OutOfExtent { extent: 4096, .. }),
                "{error}"
            );
            // The local side counts as well: its registration ends during a transfer.
            let lent = register(&me.conduit, &read_only, Permission::Read).unwrap();
            let ticket = me.post(Rank(1), closed[1], &read_only, 8, lent).unwrap();
            me.conduit.deregister(lent).unwrap();
            let error = me.finish(log, ticket).unwrap_err();
            assert!(
                matches!(error, Error::Revoked { peer: Rank(0), key } if key == lent.0),
                "{error}"
            );
        } else {
            me.nap_until(Duration::from_secs(1) + Duration::from_micros(1));
            me.conduit.deregister(places[1].key).unwrap();
            me.meet();
        }
        me.meet();
        if me.rank() == Rank(1) {
            assert_eq!(
                window.load::<u64>(0),
                Ok(0),
                "data landed under a revoked key"
            );
        }
    });
}

#[test]
fn memory_that_went_away_is_an_error_and_no_crash() {
    let world = world("connectx", 2, 1, Faults::default());
    each(&world, |me| {
        let window = Window::private(64);
        let places = me.publish(&window, Permission::ReadWrite, 0);
        let log = &mut Log::new();
        let nowhere = Remote {
            key: Key::ANY,
            offset: 4096,
        };
        for peer in [Rank(0), Rank(1)] {
            let from = Local::unregistered(window.as_ptr());
            // SAFETY: the window outlives the operation, and nothing is mapped there.
            let posted = unsafe { (me.conduit).post(&Access::put(peer, nowhere, from, 8)) };
            let outcome = match posted {
                Ok(Posted::Pending(ticket)) => me.finish(log, ticket),
                other => other.map(drop),
            };
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, Error::BadAddress { addr: 4096, .. }),
                "{error}"
            );
        }
        drop(places);
        me.meet();
    });
}

#[test]
fn operations_begun_before_leaving_complete() {
    let world = world("connectx", 2, 1, Faults::default());
    each(&world, |me| {
        let window = Window::private(1 << 20);
        let places = me.publish(&window, Permission::ReadWrite, 0);
        if me.rank() == Rank(1) {
            me.nap(Duration::from_millis(10));
            return;
        }
        let own = places[0].key;
        let write = me.post(Rank(1), places[1], &window, 1 << 20, own).unwrap();
        let (addr, key) = (window.as_ptr(), own);
        let access = Access::get(Rank(1), places[1], Local { addr, key }, 1 << 20);
        // SAFETY: the window stays until both operations are complete.
        let read = unsafe { me.conduit.post(&access) };
        let Ok(Posted::Pending(read)) = read else {
            panic!("{read:?}");
        };
        me.conduit.leave(true);
        let log = &mut Log::new();
        // They complete, with any outcome.
        let _ = me.finish(log, write);
        let error = me.finish(log, read).unwrap_err();
        assert!(matches!(error, Error::PeerLost(Rank(0))), "{error}");
    });
}
