//! Conversations with the server: valid, invalid and random.

use super::*;
use crate::pmi1::wire::MAX_LINE;

fn server(size: u32) -> Server {
    Server::new("job".into(), size, &[size])
}

#[track_caller]
fn answers(server: &mut Server, rank: u32, line: &str, expected: &str) {
    assert_eq!(
        server.line(rank, line.as_bytes()),
        [send(rank, expected.into())]
    );
}

#[test]
fn a_conversation_gets_the_expected_answers() {
    let mut s = server(2);
    let hello = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    answers(&mut s, 0, "cmd=init pmi_version=1 pmi_subversion=1", hello);
    answers(
        &mut s,
        0,
        "cmd=get_my_kvsname",
        "cmd=my_kvsname kvsname=job rc=0",
    );
    answers(
        &mut s,
        0,
        "cmd=get_universe_size",
        "cmd=universe_size size=2 rc=0",
    );
    answers(&mut s, 0, "cmd=get_appnum", "cmd=appnum appnum=0 rc=0");
    answers(
        &mut s,
        0,
        "cmd=put kvsname=job key=k value=v=1",
        "cmd=put_result rc=0 msg=success",
    );
    assert_eq!(s.line(0, b"cmd=barrier_in"), []);
    let out = "cmd=barrier_out rc=0";
    assert_eq!(
        s.line(1, b"cmd=barrier_in"),
        [send(0, out.into()), send(1, out.into())]
    );
    answers(
        &mut s,
        1,
        "cmd=get kvsname=job key=k",
        "cmd=get_result rc=0 msg=success value=v=1",
    );
    answers(&mut s, 1, "cmd=finalize", "cmd=finalize_ack rc=0");
}

#[test]
fn a_rank_that_ends_with_status_0_and_no_goodbye_is_a_deserter() {
    let mut server = server(4);
    server.ended_well(0);
    assert_eq!(server.deserter(), None, "it never joined");
    for rank in [1, 2, 3] {
        server.line(rank, b"cmd=init pmi_version=1 pmi_subversion=1");
    }
    server.line(1, b"cmd=finalize");
    server.ended_well(1);
    assert_eq!(server.deserter(), None, "it said goodbye");
    server.line(2, b"cmd=put kvsname=job key=h.2.bereft.0 value=1");
    server.ended_well(2);
    assert_eq!(server.deserter(), None, "it failed for another");
    server.ended_well(3);
    assert_eq!(server.deserter(), Some(3));
}

#[test]
fn refused_commands_are_answered() {
    let mut s = server(1);
    let put = |rest: &str| format!("cmd=put kvsname=job {rest}");
    for (line, why) in [
        (
            "cmd=put kvsname=other key=k value=v".to_owned(),
            "unknown_kvsname",
        ),
        (put("value=v"), "no_key"),
        (put("key=k"), "no_value"),
        (
            put(&format!("key={} value=v", "k".repeat(64))),
            "key_too_long",
        ),
        (
            put(&format!("key=k value={}", "v".repeat(1024))),
            "value_too_long",
        ),
        (put("key=PMI_process_mapping value=v"), "duplicate_key"),
    ] {
        answers(&mut s, 0, &line, &format!("cmd=put_result rc=-1 msg={why}"));
    }
    let absent = "cmd=get_result rc=-1 msg=key_not_found value=unknown";
    answers(&mut s, 0, "cmd=get kvsname=job key=k", absent);
    answers(
        &mut s,
        0,
        "cmd=dance",
        "cmd=dance_result rc=-1 msg=unknown_command",
    );
    for line in ["mcmd=spawn", "nprocs=3", "execname=/bin/true"] {
        assert_eq!(s.line(0, line.as_bytes()), []);
    }
    answers(
        &mut s,
        0,
        "endcmd",
        "cmd=spawn_result rc=-1 msg=spawn_is_not_supported",
    );
}

#[test]
fn keys_and_values_are_limited_by_the_memory_they_take() {
    let mut s = server(2);
    let mut put = |rank: u32, key: usize| {
        let line = format!("cmd=put kvsname=job key={rank}.{key} value=");
        let [Effect::Send { line, .. }] = &s.line(rank, line.as_bytes())[..] else {
            panic!("no answer");
        };
        line.contains(" rc=0 ")
    };
    // The shortest keys, and empty values.
    let most = MAX_OF_RANK / ENTRY;
    let full = (0..=most).find(|key| !put(0, *key)).expect("no end");
    assert!(full > most / 2, "{full} of {most}");
    assert!(put(1, 0), "one rank took the space of another");
    assert!(s.space_used <= MAX_OF_RANK + 2 * ENTRY);
}

