//! Jobs under Hydrant's own launcher. This binary is the launcher, as
//! `--role launcher OPTIONS`, and its ranks; a shell plays most programs.

mod endings;
mod floods;
mod harness;
mod hosts;
mod roles;
mod serving;
mod signals;
mod starting;
mod strangers;
mod streams;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use hydrant_testing::roles::{self as kit, test};

fn main() -> ExitCode {
    let tests = vec![
        test("ranks_exchange", serving::ranks_exchange),
        test("a_program_of_mpich_runs", serving::mpich_program),
        test("the_first_failure_is_the_status", endings::first_failure),
        test(
            "a_failure_is_the_first_however_late_it_ends",
            endings::late_failure,
        ),
        test("a_killed_rank_is_the_status", endings::killed_rank),
        test("ranks_that_go_on_are_ended_after_the_grace", endings::grace),
        test("ranks_that_ignore_sigterm_are_killed", endings::stubborn),
        test("an_abort_is_the_status", serving::abort),
        test(
            "a_rank_that_ends_fails_the_fence_of_the_others",
            serving::lost_in_fence,
        ),
        test("malformed_commands_end_the_job", serving::malformed),
        test("rank_0_has_the_input", streams::input),
        test("output_has_the_rank_before_whole_lines", streams::prefixed),
        test("output_without_prefix_is_untouched", streams::unprefixed),
        test("the_launcher_ends_when_nobody_reads", streams::nobody_reads),
        test("signals_are_passed_on", endings::signals),
        test("a_second_interrupt_kills", endings::second_interrupt),
        test(
            "ends_are_heard_where_sigchld_was_ignored",
            signals::ignored_ends,
        ),
        test(
            "signals_that_were_ignored_stay_so",
            signals::ignored_signals,
        ),
        test(
            "ranks_that_heed_no_signal_are_killed_after_the_grace",
            signals::deaf_to_the_end,
        ),
        test("a_signal_sent_twice_kills", signals::said_twice),
        test("ranks_of_hosts_block_no_signals", signals::begun_on_hosts),
        test(
            "a_rank_of_another_user_is_named_and_not_waited_for",
            strangers::another_user,
        ),
        test(
            "a_stranger_with_the_number_of_a_rank_lives",
            strangers::reused_number,
        ),
        test(
            "nothing_outlives_a_launcher_killed_at_the_start",
            strangers::killed_at_the_start,
        ),
        test(
            "a_control_group_keeps_the_ranks_together",
            strangers::control_group,
        ),
        test(
            "strangers_live_where_proc_is_of_another_namespace",
            strangers::foreign_proc,
        ),
        test(
            "a_launcher_whose_children_begin_elsewhere_starts_none",
            strangers::children_elsewhere,
        ),
        test(
            "what_a_script_started_outlives_its_launcher",
            strangers::exec_in_script,
        ),
        test(
            "what_a_login_started_outlives_the_agent",
            strangers::exec_on_hosts,
        ),
        test("a_job_may_take_too_long", endings::timeout),
        test("nothing_is_left_behind", endings::nothing_left),
        test(
            "nothing_outlives_a_killed_launcher",
            endings::killed_launcher,
        ),
        test("ranks_are_bound", starting::bound),
        test("ranks_begin_as_the_launcher_did", starting::inherited),
        test("launchers_nest", serving::nested),
        test("what_cannot_run_is_an_error", starting::cannot_run),
        test("programs_of_the_workspace_are_built", starting::workspace),
        test("idle_takes_no_processor", starting::idle),
        test("sixty_four_ranks_join", serving::many),
        test("ranks_of_hosts_exchange", hosts::exchange),
        test("ranks_of_hosts_are_placed_in_blocks", hosts::placed),
        test("a_program_of_mpich_runs_on_hosts", hosts::mpich_program),
        test("hosts_have_input_and_output", hosts::streams),
        test("hosts_print_much_to_a_slow_reader", hosts::much),
        test("nobody_reads_what_hosts_print", hosts::nobody_reads),
        test("the_first_failure_on_hosts_is_the_status", hosts::failures),
        test("a_rank_that_aborts_ends_all_hosts", hosts::abort),
        test("a_host_that_is_not_there_is_named", hosts::unreachable),
        test(
            "an_agent_that_is_killed_is_a_lost_host",
            hosts::killed_agent,
        ),
        test("a_host_that_is_silent_is_lost", hosts::silent),
        test("signals_reach_hosts", hosts::signals),
        test("nothing_is_left_behind_on_hosts", hosts::nothing_left),
        test(
            "nothing_outlives_a_launcher_of_hosts",
            hosts::killed_launcher,
        ),
        test("a_job_on_hosts_may_take_too_long", hosts::timeout),
        test("idle_hosts_take_no_processor", hosts::idle),
        test("an_endless_command_ends_the_job", floods::endless_command),
        test(
            "a_rank_that_never_stops_asking_stops_nothing",
            floods::asking,
        ),
        test("an_agent_that_never_stops_stops_nothing", floods::beats),
        test("an_agent_that_does_not_read_is_lost", floods::lines),
        test(
            "an_agent_that_prints_more_than_is_read_waits",
            floods::prints,
        ),
    ];
    kit::main(roles::roles, tests)
}
