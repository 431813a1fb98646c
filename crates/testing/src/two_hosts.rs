//! Two hosts on one machine, with a link between them: network namespaces.
//!
//! A test runs a role of its program on one host by [`run`]. That role starts processes on the other one by [`THERE`], and
//! switches the link.

use std::process::Command;

use crate::{left_out, role::role};

/// The words before a command that runs it on the other host.
pub const THERE: [&str; 4] = ["ip", "netns", "exec", "there"];

/// Makes the hosts: this process's, and `there`.
const HOSTS: &str = "set -e
    mount -t tmpfs hosts /run; mkdir /run/netns; ip link set lo up; ip netns add there
    ip link add here type veth peer name eth0 netns there
    ip addr add 10.8.0.1/24 dev here; ip -n there addr add 10.8.0.2/24 dev eth0
    ip link set here up; ip -n there link set lo up; ip -n there link set eth0 up
    until ip link show here | grep -q LOWER_UP && ip -n there link show eth0 | grep -q LOWER_UP
        do sleep 0.05; done";

/// Runs a role of this program on a host that has a link to another, with these variables. Reports the test as left out
/// if the machine allows no namespaces.
///
/// # Panics
/// If the role fails.
pub fn run(name: &str, variables: &[(&str, &str)]) {
    let apart = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--mount-proc", "--kill-child"]);
        command.args(["--", "sh", "-c", script]);
        command.env("HYDRANT_OFI_INTERFACE", "10.8.0.0/24");
        command.envs(variables.iter().copied());
        command
    };
    let tried = apart(HOSTS).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return left_out("this machine does not let us make network namespaces (it takes root)");
    }
    let words = role(&[name]).join(" ");
    let status = apart(&format!("{HOSTS}\nexec {words}")).status();
    assert!(status.expect("it runs").success());
}

/// Switches the link between the hosts, to `up` or `down`. The addresses of this host stay.
///
/// # Panics
/// If the command fails.
pub fn switch_link(state: &str) {
    let mut command = Command::new("ip");
    let status = (command.args(["-n", "there", "link", "set", "eth0", state])).status();
    assert!(status.expect("the command runs").success());
}
