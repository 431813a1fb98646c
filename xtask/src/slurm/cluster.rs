//! A Slurm cluster on the hosts of [`NamespaceHosts`]: `munged`, the controller, and a `slurmd` a node.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::nodes::{HUB, HostNumber, NamespaceHosts};
use crate::error::Error;

/// The names of the controller and of the nodes.
const NAMES: [&str; 4] = ["hub", "s1", "s2", "s3"];

/// The programs that ranks run, and their launcher, as the kernel names processes.
const OURS: [&str; 3] = ["torture", "cannon", "hydrant"];

/// The seconds until the controller counts a silent node as down.
pub(super) const SILENCE: u64 = 10;

/// A cluster that runs.
pub(super) struct Cluster {
    pub(super) nodes: NamespaceHosts,
    /// The daemon of each host, whose namespaces are the host's.
    daemons: Vec<Child>,
    munged: Child,
}

/// The end of a command.
pub(super) struct Ran {
    /// The exit status; `None` if a signal ended the command.
    pub(super) status: Option<i32>,
    /// Its output and its complaints.
    pub(super) text: String,
    pub(super) after: Duration,
}

impl Cluster {
    /// Starts the daemons, and waits until all nodes are idle.
    pub(super) fn start(programs: &Path) -> Result<Cluster, Error> {
        let nodes = NamespaceHosts::new(&NAMES, programs)?;
        nodes.write("slurm.conf", &configuration(&nodes))?;
        let folder = nodes.folder.display().to_string();
        let key = nodes.write("key", &"a key of a cluster without secrets ".repeat(4))?;
        let munged = format!(
            "sh -c 'chmod 400 {key}; exec munged --foreground --force --key-file={key} \
             --socket={folder}/munge --pid-file={folder}/munge.pid --log-file={folder}/munge.log \
             --seed-file={folder}/munge.seed'",
            key = key.display()
        );
        let munged = nodes.start(HUB, &munged)?;
        let mut daemons = vec![nodes.start(HUB, &format!("slurmctld -D -f {folder}/slurm.conf"))?];
        for host in nodes.all().skip(1) {
            daemons.push(nodes.start(host, &slurmd(&nodes, host))?);
        }
        let cluster = Cluster {
            nodes,
            daemons,
            munged,
        };
        cluster.until_idle()?;
        Ok(cluster)
    }

    fn until_idle(&self) -> Result<(), Error> {
        let idle = "sinfo --noheader --format=%T";
        let is_idle = |text: &str| text.trim() == "idle";
        if self.until(Duration::from_secs(60), || is_idle(&self.run(idle).text)) {
            return Ok(());
        }
        let of = |host: HostNumber| {
            let name = self.nodes.name(host);
            let said = fs::read_to_string(self.nodes.folder.join(name).join("output"));
            format!("{name}: {}", said.unwrap_or_default().trim())
        };
        let said: Vec<String> = self.nodes.all().map(of).collect();
        let what = format!("no Slurm cluster came up\n{}", said.join("\n"));
        Err(Error::NotRead { what })
    }