#[test]
fn a_command_of_endless_lines_ends_the_job() {
    let mut s = server(1);
    assert_eq!(s.line(0, b"mcmd=spawn"), []);
    let lines = (0..=MAX_MULTIPLE).map(|_| s.line(0, b""));
    let effects = lines.into_iter().find(|effects| !effects.is_empty());
    let effects = effects.expect("no end");
    assert!(
        matches!(&effects[..], [Effect::Misspoke { rank: 0, why }] if why.contains("endcmd")),
        "{effects:?}"
    );
}

#[test]
fn malformed_lines_end_the_job() {
    for line in [
        &b"hello"[..],
        b"",
        b"key=a cmd=put",
        b"cmd=put\xff",
        b"\0\0\0",
    ] {
        let effects = server(1).line(0, line);
        assert!(
            matches!(effects[..], [Effect::Misspoke { rank: 0, .. }]),
            "{effects:?}"
        );
    }
    let mut s = server(2);
    assert_eq!(s.line(0, b"cmd=barrier_in"), []);
    assert!(matches!(
        s.line(0, b"cmd=barrier_in")[..],
        [Effect::Misspoke { rank: 0, .. }]
    ));
}

#[test]
fn an_abort_carries_its_status_and_reason() {
    let abort = |status, why: Option<&str>| {
        vec![Effect::Abort {
            rank: 0,
            status,
            why: why.map(str::to_owned),
        }]
    };
    assert_eq!(server(1).line(0, b"cmd=abort exitcode=9"), abort(9, None));
    assert_eq!(
        server(1).line(0, b"cmd=abort exitcode=-1 error_msg=no%20more"),
        abort(-1, Some("no more"))
    );
}

#[test]
fn a_barrier_fails_when_a_rank_has_ended() {
    let out = "cmd=barrier_out rc=-1 msg=a_rank_ended ended=2";
    let mut s = server(3);
    assert_eq!(s.line(0, b"cmd=barrier_in"), []);
    assert_eq!(s.ended(2), [send(0, out.into())]);
    assert_eq!(s.line(1, b"cmd=barrier_in"), [send(1, out.into())]);
    let mut s = server(3);
    assert_eq!(s.line(2, b"cmd=barrier_in"), []);
    assert_eq!(s.ended(2), []);
    assert_eq!(s.line(0, b"cmd=barrier_in"), [send(0, out.into())]);
}

proptest::proptest! {
    /// For any lines of the ranks, each barrier releases exactly the ranks in it, and every other
    /// line gets at most one answer.
    #[test]
    fn no_line_breaks_the_server(
        lines in proptest::collection::vec((0..3u32, line()), 0..60)
    ) {
        let mut s = server(3);
        let mut inside = Vec::new();
        for (rank, line) in lines {
            let effects = s.line(rank, &line);
            let released = effects.len() > 1;
            if line == b"cmd=barrier_in" && effects.is_empty() && s.ranks[rank as usize].in_multiple.is_none() {
                inside.push(rank);
            }
            if released {
                inside.push(rank);
                inside.sort_unstable();
                let out: Vec<_> = effects.iter().map(|e| match e {
                    Effect::Send { rank, .. } => *rank,
                    other => panic!("{other:?}"),
                }).collect();
                assert_eq!(out, std::mem::take(&mut inside));
            }
            for effect in &effects {
                if let Effect::Send { line, .. } = effect {
                    assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
                    assert!(line.len() <= 2 * MAX_LINE, "{line}");
                }
            }
            if effects.iter().any(|e| matches!(e, Effect::Abort { .. } | Effect::Misspoke { .. })) {
                break;
            }
        }
    }
}

fn line() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    prop_oneof![
        8 => Just(b"cmd=barrier_in".to_vec()),
        2 => "cmd=(put|get) kvsname=job key=[ab]( value=[a-z]{0,3})?".prop_map(String::into_bytes),
        1 => "m?cmd=[a-z_]{0,9}( [a-z]{0,3}=[a-z0-9-]{0,5}){0,3}".prop_map(String::into_bytes),
        1 => Just(b"endcmd".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}
