//! The settings, a row each.

use std::time::Duration;

use hydrant_smp::Foreign;

use super::{Settings, format_bytes, parse_bytes};

/// A setting: how it is called, set and shown.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) meaning: &'static str,
    /// Says what was expected if the text will not do.
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    pub(super) show: fn(&Settings) -> String,
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        name: "HYDRANT_CONDUIT",
        meaning: "which network joins the ranks: auto, smp, smp+pin, verbs or sim:PROFILE",
        set: |s, text| text.parse().map(|kind| s.conduit = kind),
        show: |s| s.conduit.to_string(),
    },
    Setting {
        name: "HYDRANT_FAR",
        meaning: "which network joins ranks of different hosts, where conduit is auto: verbs, or smp+pin between pretended ones",
        set: |s, text| text.parse().map(|kind| s.far = kind),
        show: |s| s.far.to_string(),
    },
    Setting {
        name: "HYDRANT_PRETEND_HOSTS",
        meaning: "hosts that the ranks pretend to be on, in blocks, to try on one host what happens on several",
        set: |s, text| number(text, 1, 1 << 16).map(|hosts| s.pretend_hosts = hosts as u32),
        show: |s| s.pretend_hosts.to_string(),
    },
    Setting {
        name: "HYDRANT_SIM_RANKS",
        meaning: "ranks of a simulated job, threads of one process (sim)",
        set: |s, text| number(text, 1, 1 << 16).map(|ranks| s.sim_ranks = ranks as u32),
        show: |s| s.sim_ranks.to_string(),
    },
    Setting {
        name: "HYDRANT_SIM_SEED",
        meaning: "what a simulated network draws its chances from (sim)",
        set: |s, text| {
            s.sim_seed = text.parse().map_err(|_| "a whole number from 0 on")?;
            Ok(())
        },
        show: |s| s.sim_seed.to_string(),
    },
    Setting {
        name: "HYDRANT_REGISTRATION",
        meaning: "how memory gets registered, where the network needs that: firehose, pin-everything, bounce, rendezvous-unpin, …",
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
        set: |s, text| or_auto(text, 4096, 1 << 46).map(|m| s.registration.m = m),
        show: |s| auto_or(s.registration.m),
    },
    Setting {
        name: "HYDRANT_MAXVICTIM",
        meaning: "bytes that may stay registered beside M: victims, and memory of own operations; auto is M/8",
        set: |s, text| or_auto(text, 4096, 1 << 46).map(|v| s.registration.maxvictim = v),
        show: |s| auto_or(s.registration.maxvictim),
    },
    Setting {
        name: "HYDRANT_BUCKET",
        meaning: "bytes of a bucket, the unit of registration: a power of two, a multiple of the page; auto is a page",
        set: |s, text| {
            or_auto(text, 4096, 1 << 30)
                .map(|bytes| s.registration.bucket = bytes.map(|bytes| bytes as usize))
        },
        show: |s| auto_or(s.registration.bucket.map(|bytes| bytes as u64)),
    },
    Setting {
        name: "HYDRANT_RIDE",
        meaning: "most bytes of data that ride on a move",
        set: |s, text| bytes(text, 0, 1 << 20).map(|ride| s.registration.ride = ride),
        show: |s| format_bytes(s.registration.ride as u64),
    },
    Setting {
        name: "HYDRANT_ADAPTIVE_VICTIMS",
        meaning: "whether victims may fill what peers leave unused of M",
        set: |s, text| switch(text).map(|on| s.registration.adaptive_victims = on),
        show: |s| shown(s.registration.adaptive_victims),
    },
    Setting {
        name: "HYDRANT_BORROW",
        meaning: "whether a peer may borrow what others leave unused of M",
        set: |s, text| switch(text).map(|on| s.registration.borrowing = on),
        show: |s| shown(s.registration.borrowing),
    },
    Setting {
        name: "HYDRANT_WIDEN",
        meaning: "whether misses in sequence widen registrations, as far as their cost suggests",
        set: |s, text| switch(text).map(|on| s.registration.widening = on),
        show: |s| shown(s.registration.widening),
    },
    Setting {
        name: "HYDRANT_PIN_DOWN_ENTRIES",
        meaning: "pages that the pin-down cache holds at most",
        set: |s, text| number(text, 1, 1 << 30).map(|n| s.registration.entries = n as u64),
        show: |s| s.registration.entries.to_string(),
    },
    Setting {
        name: "HYDRANT_ATOMICS",
        meaning: "who changes words of 64 bits atomically: native (the NIC of their owner, for all ranks and the owner itself), messages (the owner's processor) or auto: native where the network can",
        set: |s, text| text.parse().map(|kind| s.atomics = kind),
        show: |s| s.atomics.to_string(),
    },
    Setting {
        name: "HYDRANT_ANYWHERE",
        meaning: "whether peers may name any address of this rank (put_anywhere, get_anywhere)",
        set: |s, text| switch(text).map(|on| s.anywhere = on),
        show: |s| shown(s.anywhere),
    },
    Setting {
        name: "HYDRANT_BOOTSTRAP",
        meaning: "how ranks find each other: auto, alone, pmi1 or pmix",
        set: |s, text| {
            let kind = text.parse().map_err(|_| "auto, alone, pmi1 or pmix")?;
            s.bootstrap = kind;
            Ok(())
        },
        show: |s| s.bootstrap.to_string(),
    },
    Setting {
        name: "HYDRANT_HEAP",
        meaning: "bytes of symmetric memory that each rank may allocate; address space, memory follows use",
        set: |s, text| bytes(text, 1 << 16, 1 << 46).map(|bytes| s.heap = bytes),
        show: |s| format_bytes(s.heap as u64),
    },
    Setting {
        name: "HYDRANT_SERVICE",
        meaning: "whether a thread answers peers while the application computes (not on sim, whose hosts do by their profile)",
        set: |s, text| switch(text).map(|on| s.service = on),
        show: |s| shown(s.service),
    },
    Setting {
        name: "HYDRANT_SPIN",
        meaning: "microseconds that a waiting thread spins before it yields and sleeps, where cores are free",
        set: |s, text| {
            number(text, 0, 10_000_000).map(|micros| s.spin = Duration::from_micros(micros as u64))
        },
        show: |s| s.spin.as_micros().to_string(),
    },
    Setting {
        name: "HYDRANT_JOIN_TIMEOUT",
        meaning: "seconds to wait for the other ranks at the start",
        set: |s, text| {
            number(text, 1, 86_400).map(|secs| s.join_timeout = Duration::from_secs(secs as u64))
        },
        show: |s| s.join_timeout.as_secs().to_string(),
    },
    Setting {
        name: "HYDRANT_RING_SLOTS",
        meaning: "messages that the ring from one rank to another holds (smp)",
        set: |s, text| number(text, 8, 1 << 20).map(|slots| s.ring_slots = slots),
        show: |s| s.ring_slots.to_string(),
    },
    Setting {
        name: "HYDRANT_RING_PAYLOAD",
        meaning: "bytes of payload that a ring holds; a message carries a quarter of it (smp)",
        set: |s, text| bytes(text, 1 << 10, 64 << 20).map(|bytes| s.ring_payload = bytes),
        show: |s| format_bytes(s.ring_payload as u64),
    },
    Setting {
        name: "HYDRANT_EXTENTS",
        meaning: "buffers that a rank may have exposed at once, on smp+pin and verbs extents registered; auto is 4096, on smp+pin what the kernel can hold, on verbs 65536",
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
        meaning: "RDMA devices that may be used, or ports as device:port, separated by commas; empty: any (verbs)",
        set: |s, text| {
            s.verbs.devices = text.to_owned();
            Ok(())
        },
        show: |s| s.verbs.devices.clone(),
    },
    Setting {
        name: "HYDRANT_VERBS_GID",
        meaning: "index of the port's address that peers are told, or auto: RoCE version 2 and IPv4 first (verbs)",
        set: |s, text| {
            or_auto(text, 0, 255).map(|index| s.verbs.gid_index = index.map(|index| index as u8))
        },
        show: |s| auto_or(s.verbs.gid_index.map(u64::from)),
    },
    Setting {
        name: "HYDRANT_VERBS_ACK_TIMEOUT",
        meaning: "power of two, times 4.096 us, that a packet waits to be acknowledged before it is sent again; auto: what suits the device (verbs)",
        set: |s, text| {
            or_auto(text, 1, 31).map(|time| s.verbs.ack_timeout = time.map(|time| time as u8))
        },
        show: |s| auto_or(s.verbs.ack_timeout.map(u64::from)),
    },
    Setting {
        name: "HYDRANT_PEER_TIMEOUT",
        meaning: "seconds that a rank of another host may answer nothing before it is lost; 0: for ever",
        set: |s, text| {
            number(text, 0, 86_400).map(|secs| s.peer_timeout = Duration::from_secs(secs as u64))
        },
        show: |s| s.peer_timeout.as_secs().to_string(),
    },
    Setting {
        name: "HYDRANT_COUNTERS",
        meaning: "whether each rank prints its counters at the end",
        set: |s, text| switch(text).map(|on| s.counters = on),
        show: |s| shown(s.counters),
    },
    Setting {
        name: "HYDRANT_LOG",
        meaning: "what log_to_stderr() logs, which all of Hydrant's own programs call: off, error, warn, info, debug, or a filter such as hydrant=debug",
        set: |s, text| {
            tracing_subscriber::EnvFilter::try_new(text)
                .map_err(|cause| format!("a log filter ({cause})"))?;
            s.log = text.to_owned();
            Ok(())
        },
        show: |s| s.log.clone(),
    },
];

/// Variables with our prefix that other parts of Hydrant read.
pub(super) fn belongs_to_others(name: &str) -> bool {
    let of_launchers = [hydrant_launch::HOST_ID, "HYDRANT_RSH"];
    of_launchers.contains(&name)
        || name.starts_with("HYDRANT_RUN_")
        || name.starts_with("HYDRANT_TEST_")
}

/// Half of physical memory: allocations are checked against what is really available.
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

/// How many letters two names differ in (Levenshtein), for "did you mean".
pub(super) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let cost = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
