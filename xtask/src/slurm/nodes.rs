//! Hosts of a pretended cluster: network namespaces of this kernel, joined by a bridge.
//!
//! A process that is started on a host sees a network, a host name, a `/tmp` and a `/dev/shm` of
//! the host's own. Processes, namespaces and files end with [`NamespaceHosts`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::command::{at_root, quoted, typed};
use crate::error::Error;

/// The first part of the names of all namespaces and folders. The process's number follows.
const PREFIX: &str = "hydrant-slurm-";

/// The hosts: one that has the bridge, and others around it.
pub(super) struct NamespaceHosts {
    /// The folder that all hosts see under the same path.
    pub(super) folder: PathBuf,
    names: Vec<String>,
}

/// One of the hosts. The first has the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostNumber(pub(super) usize);

/// The host that has the bridge.
pub(super) const HUB: HostNumber = HostNumber(0);

impl HostNumber {
    pub(super) fn address(self) -> String {
        format!("10.77.0.{}", if self == HUB { 254 } else { self.0 })
    }
}

impl NamespaceHosts {
    /// Makes hosts of these names, the first of which has the bridge. `programs` is a folder that
    /// they all see as `bin` in their common folder.
    pub(super) fn new(names: &[&str], programs: &Path) -> Result<NamespaceHosts, Error> {
        remove_abandoned();
        let folder = Path::new("/run").join(format!("{PREFIX}{}", id()));
        let nodes = NamespaceHosts {
            folder: folder.clone(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let made = |part: &str| {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(|source| Error::Install {
                doing: "make",
                path,
                source,
            })
        };
        for part in ["bin", "groups"] {
            made(part)?;
        }
        let mut hosts = String::from("127.0.0.1 localhost\n");
        for host in nodes.all() {
            made(nodes.name(host))?;
            hosts += &format!("{} {}\n", host.address(), nodes.name(host));
            ip(&format!("netns add {}", nodes.namespace(host)))?;
            ip(&format!("-n {} link set lo up", nodes.namespace(host)))?;
        }
        nodes.write("hosts", &hosts)?;
        // The mount is seen by every host that enters its namespace from here.
        nodes.write("programs", &programs.to_string_lossy())?;
        let hub = nodes.namespace(HUB);
        ip(&format!("-n {hub} link add br0 type bridge"))?;
        ip(&format!("-n {hub} addr add {}/24 dev br0", HUB.address()))?;
        ip(&format!("-n {hub} link set br0 up"))?;
        for host in nodes.all().skip(1) {
            let (name, own) = (nodes.name(host), nodes.namespace(host));
            let link = format!("link add {name} type veth peer name eth0 netns {own}");
            ip(&format!("-n {hub} {link}"))?;
            ip(&format!("-n {hub} link set {name} master br0 up"))?;
            ip(&format!("-n {own} addr add {}/24 dev eth0", host.address()))?;
            ip(&format!("-n {own} link set eth0 up"))?;
        }
        Ok(nodes)
    }

    /// Every host, the one with the bridge first.
    pub(super) fn all(&self) -> impl Iterator<Item = HostNumber> + use<> {
        (0..self.names.len()).map(HostNumber)
    }

    pub(super) fn name(&self, host: HostNumber) -> &str {
        &self.names[host.0]
    }

    fn namespace(&self, host: HostNumber) -> String {
        format!("{PREFIX}{}-{}", id(), self.name(host))
    }

    /// Writes a file of the common folder.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.folder.join(name);
        let written = fs::write(&path, text);
        written.map_err(|source| Error::Install {
            doing: "write",
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }

    /// Starts a daemon on a host, with mounts and a host name of its own. Its output goes to a file
    /// of the common folder.
    pub(super) fn start(&self, host: HostNumber, daemon: &str) -> Result<Child, Error> {
        let folder = quoted(&self.folder.to_string_lossy());
        // The groups are mounted again, because a new /sys of the namespace hides them.
        let script = format!(
            "set -e; cd {folder}; hostname {name}; \
             mount --bind \"$(cat programs)\" bin; \
             mount --rbind /sys/fs/cgroup groups; mount -t sysfs sysfs /sys; \
             mount --rbind groups /sys/fs/cgroup; \
             mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; chmod 1777 /tmp /dev/shm; \
             mount --bind hosts /etc/hosts; exec {daemon} >>{name}/output 2>&1",
            name = self.name(host)
        );
        let mut command = at_root("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace(host)))
            .args(["unshare", "--uts", "--mount", "--propagation", "private"])
            .args(["sh", "-c", &script])
            .stdout(Stdio::null());
        let text = typed(&command);
        command.spawn().map_err(|source| Error::NotRun {
            command: text,
            source,
        })
    }

    /// A command in the namespaces of a process on some host, by its number.
    pub(super) fn beside(&self, process: u32, script: &str) -> Command {
        let folder = quoted(&self.folder.to_string_lossy());
        let mut command = at_root("timeout");
        command
            .args(["--kill-after=5", "150", "nsenter", "--target"])
            .arg(process.to_string())
            .args(["--net", "--uts", "--mount", "--", "bash", "-c"])
            .arg(format!("cd {folder}; PATH=$PWD/bin:$PATH; {script}"));
        command
    }

    /// Takes the link of a host down or up.
    pub(super) fn set_link(&self, host: HostNumber, state: &str) -> Result<(), Error> {
        let (hub, name) = (self.namespace(HUB), self.name(host));
        ip(&format!("-n {hub} link set {name} {state}"))
    }

    /// The numbers of the processes on a host.
    pub(super) fn processes(&self, host: HostNumber) -> Vec<u32> {
        let listed = quietly(&mut ip_command(&format!(
            "netns pids {}",
            self.namespace(host)
        )));
        let listed = listed.unwrap_or_default();
        listed.lines().filter_map(|it| it.parse().ok()).collect()
    }
}

impl Drop for NamespaceHosts {
    fn drop(&mut self) {
        remove(&format!("{PREFIX}{}", id()));
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The error says why this process may not make namespaces.
pub(super) fn probe() -> Result<(), Error> {
    let name = format!("{PREFIX}{}-probe", id());
    ip(&format!("netns add {name}"))?;
    let mut inside = at_root("nsenter");
    inside
        .arg(format!("--net=/run/netns/{name}"))
        .args(["unshare", "--uts", "--mount", "--propagation", "private"])
        .args(["sh", "-c", "mount -t tmpfs tmpfs /tmp && ip link set lo up"]);
    let outcome = quietly(&mut inside).map(drop);
    outcome.and(ip(&format!("netns del {name}")))
}

/// Removes what a killed run left behind.
fn remove_abandoned() {
    let listed = quietly(&mut ip_command("netns list")).unwrap_or_default();
    let of_run = |line: &str| {
        let number = line.strip_prefix(PREFIX)?.split('-').next()?;
        number.parse::<i32>().ok()
    };
    for run in listed.lines().filter_map(of_run) {
        let process = Pid::from_raw(run);
        if process.is_some_and(|it| test_kill_process(it).is_err()) {
            remove(&format!("{PREFIX}{run}"));
            let _ = fs::remove_dir_all(Path::new("/run").join(format!("{PREFIX}{run}")));
        }
    }
}

/// Kills the processes of a run's namespaces, and removes the namespaces.
fn remove(run: &str) {
    let listed = quietly(&mut ip_command("netns list")).unwrap_or_default();
    let names = listed.lines().filter_map(|it| it.split(' ').next());
    for name in names.filter(|it| it.starts_with(&format!("{run}-"))) {
        // A process may start another before it ends.
        for _ in 0..20 {
            let pids = quietly(&mut ip_command(&format!("netns pids {name}"))).unwrap_or_default();
            let pids = pids.lines().filter_map(|it| it.parse().ok());
            let pids: Vec<Pid> = pids.filter_map(Pid::from_raw).collect();
            if pids.is_empty() {
                break;
            }
            for pid in pids {
                let _ = kill_process(pid, Signal::KILL);
            }
            sleep(Duration::from_millis(100));
        }
        let _ = ip(&format!("netns del {name}"));
    }
}

fn ip(words: &str) -> Result<(), Error> {
    quietly(&mut ip_command(words)).map(drop)
}

fn ip_command(words: &str) -> Command {
    let mut command = at_root("ip");
    command.args(words.split(' '));
    command
}

/// Runs a command and returns its output. The error has what it complained of.
fn quietly(command: &mut Command) -> Result<String, Error> {
    let name = typed(command);
    let output = command.output().map_err(|source| Error::NotRun {
        command: name.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::NotRead {
        what: format!("`{name}`: {}", complaint.trim()),
    })
}
