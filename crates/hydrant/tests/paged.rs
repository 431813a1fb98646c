//! Memory of the program over RDMA, which is freed, unmapped, emptied and moved between its uses. Each use reaches the pages
//! that are there now: with a NIC that pages on demand, where this machine has one, and with a monitor and pinned pages.

#![allow(unsafe_code)] // maps memory, and names it by its address

#[path = "support/place.rs"]
mod place;

use hydrant::{
    ConduitKind, Error, Job, JobBuilder, MonitorKind, Op, PagingKind, Result, Settings, Strategy,
    settings,
};
use hydrant_conduit::memory::pinned;
use place::{Place, Renewal};

/// The bytes of a use: some pages, so that they are no copies in messages.
const LEN: usize = 80_000;

/// Returns whether there is an RDMA device that pages on demand, and the reason why not.
fn paging() -> std::result::Result<String, String> {
    let on = [("HYDRANT_ODP".to_owned(), "on".to_owned())];
    settings::memory_paging(&Settings::from_vars(on).expect("a good value"))
}

/// The ways to keep memory registered that this machine has; none without an RDMA device.
fn ways() -> Vec<PagingKind> {
    if let Err(why) = settings::rdma_ports(&Settings::new()) {
        eprintln!("left out: {why}");
        return Vec::new();
    }
    match paging() {
        Ok(port) => {
            eprintln!("{port} pages on demand");
            vec![PagingKind::On, PagingKind::Off]
        }
        Err(why) => {
            eprintln!("with a monitor only: {why}");
            vec![PagingKind::Off]
        }
    }
}

/// Returns a builder for two ranks. Without on-demand paging they need a monitor.
fn builder(way: PagingKind, strategy: Strategy) -> JobBuilder {
    let monitor = match way {
        PagingKind::On => MonitorKind::Off,
        _ => MonitorKind::Userfaultfd,
    };
    (Job::builder().expect("no bad settings"))
        .conduit(ConduitKind::Verbs)
        .registration(strategy)
        .heap(16 << 20)
        .m(8 << 20)
        .maxvictim(4 << 20)
        .anywhere(true)
        .monitor(monitor)
        .odp(way)
}

fn good<T>(ends: Vec<Result<T>>) -> Vec<T> {
    let ends: Result<Vec<T>> = ends.into_iter().collect();
    ends.expect("both ranks succeed")
}

#[test]
fn sources_and_destinations_are_what_is_there_now() {
    for way in ways() {
        for strategy in [Strategy::Firehose, Strategy::Auto, Strategy::PinDown] {
            good(builder(way, strategy).run_local(2, |job| {
                let field = job.alloc::<u8>(LEN)?;
                let mut place = Place::new(LEN);
                for round in 0..24_u32 {
                    let value = round as u8;
                    let how = Renewal::ALL[round as usize % Renewal::ALL.len()];
                    let place_of_fail =
                        format_args!("{way}, {strategy}, {how:?}, round {round}").to_string();
                    let source = &place.renew(how, value)[..LEN];
                    for _ in 0..2 {
                        field.put(job.right(), 0, source)?;
                    }
                    job.barrier()?;
                    let mut there = vec![!value; LEN];
                    field.local()?.read(0, &mut there)?;
                    assert!(there.iter().all(|it| *it == value), "{place_of_fail}");
                    job.barrier()?;
                    let back = &mut place.renew(how, !value)[..LEN];
                    for _ in 0..2 {
                        field.get(job.right(), 0, back)?;
                    }
                    assert!(back.iter().all(|it| *it == value), "{place_of_fail}");
                    job.barrier()?;
                }
                Ok(())
            }));
        }
    }
}

#[test]
fn memory_that_a_peer_names_is_what_is_there_now() {
    for way in ways() {
        for strategy in [Strategy::Firehose, Strategy::Auto] {
            good(builder(way, strategy).run_local(2, |job| {
                let addresses = job.alloc::<u64>(1)?;
                let mut place = Place::new(LEN);
                for round in 0..24_u32 {
                    let value = round as u8 | 1;
                    let how = Renewal::ALL[round as usize % Renewal::ALL.len()];
                    place.renew(how, 0);
                    addresses.put_value(job.left(), 0, place.address())?;
                    job.barrier()?;
                    let theirs = addresses.local()?.load(0)?;
                    let mut data = vec![value; LEN];
                    for _ in 0..2 {
                        // SAFETY: the peer does not touch its memory before the next barrier.
                        unsafe { job.put_anywhere(job.right(), theirs, &data)? };
                    }
                    job.barrier()?;
                    let there = &place.bytes()[..LEN];
                    let is_right = there.iter().all(|it| *it == value);
                    assert!(is_right, "{way}, {strategy}, {how:?}, round {round}");
                    place.bytes().fill(!value);
                    job.barrier()?;
                    // SAFETY: as above.
                    unsafe { job.get_anywhere(job.right(), theirs, &mut data)? };
                    let is_right = data.iter().all(|it| *it == !value);
                    assert!(is_right, "{way}, {strategy}, {how:?}, round {round}");
                    job.barrier()?;
                }
                Ok(())
            }));
        }
    }
}