    /// Waits until `done`, at most `limit`. Returns false if it took longer.
    pub(super) fn until(&self, limit: Duration, mut done: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > limit {
                return false;
            }
            sleep(Duration::from_millis(50));
        }
        true
    }

    /// Runs a command of a user, who is logged in at the controller.
    pub(super) fn run(&self, script: &str) -> Ran {
        let start = Instant::now();
        let mut command = self.nodes.beside(self.daemons[0].id(), script);
        command
            .env("SLURM_CONF", self.nodes.folder.join("slurm.conf"))
            // Open MPI refuses root without these.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let (status, text) = match command.output() {
            Ok(output) => {
                let both = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&both).into_owned();
                (output.status.code(), text)
            }
            Err(cause) => (None, cause.to_string()),
        };
        Ran {
            status,
            text,
            after: start.elapsed(),
        }
    }

    /// Submits a batch script, whose output goes to `NAME.out`. Returns the job's number.
    pub(super) fn submit(&self, name: &str, script: &str) -> Result<String, Error> {
        self.nodes.write(&format!("{name}.sh"), script)?;
        let ran = self.run(&format!("sbatch --parsable -o {name}.out {name}.sh"));
        if ran.status == Some(0) {
            return Ok(ran.text.trim().to_owned());
        }
        let what = format!("sbatch: {}", ran.text.trim());
        Err(Error::NotRead { what })
    }

    /// The output of a batch script so far.
    pub(super) fn output(&self, name: &str) -> String {
        let bytes = fs::read(self.nodes.folder.join(format!("{name}.out")));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    }

    /// The state of a job, as `COMPLETED`.
    pub(super) fn state(&self, job: &str) -> String {
        let said = self
            .run(&format!("scontrol --oneliner show job {job}"))
            .text;
        let state = said.split(' ').find_map(|it| it.strip_prefix("JobState="));
        state.unwrap_or_default().to_owned()
    }

    /// Hydrant's processes on a host: their numbers and names.
    pub(super) fn ours(&self, host: HostNumber) -> Vec<(u32, String)> {
        let named = |process: u32| {
            let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            let name = name.trim();
            OURS.contains(&name).then(|| (process, name.to_owned()))
        };
        let processes = self.nodes.processes(host);
        processes.into_iter().filter_map(named).collect()
    }

    /// The number of Hydrant's processes on the nodes.
    pub(super) fn count(&self) -> usize {
        let nodes = self.nodes.all().skip(1);
        nodes.map(|host| self.ours(host).len()).sum()
    }

    /// Waits until Hydrant has `count` processes of this name on the nodes, and data went between
    /// them.
    pub(super) fn until_busy(&self, name: &str, count: usize) -> bool {
        let ranks = || {
            let nodes = self.nodes.all().skip(1);
            let ours = nodes.flat_map(|host| self.ours(host));
            ours.filter(|(_, it)| it == name).count()
        };
        self.until(Duration::from_secs(60), || ranks() == count) && {
            let before = self.sent(HostNumber(1));
            self.until(Duration::from_secs(60), || {
                self.sent(HostNumber(1)) > before + (64 << 10)
            })
        }
    }

    /// The bytes that a node has sent to others.
    pub(super) fn sent(&self, host: HostNumber) -> u64 {
        let process = self.daemons[host.0].id();
        let table = fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap_or_default();
        let line = table.lines().find_map(|it| it.trim().strip_prefix("eth0:"));
        let sent = line.and_then(|it| it.split_whitespace().nth(8)?.parse().ok());
        sent.unwrap_or_default()
    }

    /// All that is left of jobs: processes, files in `/tmp` and `/dev/shm` of a node, and the
    /// control groups of these processes of Hydrant's launcher.
    pub(super) fn left(&self, launchers: &[u32]) -> BTreeMap<&'static str, Vec<String>> {
        let mut left = BTreeMap::new();
        let mut found = |kind, what: String| {
            left.entry(kind).or_insert_with(Vec::new).push(what);
        };
        for host in self.nodes.all().skip(1) {
            for (process, name) in self.ours(host) {
                found("processes", format!("{name} ({process})"));
            }
            let root = format!("/proc/{}/root", self.daemons[host.0].id());
            for folder in ["tmp", "dev/shm"] {
                for entry in fs::read_dir(format!("{root}/{folder}"))
                    .into_iter()
                    .flatten()
                {
                    let name = entry.map(|it| it.path().display().to_string());
                    found("files", name.unwrap_or_default());
                }
            }
        }
        for group in groups(Path::new("/sys/fs/cgroup"), 4) {
            if (launchers.iter()).any(|it| group.starts_with(&format!("hydrant-{it}-"))) {
                found("control groups", group);
            }
        }
        left
    }

    /// Kills the `slurmd` of a node and takes its link down.
    pub(super) fn fail(&mut self, host: HostNumber) -> Result<(), Error> {
        self.nodes.set_link(host, "down")?;
        let _ = self.daemons[host.0].kill();
        let _ = self.daemons[host.0].wait();
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = self.munged.kill();
        let _ = self.munged.wait();
    }
}

fn slurmd(nodes: &NamespaceHosts, host: HostNumber) -> String {
    let folder = nodes.folder.display();
    format!("slurmd -D -N {} -f {folder}/slurm.conf", nodes.name(host))
}

/// The names of the control groups below a folder.
fn groups(folder: &Path, depth: u32) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut all = Vec::new();
    for entry in folders {
        all.push(entry.file_name().to_string_lossy().into_owned());
        if depth > 0 {
            all.extend(groups(&entry.path(), depth - 1));
        }
    }
    all
}

/// The configuration, for one machine without a database. Each node has two cores.
fn configuration(nodes: &NamespaceHosts) -> String {
    let folder = nodes.folder.display();
    let hub = format!("{}({})", nodes.name(HUB), HUB.address());
    let mut text = format!(
        "ClusterName=hydrant\n\
         SlurmctldHost={hub}\n\
         SlurmUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={folder}/munge\n\
         StateSaveLocation={folder}/hub\n\
         SlurmdSpoolDir={folder}/%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/%n/pid\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         ReturnToService=2\n\
         SlurmdTimeout={SILENCE}\n\
         KillWait=5\n\
         MpiDefault=none\n\
         AccountingStorageType=accounting_storage/none\n\
         JobAcctGatherType=jobacct_gather/none\n"
    );
    let mut names = Vec::new();
    for host in nodes.all().skip(1) {
        let (name, address) = (nodes.name(host), host.address());
        text += &format!("NodeName={name} NodeHostname={name} NodeAddr={address} CPUs=2\n");
        names.push(name);
    }
    let names = names.join(",");
    text + &format!("PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP\n")
}
