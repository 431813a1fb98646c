//! The table of settings.

use std::time::Duration;

use hydrant_launch::{HOST_CPUS, HOST_ID, launcher::DEFAULT_SHELL};
use hydrant_smp::Foreign;
use rustix::thread::CpuSet;

use super::{Settings, foresight, format_bytes, parse_bytes};

/// One setting: its name, its meaning, and how it is set and shown.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    /// The unit of a number, in the plural; `None` if the value is a word.
    pub(super) unit: Option<&'static str>,
    /// Sets the value, or returns what was expected.
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    pub(super) show: fn(&Settings) -> String,
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        name: "HYDRANT_CONDUIT",
        meaning: "the network that joins the ranks: auto, smp, smp+pin, verbs or sim:PROFILE",
        unit: None,
        set: |s, text| text.parse().map(|kind| s.conduit = kind),
        show: |s| s.conduit.to_string(),
    },
    Setting {
        name: "HYDRANT_INTER_NODE",
        meaning: "the network that joins ranks of different hosts if HYDRANT_CONDUIT is auto: verbs, or smp+pin between pretended hosts",
        unit: None,
        set: |s, text| text.parse().map(|kind| s.inter_node = kind),
        show: |s| s.inter_node.to_string(),
    },
    Setting {
        name: "HYDRANT_PRETEND_HOSTS",
        meaning: "number of hosts that the ranks pretend to be on, in blocks, to try a job for several hosts on one",
        unit: Some("hosts"),
        set: |s, text| number(text, 1, 1 << 16).map(|hosts| s.pretend_hosts = hosts as u32),
        show: |s| s.pretend_hosts.to_string(),
    },
    Setting {
        name: "HYDRANT_SIM_RANKS",
        meaning: "ranks of a simulated job, which are threads of one process (sim)",
        unit: Some("ranks"),
        set: |s, text| number(text, 1, 1 << 16).map(|ranks| s.sim_ranks = ranks as u32),
        show: |s| s.sim_ranks.to_string(),
    },
    Setting {
        name: "HYDRANT_SIM_SEED",
        meaning: "seed of the random events of a simulated network (sim)",
        unit: Some("seed"),
        set: |s, text| {
            s.sim_seed = text.parse().map_err(|_| "a whole number from 0 on")?;
            Ok(())
        },
        show: |s| s.sim_seed.to_string(),
    },
    Setting {
        name: "HYDRANT_REGISTRATION",
        meaning: "strategy of registration, for networks that need it: auto, firehose, pin-everything, bounce, rendezvous-unpin, … (docs/registration.md has all)",
        unit: None,
        set: |s, text| {
            s.registration.strategy = text
                .parse()
                .map_err(|cause| format!("a strategy ({cause})"))?;
            Ok(())
        },
        show: |s| s.registration.strategy.to_string(),
    },
    Setting {
        name: "HYDRANT_M",
        meaning: "bytes that peers together may keep registered here; auto is 4/10 of what can be pinned",
        unit: Some("bytes"),
        set: |s, text| or_auto(text, 4096, 1 << 46).map(|m| s.registration.m = m),
        show: |s| auto_or(s.registration.m),
    },
    Setting {
        name: "HYDRANT_MAXVICTIM",
        meaning: "bytes that may stay registered beside M, for victims and own operations; auto is M/8, at least a bucket",
        unit: Some("bytes"),
        set: |s, text| or_auto(text, 4096, 1 << 46).map(|v| s.registration.maxvictim = v),
        show: |s| auto_or(s.registration.maxvictim),
    },
    Setting {
        name: "HYDRANT_BUCKET",
        meaning: "bytes of a bucket, the unit of registration: a power of two, a multiple of the page; auto is a page",
        unit: Some("bytes"),
        set: |s, text| {
            or_auto(text, 4096, 1 << 30)
                .map(|bytes| s.registration.bucket = bytes.map(|bytes| bytes as usize))
        },
        show: |s| auto_or(s.registration.bucket.map(|bytes| bytes as u64)),
    },
    Setting {
        name: "HYDRANT_PIGGYBACK",
        meaning: "most bytes of data piggybacked on a move",
        unit: Some("bytes"),
        set: |s, text| bytes(text, 0, 1 << 20).map(|it| s.registration.piggyback = it),
        show: |s| format_bytes(s.registration.piggyback as u64),
    },
    Setting {
        name: "HYDRANT_ADAPTIVE_VICTIMS",
        meaning: "whether victims may use the part of M that peers do not use",
        unit: None,
        set: |s, text| switch(text).map(|on| s.registration.adaptive_victims = on),
        show: |s| shown(s.registration.adaptive_victims),
    },
    Setting {
        name: "HYDRANT_BORROW",
        meaning: "whether a peer may borrow the part of M that others do not use; an eighth of each peer's own share stays reserved for it",
        unit: None,
        set: |s, text| switch(text).map(|on| s.registration.borrowing = on),
        show: |s| shown(s.registration.borrowing),
    },
    Setting {
        name: "HYDRANT_WIDEN",
        meaning: "whether sequential misses widen registrations, as far as the costs suggest",
        unit: None,
        set: |s, text| switch(text).map(|on| s.registration.widening = on),
        show: |s| shown(s.registration.widening),
    },
    Setting {
        name: "HYDRANT_PIN_DOWN_ENTRIES",
        meaning: "most pages in the pin-down cache",
        unit: Some("pages"),
        set: |s, text| number(text, 1, 1 << 30).map(|n| s.registration.entries = n as u64),
        show: |s| s.registration.entries.to_string(),
    },
    Setting {
        name: "HYDRANT_ATOMICS",
        meaning: "what changes words of 64 bits atomically: native (the owner's NIC, for the owner too), messages (a processor) or auto (native where the network can)",
        unit: None,
        set: |s, text| text.parse().map(|kind| s.atomics = kind),
        show: |s| s.atomics.to_string(),
    },
    Setting {
        name: "HYDRANT_FORESIGHT_FIREHOSES",
        meaning: "whether the strategy foresight moves firehoses to peers' memory ahead of use and releases them after it",
        unit: None,
        set: |s, text| switch(text).map(|on| s.foresight.firehoses = on),
        show: |s| shown(s.foresight.firehoses),
    },
    Setting {
        name: "HYDRANT_FORESIGHT_STEPS_BACK",
        meaning: "whether evictions of the strategy foresight may cost only a hundredth of the time, divided among the ranks, for memory whose next use is not predicted",
        unit: None,
        set: |s, text| switch(text).map(|on| s.foresight.steps_back = on),
        show: |s| shown(s.foresight.steps_back),
    },
    Setting {
        name: "HYDRANT_FORESIGHT_CORES",
        meaning: "number of idle cores of a host that the helpers of the strategy foresight share: a number, auto (the cores beyond one for each rank) or each (a core for each helper)",
        unit: None,
        set: |s, text| text.parse().map(|cores| s.foresight.cores = cores),
        show: |s| s.foresight.cores.to_string(),
    },
    Setting {
        name: "HYDRANT_FORESIGHT_POLICY",
        meaning: "how helpers share too few idle cores: conservative (only ranks with most bytes registered have a helper) or aggressive (helpers take turns on a core)",
        unit: None,
        set: |s, text| foresight::policy(text).map(|policy| s.foresight.policy = policy),
        show: |s| foresight::policy_name(s.foresight.policy),
    },
    Setting {
        name: "HYDRANT_FORESIGHT_SLICE",
        meaning: "microseconds that a helper runs before another helper on its core does",
        unit: Some("microseconds"),
        set: |s, text| {
            number(text, 1, 10_000_000)
                .map(|micros| s.foresight.slice = Duration::from_micros(micros as u64))
        },
        show: |s| s.foresight.slice.as_micros().to_string(),
    },
    Setting {
        name: "HYDRANT_MESSAGES",
        meaning: "protocol of two-sided messages: eager (copied), rendezvous (written into the receiver's buffer), pipeline (as rendezvous, chunk by chunk) or auto (by size)",
        unit: None,
        set: |s, text| text.parse().map(|protocol| s.messages = protocol),
        show: |s| s.messages.to_string(),
    },
    Setting {
        name: "HYDRANT_MESSAGES_EAGER",
        meaning: "most bytes of a two-sided message that is sent eagerly; auto follows the costs of the network",
        unit: Some("bytes"),
        set: |s, text| {
            or_auto(text, 0, 64 << 20)
                .map(|bytes| s.messages_eager = bytes.map(|bytes| bytes as usize))
        },
        show: |s| auto_or(s.messages_eager.map(|bytes| bytes as u64)),
    },
    Setting {
        name: "HYDRANT_ANYWHERE",
        meaning: "whether peers may name any address of this rank (put_anywhere, get_anywhere)",
        unit: None,
        set: |s, text| switch(text).map(|on| s.anywhere = on),
        show: |s| shown(s.anywhere),
    },
    Setting {
        name: "HYDRANT_BOOTSTRAP",
        meaning: "how ranks find each other: auto, alone, pmi1, pmix or mpi",
        unit: None,
        set: |s, text| {
            let kind = text.parse().map_err(|_| "auto, alone, pmi1, pmix or mpi")?;
            s.bootstrap = kind;
            Ok(())
        },
        show: |s| s.bootstrap.to_string(),
    },
    Setting {
        name: "HYDRANT_HEAP",
        meaning: "bytes of symmetric memory that each rank may allocate; the system provides memory only when it is used",
        unit: Some("bytes"),
        set: |s, text| bytes(text, 1 << 16, 1 << 46).map(|bytes| s.heap = bytes),
        show: |s| format_bytes(s.heap as u64),
    },
    Setting {
        name: "HYDRANT_SERVICE",
        meaning: "whether a thread answers peers while the application computes (not on sim, where the profile sets when a host answers)",
        unit: None,
        set: |s, text| switch(text).map(|on| s.service = on),
        show: |s| shown(s.service),
    },
    Setting {
        name: "HYDRANT_SERVICE_CPUS",
        meaning: "processors on which the service thread may run, as 0,4-7; auto is those of the rank; if each rank of the host has only one, auto is those of the others",
        unit: None,
        set: |s, text| cpus(text).map(|cpus| s.service_cpus = cpus),
        show: |s| shown_cpus(&s.service_cpus),
    },
    Setting {
        name: HOST_CPUS,
        meaning: "processors that the ranks of the host share, set by `hydrant run`; auto is all of the host",
        unit: None,
        set: |s, text| cpus(text).map(|cpus| s.host_cpus = cpus),
        show: |s| shown_cpus(&s.host_cpus),
    },
    Setting {
        name: "HYDRANT_SPIN",
        meaning: "microseconds that a waiting thread spins before it yields and sleeps, if cores are free",
        unit: Some("microseconds"),
        set: |s, text| {
            number(text, 0, 10_000_000).map(|micros| s.spin = Duration::from_micros(micros as u64))
        },
        show: |s| s.spin.as_micros().to_string(),
    },
    Setting {
        name: "HYDRANT_JOIN_TIMEOUT",
        meaning: "seconds to wait for the other ranks at the start",
        unit: Some("seconds"),
        set: |s, text| {
            number(text, 1, 86_400).map(|secs| s.join_timeout = Duration::from_secs(secs as u64))
        },
        show: |s| s.join_timeout.as_secs().to_string(),
    },
    Setting {
        name: "HYDRANT_RING_SLOTS",
        meaning: "messages that the ring from one rank to another holds (smp)",
        unit: Some("messages"),
        set: |s, text| number(text, 8, 1 << 20).map(|slots| s.ring_slots = slots),
        show: |s| s.ring_slots.to_string(),
    },
    Setting {
        name: "HYDRANT_RING_PAYLOAD",
        meaning: "bytes of payload that a ring holds; a message carries at most a quarter; auto is 1 MiB, less from 9 ranks on, with 16 KiB a message (smp)",
        unit: Some("bytes"),
        set: |s, text| {
            s.ring_payload = match text {
                "auto" => None,
                _ => {
                    let bytes = bytes(text, 1 << 10, 64 << 20);
                    Some(bytes.map_err(|expected| format!("auto, or {expected}"))?)
                }
            };
            Ok(())
        },
        show: |s| {
            (s.ring_payload).map_or_else(|| "auto".to_owned(), |bytes| format_bytes(bytes as u64))
        },
    },
    Setting {
        name: "HYDRANT_EXTENTS",
        meaning: "most buffers that a rank may have exposed at once; on smp+pin and verbs, most extents that it may have registered; auto is 4096, the kernel's limit on smp+pin, and 65536 on verbs",
        unit: Some("extents"),
        set: |s, text| {
            s.extents = match text {
                "auto" => None,
                _ => {
                    let extents = number(text, 1, 1 << 20);
                    Some(extents.map_err(|expected| format!("auto, or {expected}"))?)
                }
            };
            Ok(())
        },
        show: |s| (s.extents).map_or_else(|| "auto".to_owned(), |extents| extents.to_string()),
    },
    Setting {
        name: "HYDRANT_SMP_FOREIGN",
        meaning: "how memory outside the heap is reached: auto, process-vm or messages (smp)",
        unit: None,
        set: |s, text| {
            s.foreign = text.parse()?;
            Ok(())
        },
        show: |s| {
            match s.foreign {
                Foreign::Auto => "auto",
                Foreign::ProcessVm => "process-vm",
                Foreign::Messages => "messages",
            }
            .to_owned()
        },
    },
    Setting {
        name: "HYDRANT_VERBS_DEVICE",
        meaning: "RDMA devices that may be used, or ports as device:port, separated by commas; if empty, all (verbs)",
        unit: None,
        set: |s, text| {
            s.verbs.devices = text.to_owned();
            Ok(())
        },
        show: |s| s.verbs.devices.clone(),
    },
    Setting {
        name: "HYDRANT_VERBS_GID",
        meaning: "index of the port's GID that peers are told; auto prefers RoCE version 2 and IPv4 (verbs)",
        unit: Some("index"),
        set: |s, text| {
            or_auto(text, 0, 255).map(|index| s.verbs.gid_index = index.map(|index| index as u8))
        },
        show: |s| auto_or(s.verbs.gid_index.map(u64::from)),
    },
    Setting {
        name: "HYDRANT_VERBS_WINDOW",
        meaning: "most requests of a rank that may be unhandled at a peer; the peer has twice as many receive buffers (verbs)",
        unit: Some("requests"),
        set: |s, text| number(text, 1, 256).map(|window| s.verbs.window = window as u32),
        show: |s| s.verbs.window.to_string(),
    },
    Setting {
        name: "HYDRANT_VERBS_ACK_TIMEOUT",
        meaning: "how long a packet waits for an acknowledgement before it is sent again: an exponent n, for 4.096 us times 2 to the n; auto suits the device (verbs)",
        unit: Some("exponent"),
        set: |s, text| {
            or_auto(text, 1, 31).map(|time| s.verbs.ack_timeout = time.map(|time| time as u8))
        },
        show: |s| auto_or(s.verbs.ack_timeout.map(u64::from)),
    },
    Setting {
        name: "HYDRANT_PEER_TIMEOUT",
        meaning: "seconds for which a rank of another host may be silent before it is lost; 0 means forever (verbs)",
        unit: Some("seconds"),
        set: |s, text| {
            number(text, 0, 86_400).map(|secs| s.peer_timeout = Duration::from_secs(secs as u64))
        },
        show: |s| s.peer_timeout.as_secs().to_string(),
    },
    Setting {
        name: "HYDRANT_COUNTERS",
        meaning: "whether each rank prints its counters at the end",
        unit: None,
        set: |s, text| switch(text).map(|on| s.counters = on),
        show: |s| shown(s.counters),
    },
    Setting {
        name: "HYDRANT_LOG",
        meaning: "level of the log to stderr, of Hydrant's programs and of those that call log_to_stderr(): off, error, warn, info, debug, or a filter such as hydrant=debug",
        unit: None,
        set: |s, text| {
            super::log_filter::parse(text).map_err(|part| {
                format!("a log filter: {part:?} is neither a level nor a target and a level, as in hydrant=debug")
            })?;
            s.log = text.to_owned();
            Ok(())
        },
        show: |s| s.log.clone(),
    },
    Setting {
        name: "HYDRANT_RSH",
        meaning: "the remote shell of `hydrant run --hosts`: a command that takes a host and a command line (read by the launcher)",
        unit: None,
        set: |s, text| s.note("HYDRANT_RSH", text),
        show: |s| s.noted("HYDRANT_RSH").unwrap_or(DEFAULT_SHELL).to_owned(),
    },
    Setting {
        name: HOST_ID,
        meaning: "name of the rank's host, if ranks of one kernel cannot share memory: ranks with the same name share memory; if empty, the kernel's own id with the PID and network namespaces (read when a job starts; `hydrant run --name-hosts` sets it)",
        unit: None,
        set: |s, text| s.note(HOST_ID, text),
        show: |s| s.noted(HOST_ID).unwrap_or_default().to_owned(),
    },
    Setting {
        name: "HYDRANT_VERBS_LIBRARY",
        meaning: "the file of libibverbs, if it is not the system's (verbs)",
        unit: None,
        set: |s, text| s.note("HYDRANT_VERBS_LIBRARY", text),
        show: |s| {
            (s.noted("HYDRANT_VERBS_LIBRARY")
                .unwrap_or(hydrant_verbs::SYSTEM_LIBRARY))
            .to_owned()
        },
    },
];