/// Memory of the program's allocator, freed after each round. The allocator gives much of it back to the kernel.
#[test]
fn freed_memory_is_what_is_there_now() {
    for way in ways() {
        good(builder(way, Strategy::Firehose).run_local(2, |job| {
            const MOST: usize = 1 << 20;
            let field = job.alloc::<u8>(MOST)?;
            for round in 0..30_usize {
                let len = 4096 * (1 + round * 37 % 256);
                let value = round as u8;
                let source = vec![value; len];
                for _ in 0..2 {
                    field.put(job.right(), 0, &source)?;
                }
                drop(source);
                job.barrier()?;
                let mut back = vec![!value; len];
                field.get(job.right(), 0, &mut back)?;
                let is_right = back.iter().all(|it| *it == value);
                assert!(is_right, "{way}, {len} bytes, round {round}");
                job.barrier()?;
            }
            Ok(())
        }));
    }
}

/// A peer's memory goes while it is registered. An access ends with the error of an address that is not there, and other
/// operations go on. Memory that comes back there is reached.
#[test]
fn memory_that_is_gone_is_an_error_until_it_is_back() {
    for way in ways() {
        good(builder(way, Strategy::Firehose).run_local(2, |job| {
            let field = job.alloc::<u64>(2)?;
            let mut place = Some(Place::new(LEN));
            let own = place.as_ref().map_or(0, Place::address);
            field.put_value(job.left(), 0, own)?;
            job.barrier()?;
            let theirs = field.local()?.load(0)?;
            let put = |value: u8| {
                let data = vec![value; LEN];
                // SAFETY: the peer does not touch its memory before the next barrier.
                unsafe { job.put_anywhere(job.right(), theirs, &data) }
            };
            let refused = |outcome: Result<()>| match outcome {
                Err(Error::BadAddress { rank, addr, .. }) => {
                    assert_eq!(rank, job.right());
                    assert!((theirs..theirs + LEN as u64).contains(&addr), "{addr:#x}");
                }
                other => panic!("{way}: {other:?}"),
            };
            for round in 1..4_u8 {
                put(round)?;
                put(round)?;
                job.barrier()?;
                let there = place.as_mut().expect("mapped").bytes();
                assert!(there[..LEN].iter().all(|it| *it == round), "{way}");
                job.barrier()?;
                if way == PagingKind::On {
                    // Pinned pages can be written by the NIC all the same.
                    place.as_mut().expect("mapped").set_writable(false);
                    job.barrier()?;
                    refused(put(99));
                    job.barrier()?;
                    let place = place.as_mut().expect("mapped");
                    assert!(place.bytes()[..LEN].iter().all(|it| *it == round), "{way}");
                    place.set_writable(true);
                    job.barrier()?;
                    put(round)?;
                    job.barrier()?;
                }
                drop(place.take());
                job.barrier()?;
                refused(put(99));
                // The connection is as good as before.
                field.put_value(job.right(), 1, u64::from(round))?;
                job.barrier()?;
                assert_eq!(field.local()?.load(1)?, u64::from(round));
                place = Place::at(own, LEN.next_multiple_of(4096));
                let mut back = [u64::from(place.is_some())];
                job.all_reduce(&mut back, Op::Min)?;
                if back == [0] {
                    // Somebody else got the address.
                    return Ok(());
                }
            }
            Ok(())
        }));
    }
}

/// With on-demand paging the kernel pins nothing for the memory that is registered.
#[test]
fn paged_memory_is_not_pinned() {
    const ALL: usize = 2 << 20;
    for way in ways() {
        let grown = good(builder(way, Strategy::Firehose).run_local(2, |job| {
            let field = job.alloc::<u8>(ALL)?;
            let source = vec![1; ALL];
            // The first operation makes the connections, with pinned memory for messages.
            field.put(job.right(), 0, &source[..LEN])?;
            job.barrier()?;
            let before = pinned();
            job.barrier()?;
            for at in (0..ALL).step_by(ALL / 8) {
                field.put(job.right(), at, &source[at..][..ALL / 8])?;
            }
            job.barrier()?;
            let grown = pinned().saturating_sub(before);
            let registered = job.registration().map_or(0, |it| it.local.registered);
            assert!(registered >= (ALL / 4096) as u64, "{way}: {registered}");
            job.barrier()?;
            Ok(grown)
        }));
        match way {
            PagingKind::On => assert_eq!(grown, [0, 0]),
            _ => assert!(grown.iter().all(|it| *it >= ALL as u64), "{grown:?}"),
        }
    }
}

#[test]
fn a_device_that_cannot_page_is_refused() {
    if ways().is_empty() {
        return;
    }
    let Err(why) = paging() else {
        return;
    };
    let ends = (Job::builder().expect("no bad settings"))
        .conduit(ConduitKind::Verbs)
        .odp(PagingKind::On)
        .run_local(1, |_| Ok(()));
    let refused = ends.into_iter().next().expect("one rank").unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("HYDRANT_ODP=on"), "{text}");
    assert!(text.contains(&why), "{text}");
}
