//! The cases: each runs a job, and looks at what its user sees and at what is left of it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::cluster::{Cluster, Ran, SILENCE};
use super::nodes::HostNumber;
use super::table::CaseRow;
use crate::error::Error;

/// The line of `cannon` about a product that is the serial one.
const RIGHT: &str = "every element is that of the serial product";

/// The remote shell of `hydrant run` in an allocation.
const RSH: &str = "export HYDRANT_RSH='srun --overlap -N1 -n1 -w'";

/// The hosts of an allocation, for `hydrant run`.
const HOSTS: &str = "--hosts $(scontrol show hostnames | paste -sd,)";

/// A job that goes on until it is ended.
const LONG: &str = "torture --seconds 600";

/// The time after which silent peers are lost, and as much again for a busy machine.
const LOSS: Duration = Duration::from_secs(40);

/// Runs every case.
pub(super) fn all(cluster: &mut Cluster) -> Result<Vec<CaseRow>, Error> {
    let mut rows = vec![
        product(
            cluster,
            "two nodes, PMI-2",
            4,
            "srun --mpi=pmi2 -N2 -n4 cannon",
        ),
        product(
            cluster,
            "three nodes, PMI-2",
            9,
            "srun --mpi=pmi2 -N3 -n9 --overcommit cannon",
        ),
        product(
            cluster,
            "two nodes, PMIx",
            4,
            "srun --mpi=pmix -N2 -n4 cannon",
        ),
        CaseRow {
            command: "salloc -N2 -n4, hydrant run -n4 --hosts s1,s2 cannon".into(),
            ..product(
                cluster,
                "hydrant run in salloc",
                4,
                &format!(
                    "salloc -N2 -n4 bash -c \"{RSH}; hydrant run -n4 {} cannon\"",
                    HOSTS.replace('$', "\\$")
                ),
            )
        },
        product(
            cluster,
            "mpirun in salloc",
            4,
            "salloc -N2 -n4 mpirun cannon",
        ),
        refusal(
            cluster,
            "tasks without a service",
            "srun -N2 -n4 cannon",
            "start it with `srun --mpi=pmi2` or `srun --mpi=pmix`",
        ),
        one_process(cluster),
        document(cluster)?,
        absent_rank(cluster),
        killed_rank(cluster),
    ];
    for (what, script) in [
        ("cancelled, srun", format!("srun --mpi=pmi2 {LONG}")),
        (
            "cancelled, hydrant run",
            format!("{RSH}\nhydrant run -n4 {HOSTS} {LONG}"),
        ),
    ] {
        rows.push(cancelled(cluster, what, &script)?);
    }
    rows.push(over_time(cluster)?);
    rows.push(lost_node(cluster)?);
    Ok(rows)
}

