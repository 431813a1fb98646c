//! Tests of pinned memory that need processes of their own: the kernel's count, death in mid-flight,
//! limits, and systems that forbid `io_uring`. The tests run one at a time, because each checks the
//! pinned memory of its process. The program starts itself again for every rank.

#![allow(unsafe_code)] // maps and registers memory, and forks

mod pinned;

use std::{process::ExitCode, thread, time::Duration};

use hydrant_conduit::{Conduit, Membership, Rank};
use hydrant_smp::SmpOptions;
use hydrant_testing::{
    HANG,
    family::{Child, Family, orderly},
    roles::test,
    strangers::{self, Strangers},
};
use libtest_mimic::Arguments;

fn options() -> SmpOptions {
    SmpOptions {
        segment: 1 << 20,
        timeout: HANG,
        ..SmpOptions::default()
    }
}

fn main() -> ExitCode {
    strangers::be_one();
    if let Some(mut child) = Child::from_environment() {
        let role = child.role.clone();
        match role.as_str() {
            "memlock" => return pinned::limits::memlock(&mut child),
            "copy_held" => return pinned::limits::held(&mut child),
            "forbidden" => return pinned::limits::forbidden(&mut child),
            _ => {}
        }
        let conduit = hydrant_pin::attach(&mut child, &options()).expect("ranks of one host");
        match role.as_str() {
            "target" => pinned::death::kill_the_target(&conduit, &mut child),
            "initiator" => pinned::death::kill_the_initiator(&conduit, &mut child),
            "copy_descriptors" => pinned::limits::descriptors(&conduit, &mut child),
            "copy_few_descriptors" => pinned::limits::few_descriptors(&conduit, &mut child),
            "copy" => pinned::memory::between_processes(&conduit, &mut child),
            "copy_besieged" => {
                let besiegers = (conduit.rank() == Rank(1)).then(Strangers::start);
                child.meet(|| ());
                pinned::memory::between_processes(&conduit, &mut child);
                drop(besiegers);
            }
            _ => pinned::memory::fork(&conduit, &mut child),
        }
        conduit.leave(true);
        return ExitCode::SUCCESS;
    }
    let tests = vec![
        test(
            "the_kernel_counts_what_is_registered",
            pinned::memory::the_kernel_counts_registered_pages,
        ),
        test(
            "a_key_names_pages_and_not_addresses",
            pinned::memory::a_key_names_pages,
        ),
        test("ranks_access_memory_of_other_processes", || {
            orderly("copy", 3);
        }),
        test("strangers_on_the_socket_do_not_block_accesses", || {
            orderly("copy_besieged", 3);
        }),
        test("a_fork_leaves_the_pages_to_the_parent", || {
            orderly("copy_fork", 2);
        }),
        test("an_error_names_the_limit_of_locked_memory", || {
            orderly("memlock", 1);
        }),
        test("pins_that_are_there_already_are_not_offered", || {
            orderly("copy_held", 2);
        }),
        test("an_error_names_the_limit_of_descriptors", || {
            orderly("copy_descriptors", 2);
        }),
        test("a_peer_takes_few_descriptors", || {
            orderly("copy_few_descriptors", 3);
        }),
        test("an_error_explains_a_system_without_io_uring", || {
            orderly("forbidden", 1);
        }),
        test(
            "a_target_killed_in_mid_flight_ends_the_operations_on_it",
            || {
                (0..10).for_each(|_| victim("target"));
            },
        ),
        test(
            "an_initiator_killed_in_mid_flight_leaves_nothing_pinned",
            || {
                (0..10).for_each(|_| victim("initiator"));
            },
        ),
    ];
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// Runs a job of three ranks. Kills the last rank once the others report that they wait.
fn victim(role: &str) {
    let mut family = Family::start(role, 3);
    family.serve();
    family.expect_line(0, "waiting");
    family.expect_line(1, "waiting");
    // The kill comes in the middle of some operation.
    thread::sleep(Duration::from_micros(u64::from(std::process::id() % 1000)));
    family.kill(2);
    family.expect_line(0, "survived");
    family.expect_line(1, "survived");
    family.tell(0, "go");
    family.tell(1, "go");
    family.end_well(0..2);
    family.wait(2);
    family.nothing_left();
}