/// Returns whether a variable with Hydrant's prefix is for Hydrant's own tests.
pub(super) fn belongs_to_tests(name: &str) -> bool {
    name.starts_with("HYDRANT_TEST_")
}

/// Returns half of physical memory. Allocations are checked against the memory that is really
/// available.
pub(super) fn default_heap() -> usize {
    let pages = rustix::system::sysinfo();
    let total = pages.totalram as u64 * u64::from(pages.mem_unit);
    ((total / 2).clamp(64 << 20, 1 << 40) as usize).next_multiple_of(2 << 20)
}

fn bytes(text: &str, least: u64, most: u64) -> Result<usize, String> {
    parse_bytes(text)
        .filter(|bytes| (least..=most).contains(bytes))
        .map(|bytes| bytes as usize)
        .ok_or_else(|| {
            let (least, most) = (format_bytes(least), format_bytes(most));
            format!("a number of bytes from {least} to {most}, such as 64M")
        })
}

fn number(text: &str, least: usize, most: usize) -> Result<usize, String> {
    (text.parse().ok())
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("a number from {least} to {most}"))
}

/// Formats processors as numbers, or `auto` if there are none.
fn shown_cpus(cpus: &[usize]) -> String {
    match cpus {
        [] => "auto".to_owned(),
        cpus => (cpus.iter().map(usize::to_string).collect::<Vec<_>>()).join(","),
    }
}

fn cpus(text: &str) -> Result<Vec<usize>, String> {
    if text == "auto" {
        return Ok(Vec::new());
    }
    let most = CpuSet::MAX_CPU - 1;
    let expected = || format!("auto, or numbers from 0 to {most}, as 0,4-7");
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|cpu| number(cpu.trim(), 0, most));
        match (first, last) {
            (Ok(first), Ok(last)) if first <= last => all.extend(first..=last),
            _ => return Err(expected()),
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err("on or off".to_owned()),
    }
}

fn or_auto(text: &str, least: u64, most: u64) -> Result<Option<u64>, String> {
    if text == "auto" {
        return Ok(None);
    }
    bytes(text, least, most)
        .map(|bytes| Some(bytes as u64))
        .map_err(|expected| format!("auto, or {expected}"))
}

fn auto_or(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "auto".to_owned(), format_bytes)
}

fn shown(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