fn row(what: &'static str, command: &str, seen: String, problem: Option<String>) -> CaseRow {
    CaseRow {
        what,
        command: command.to_owned(),
        seen,
        problem,
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The outcome of a command, of which `is_right` says whether it is the expected one.
fn judged(what: &'static str, command: &str, ran: &Ran, is_right: bool, seen: &str) -> CaseRow {
    let status = ran
        .status
        .map_or("a signal".into(), |it| format!("status {it}"));
    let seen = format!("{seen} {status} after {}", seconds(ran.after));
    let problem = (!is_right).then(|| ran.text.clone());
    row(what, command, seen, problem)
}

/// A product by ranks on several nodes, whose blocks go through the network between them.
fn product(cluster: &Cluster, what: &'static str, ranks: u32, command: &str) -> CaseRow {
    let before = cluster.sent(HostNumber(1));
    let ran = cluster.run(command);
    let sent = cluster.sent(HostNumber(1)) - before;
    let is_one_job = ran.text.contains(&format!("cannon on {ranks} ranks"));
    let is_right = ran.text.matches(RIGHT).count() == 1 && ran.status == Some(0);
    let through = sent > 1 << 20;
    let mib = sent as f64 / f64::from(1 << 20);
    let seen = format!(
        "{} {mib:.1} MiB sent by s1,",
        if is_right { "right," } else { "WRONG," }
    );
    judged(
        what,
        command,
        &ran,
        is_one_job && is_right && through,
        &seen,
    )
}

fn refusal(cluster: &Cluster, what: &'static str, command: &str, remedy: &str) -> CaseRow {
    let ran = cluster.run(command);
    let is_named = ran.text.contains(remedy);
    let is_right = is_named && ran.status == Some(1);
    let seen = if is_named {
        "an error with the remedy,"
    } else {
        "NO REMEDY,"
    };
    judged(what, command, &ran, is_right, seen)
}

/// The shell of an allocation for several tasks is one process.
fn one_process(cluster: &Cluster) -> CaseRow {
    let command = "salloc -N2 -n4 cannon";
    let ran = cluster.run(command);
    let is_right = ran.text.contains("cannon on 1 rank\n") && ran.status == Some(0);
    judged("one process", command, &ran, is_right, "a job of one,")
}

/// The script of the documentation, as it is printed there.
fn document(cluster: &Cluster) -> Result<CaseRow, Error> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/clusters.md");
    let text = fs::read_to_string(&file).map_err(|cause| Error::NotRead {
        what: format!("docs/clusters.md: {cause}"),
    })?;
    let script = text
        .split("```")
        .find_map(|it| it.strip_prefix("sh\n#!/bin/bash\n#SBATCH"));
    let script = format!("#!/bin/bash\n#SBATCH{}", script.unwrap_or_default());
    let start = Instant::now();
    let job = cluster.submit("document", &script)?;
    let state = ended(cluster, &job, Duration::from_secs(120));
    let output = cluster.output("document");
    let products = output.matches(RIGHT).count();
    let seen = format!(
        "{products} of 3 right, {state} after {}",
        seconds(start.elapsed())
    );
    let problem = (products != 3 || state != "COMPLETED").then_some(output);
    Ok(row(
        "the script of docs/clusters.md",
        "sbatch",
        seen,
        problem,
    ))
}

/// Waits until a job has ended, and returns its state.
fn ended(cluster: &Cluster, job: &str, limit: Duration) -> String {
    let mut state = String::new();
    cluster.until(limit, || {
        state = cluster.state(job);
        !["PENDING", "RUNNING", "COMPLETING", "CONFIGURING"].contains(&state.as_str())
    });
    state
}

/// A rank ends before it has joined. Slurm does not tell the others, and ends them if asked to.
fn absent_rank(cluster: &Cluster) -> CaseRow {
    let rank = "[ $SLURM_PROCID = 1 ] && exit 7; exec cannon";
    let command = "srun -K --mpi=pmi2 -N2 -n4, task 1 exits with 7";
    let ran = cluster.run(&format!("srun -K --mpi=pmi2 -N2 -n4 sh -c '{rank}'"));
    let is_right = ran.status.is_some_and(|it| it != 0)
        && ran.text.contains("task 1: Exited with exit code 7")
        && ran.after < Duration::from_secs(30);
    judged("a rank that never joins", command, &ran, is_right, "")
}

/// A rank is killed by a signal. The others get an error and end by themselves.
fn killed_rank(cluster: &Cluster) -> CaseRow {
    let what = "a killed rank";
    let command = format!("srun --mpi=pmi2 -N2 -n4 {LONG}");
    let (ran, killed) = std::thread::scope(|threads| {
        let running = threads.spawn(|| cluster.run(&command));
        let is_busy = cluster.until_busy("torture", 4);
        let victim = cluster
            .ours(HostNumber(2))
            .first()
            .map(|(process, _)| *process);
        let victim = victim.and_then(|it| Pid::from_raw(it.cast_signed()));
        let killed = Instant::now();
        if let Some(victim) = victim.filter(|_| is_busy) {
            let _ = kill_process(victim, Signal::KILL);
        } else {
            cluster.run("scancel --user=root");
        }
        (running.join().ok(), killed)
    });
    let after = seconds(killed.elapsed());
    let Some(ran) = ran else {
        return row(what, &command, "nothing".into(), Some("a panic".into()));
    };
    let lost = ran.text.matches("PeerLost").count();
    let seen = format!(
        "{lost} of 3 got PeerLost, status {:?} after {after}",
        ran.status
    );
    let is_right = lost == 3 && ran.status == Some(137) && killed.elapsed() < LOSS;
    row(
        what,
        &command,
        seen.replace("Some(", "").replace(')', ""),
        (!is_right).then_some(ran.text),
    )
}

/// The user cancels a job. Nothing of it may be left on any node.
fn cancelled(cluster: &Cluster, what: &'static str, script: &str) -> Result<CaseRow, Error> {
    let script = format!("#!/bin/bash\n#SBATCH -N2 -n4\n{script}\n");
    let job = cluster.submit("cancelled", &script)?;
    let is_busy = cluster.until_busy("torture", 4);
    let launchers = launchers(cluster);
    let was_seen = !cluster.left(&launchers).is_empty();
    let start = Instant::now();
    cluster.run(&format!("scancel {job}"));
    let is_gone = cluster.until(Duration::from_secs(30), || cluster.count() == 0);
    let after = seconds(start.elapsed());
    let state = ended(cluster, &job, Duration::from_secs(30));
    let left = cluster.left(&launchers);
    let is_right = is_busy && was_seen && is_gone && left.is_empty() && state == "CANCELLED";
    let seen =
        format!("{state}, no process after {after}, left: {left:?}").replace("{}", "nothing");
    let problem = (!is_right).then(|| cluster.output("cancelled"));
    Ok(row(what, "scancel", seen, problem))
}

/// The processes that may have made control groups.
fn launchers(cluster: &Cluster) -> Vec<u32> {
    let nodes = cluster.nodes.all().skip(1);
    let ours = nodes.flat_map(|host| cluster.ours(host));
    ours.map(|(process, _)| process).collect()
}

/// A job runs longer than it may. Slurm counts in minutes, and looks about twice in each. Its ranks
/// would wait for each other for ever.
fn over_time(cluster: &Cluster) -> Result<CaseRow, Error> {
    let script = format!(
        "#!/bin/bash\n#SBATCH -N2 -n4 --time=1\n\
         HYDRANT_PEER_TIMEOUT=0 srun --mpi=pmix {LONG}\n"
    );
    let start = Instant::now();
    let job = cluster.submit("over", &script)?;
    let is_busy = cluster.until_busy("torture", 4);
    let launchers = launchers(cluster);
    let state = ended(cluster, &job, Duration::from_secs(180));
    let is_gone = cluster.until(Duration::from_secs(30), || cluster.count() == 0);
    let left = cluster.left(&launchers);
    let is_right = is_busy && is_gone && left.is_empty() && state == "TIMEOUT";
    let after = seconds(start.elapsed());
    let seen = format!("{state} after {after}, left: {left:?}").replace("{}", "nothing");
    let problem = (!is_right).then(|| cluster.output("over"));
    Ok(row(
        "over its time",
        "sbatch --time=1, srun --mpi=pmix",
        seen,
        problem,
    ))
}

/// A node loses its link and its `slurmd`. The ranks on both sides end by themselves.
fn lost_node(cluster: &mut Cluster) -> Result<CaseRow, Error> {
    let script = format!("#!/bin/bash\n#SBATCH -N2 -n4 --no-requeue\nsrun --mpi=pmi2 {LONG}\n");
    let job = cluster.submit("lost", &script)?;
    let is_busy = cluster.until_busy("torture", 4);
    let start = Instant::now();
    cluster.fail(HostNumber(2))?;
    let is_gone = cluster.until(LOSS, || cluster.count() == 0);
    let after = seconds(start.elapsed());
    let state = ended(cluster, &job, Duration::from_secs(SILENCE * 6));
    let output = cluster.output("lost");
    let lost = output.matches("PeerLost").count();
    let seen = format!("{lost} of 2 on s1 got PeerLost, all ended after {after}, {state}");
    let is_right = is_busy && is_gone && lost == 2 && state == "NODE_FAIL";
    Ok(row(
        "a node that goes down",
        "srun --mpi=pmi2, link down, slurmd killed",
        seen,
        (!is_right).then_some(output),
    ))
}
