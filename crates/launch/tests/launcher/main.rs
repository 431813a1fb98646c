//! Jobs under Hydrant's own launcher. This binary is the launcher, as `--role launcher OPTIONS`,
//! and its ranks. A shell stands in for most programs.

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
            "the_first_failure_is_the_status_even_if_it_ends_late",
            endings::late_failure,
        ),
        test("a_killed_rank_is_the_status", endings::killed_rank),
        test(
            "ranks_that_continue_are_ended_after_the_grace",
            endings::grace,
        ),
        test("ranks_that_ignore_sigterm_are_killed", endings::stubborn),
        test("an_abort_is_the_status", serving::abort),
        test(
            "a_rank_that_ends_fails_the_fence_of_the_others",
            serving::lost_in_fence,
        ),
        test("malformed_commands_end_the_job", serving::malformed),
        test("rank_0_reads_the_input", streams::input),
        test(
            "output_lines_are_whole_and_begin_with_the_rank",
            streams::prefixed,
        ),
        test("output_without_prefix_is_untouched", streams::unprefixed),
        test(
            "the_launcher_ends_when_its_output_has_no_reader",
            streams::nobody_reads,
        ),
        test("signals_are_passed_on", endings::signals),
        test("a_second_interrupt_kills", endings::second_interrupt),
        test(
            "the_launcher_sees_ends_even_if_sigchld_was_ignored",
            signals::ignored_ends,
        ),
        test("ignored_signals_stay_ignored", signals::ignored_signals),
        test(
            "ranks_that_ignore_signals_are_killed_after_the_grace",
            signals::deaf_to_the_end,
        ),
        test("a_signal_sent_twice_kills", signals::sent_twice),
        test(
            "ranks_of_hosts_block_no_signals",
            signals::unblocked_on_hosts,
        ),
        test(
            "a_rank_of_another_user_is_reported_and_not_waited_for",
            strangers::another_user,
        ),
        test(
            "a_process_with_the_reused_id_of_a_rank_lives",
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
            "bystanders_live_even_if_proc_is_of_another_namespace",
            strangers::foreign_proc,
        ),
        test(
            "a_launcher_with_children_in_another_namespace_starts_none",
            strangers::children_elsewhere,
        ),
        test(
            "processes_of_a_script_outlive_its_launcher",
            strangers::exec_in_script,
        ),
        test(
            "processes_of_a_login_shell_outlive_the_agent",
            strangers::exec_on_hosts,
        ),
        test("a_job_that_takes_too_long_is_ended", endings::timeout),
        test("nothing_is_left_behind", endings::nothing_left),
        test(
            "nothing_outlives_a_killed_launcher",
            endings::killed_launcher,
        ),
        test("ranks_are_bound", starting::bound),
        test(
            "ranks_inherit_the_launchers_limits_and_signals",
            starting::inherited,
        ),
        test("launchers_nest", serving::nested),
        test(
            "a_program_that_cannot_run_is_an_error",
            starting::cannot_run,
        ),
        test("programs_of_the_workspace_are_built", starting::workspace),
        test("idle_takes_no_processor", starting::idle),
        test("sixty_four_ranks_join", serving::many),
        test("ranks_of_hosts_exchange", hosts::exchange),
        test("ranks_of_hosts_are_placed_in_blocks", hosts::placed),
        test("srun_is_a_remote_shell", hosts::srun),
        test("a_program_of_mpich_runs_on_hosts", hosts::mpich_program),
        test("hosts_have_input_and_output", hosts::streams),
        test("hosts_print_much_to_a_slow_reader", hosts::much),
        test(
            "output_of_hosts_without_a_reader_ends_the_job",
            hosts::nobody_reads,
        ),
        test("the_first_failure_on_hosts_is_the_status", hosts::failures),
        test("a_rank_that_aborts_ends_all_hosts", hosts::abort),
        test("an_unreachable_host_is_reported", hosts::unreachable),
        test(
            "an_agent_that_is_killed_is_a_lost_host",
            hosts::killed_agent,
        ),
        test("a_host_that_is_silent_is_lost", hosts::silent),
        test("the_end_of_a_rank_wakes_its_agent", hosts::ends_wake),
        test("signals_reach_hosts", hosts::signals),
        test("nothing_is_left_behind_on_hosts", hosts::nothing_left),
        test(
            "nothing_outlives_a_launcher_of_hosts",
            hosts::killed_launcher,
        ),
        test(
            "a_job_on_hosts_that_takes_too_long_is_ended",
            hosts::timeout,
        ),
        test("idle_hosts_take_no_processor", hosts::idle),
        test("an_endless_command_ends_the_job", floods::endless_command),
        test(
            "a_rank_that_asks_endlessly_does_not_block_the_launcher",
            floods::asking,
        ),
        test(
            "an_agent_that_sends_endlessly_does_not_block_the_launcher",
            floods::beats,
        ),
        test("an_agent_that_does_not_read_is_lost", floods::lines),
        test(
            "an_agent_that_prints_faster_than_the_reader_waits",
            floods::prints,
        ),
    ];
    kit::main(roles::roles, tests)
}
