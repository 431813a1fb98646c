//! Messages to bytes and back, and bytes that are no message.

use hydrant_pinning::{
    EngineMessage, Refusal, RegionNumber, Run,
    wire::{Grant, Granted, MAX_LIST, Move, Need, Piggyback, PullDestination},
};
use proptest::{collection::vec, prelude::*};

fn run() -> impl Strategy<Value = Run> {
    (0_u64..1 << 40, 1_u64..1 << 40).prop_map(|(first, count)| Run {
        first,
        count: count.min((1 << 40) - first),
    })
}

fn runs() -> impl Strategy<Value = Vec<Run>> {
    vec(run(), 0..=MAX_LIST)
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        Just(Refusal::Limit),
        Just(Refusal::NotMapped),
        Just(Refusal::ReadOnly),
        Just(Refusal::Exhausted),
    ]
}

fn refused() -> impl Strategy<Value = Option<Refusal>> {
    prop::option::of(refusal())
}

fn len() -> impl Strategy<Value = u32> {
    0_u32..5000
}

fn asked() -> impl Strategy<Value = EngineMessage> {
    let need = (run(), any::<u64>(), any::<u64>()).prop_map(|(preferred, skip, count)| {
        let first = preferred.first + skip % preferred.count;
        let count = 1 + count % (preferred.end() - first);
        Need {
            run: Run { first, count },
            preferred,
        }
    });
    let piggyback =
        prop::option::of((any::<u64>(), len()).prop_map(|(addr, len)| Piggyback { addr, len }));
    let flags = any::<(u64, u64, bool, bool, u64)>();
    (flags, runs(), vec(need, 0..=MAX_LIST), piggyback).prop_map(
        |((id, region, write, hold, borrow), releases, needs, piggyback)| {
            EngineMessage::Move(Move {
                id,
                region: RegionNumber(region),
                write,
                hold,
                borrow,
                releases,
                needs,
                piggyback,
            })
        },
    )
}

fn granted() -> impl Strategy<Value = EngineMessage> {
    let grant = (run(), any::<u64>(), any::<bool>());
    let grant = grant.prop_map(|(run, key, writable)| Grant { run, key, writable });
    let piggyback = prop::option::of(prop_oneof![len().prop_map(Ok), refusal().prop_map(Err)]);
    (
        any::<(u64, bool, u64)>(),
        vec(grant, 0..=MAX_LIST),
        vec((run(), refusal()), 0..=MAX_LIST),
        piggyback,
    )
        .prop_map(|((id, last, lent), grants, refused, piggyback)| {
            EngineMessage::Granted(Granted {
                id,
                last,
                lent,
                grants,
                refused,
                piggyback,
            })
        })
}

fn message() -> impl Strategy<Value = EngineMessage> {
    let region = || any::<u64>().prop_map(RegionNumber);
    let chunk = || (any::<u64>(), region(), any::<u64>(), len());
    let place =
        any::<(u64, u64, u64)>().prop_map(|(key, addr, len)| PullDestination { key, addr, len });
    prop_oneof![
        asked(),
        granted(),
        (runs(), any::<bool>()).prop_map(|(runs, unpin)| EngineMessage::Release { runs, unpin }),
        chunk().prop_map(|(id, region, to, len)| EngineMessage::Put {
            id,
            region,
            to,
            len
        }),
        chunk().prop_map(|(id, region, from, len)| EngineMessage::Get {
            id,
            region,
            from,
            len
        }),
        (any::<u64>(), refused()).prop_map(|(id, refused)| EngineMessage::Stored { id, refused }),
        (any::<u64>(), refused(), any::<bool>()).prop_map(|(id, refused, registered)| {
            EngineMessage::Pulled {
                id,
                refused,
                registered,
            }
        }),
        (any::<u64>(), refused(), len(), any::<u8>()).prop_map(|(id, refused, len, room)| {
            EngineMessage::Fetched {
                id,
                refused,
                len,
                room,
            }
        }),
        (
            any::<u64>(),
            region(),
            any::<u64>(),
            vec(place, 0..=MAX_LIST)
        )
            .prop_map(|(id, region, from, to)| EngineMessage::Pull {
                id,
                region,
                from,
                to
            }),
        (region(), any::<u64>(), any::<u64>())
            .prop_map(|(region, from, len)| EngineMessage::Ahead { region, from, len }),
        any::<u64>().prop_map(|count| EngineMessage::Recall { count }),
        (any::<u64>(), run()).prop_map(|(id, run)| EngineMessage::Revoke { id, run }),
        (any::<u64>(), runs()).prop_map(|(id, runs)| EngineMessage::Revoked { id, runs }),
    ]
}

fn bytes_of(message: &EngineMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert!(bytes.len() <= EngineMessage::MAX_BYTES);
    let data = message.data() as usize;
    bytes.extend((0..data).map(|at| at as u8));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_message_comes_back_as_it_was(message in message()) {
        let bytes = bytes_of(&message);
        let (back, data) = EngineMessage::decode(&bytes).expect("it was encoded");
        prop_assert_eq!(&back, &message);
        prop_assert_eq!(data.len() as u64, message.data());
    }

    #[test]
    fn a_message_that_is_cut_or_has_more_is_none(message in message(), at in any::<usize>()) {
        let mut bytes = bytes_of(&message);
        let cut = at % bytes.len();
        prop_assert!(EngineMessage::decode(&bytes[..cut]).is_err());
        bytes.push(0);
        prop_assert!(EngineMessage::decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_a_message_or_are_not(bytes in vec(any::<u8>(), 0..2000)) {
        if let Ok((message, data)) = EngineMessage::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            again.extend_from_slice(data);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn a_message_with_bits_changed_is_another_or_none(
        message in message(),
        flips in vec((any::<usize>(), 0_u8..8), 1..6),
    ) {
        let mut bytes = bytes_of(&message);
        for (at, bit) in flips {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
        }
        if let Ok((message, data)) = EngineMessage::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            again.extend_from_slice(data);
            prop_assert_eq!(again, bytes);
        }
    }
}
