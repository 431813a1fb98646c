//! The table of settings: the one place that knows each of them.
//!
//! A row declares the variable's name, the field of [`Settings`] with its type and default, the
//! form of the values, and the meaning. From it come the field, the method of
//! [`JobBuilder`](crate::JobBuilder) of the same name, the help and the errors, the line of
//! `hydrant info`, and the row of `docs/settings.md`. A meaning reads well after "Sets".
//!
//! - `default`: the default in words, where the machine decides it.
//! - `feature`: the feature of this crate that the setting belongs to.
//! - `builder`: the argument of the method, and the value it makes.
//! - `environment`: the reason why only the environment sets it.

use std::{collections::BTreeMap, time::Duration};

use hydrant_launch::{BootstrapKind, launcher::DEFAULT_SHELL};
use hydrant_pinning::Strategy;
use hydrant_smp::Foreign;

#[cfg(feature = "verbs")]
use super::PagingKind;
#[cfg(feature = "foresight")]
use super::foresight::{ForesightPolicy, IdleCores, IdleCoresForm};
#[cfg(feature = "log")]
use super::log_filter::LogFilter;
use super::{
    AtomicsKind, ConduitKind, InterNodeKind, MessageProtocol, MonitorKind, Origin,
    conduit::Conduits,
    forms::{
        ByteCount, Microseconds, OneOf, OrAuto, Processors, Quantity, Seconds, Switch, Text,
        ValueForm,
    },
};

mod declare;

pub(super) use declare::Setting;
use declare::declare_settings;
pub(crate) use declare::parse_settings;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Passes the parts of all rows to the macro `$make`.
macro_rules! each_setting {
    ($make:ident) => {
        $crate::settings::parse_settings! { $make
"Networks and jobs" "" {
    "HYDRANT_CONDUIT" conduit: ConduitKind = ConduitKind::Auto;
        Conduits;
        "the network that joins the ranks; `auto` is shared memory within a host, and `HYDRANT_INTER_NODE` between hosts";
        builder kind: ConduitKind => kind;

    "HYDRANT_INTER_NODE" inter_node: InterNodeKind = InterNodeKind::Auto;
        OneOf(&InterNodeKind::ALL);
        "the network between hosts if the conduit is `auto`: RDMA (`verbs`) or libfabric (`ofi`); `auto` is RDMA if each rank has a port for it; `smp+pin` joins pretended hosts only";
        builder kind: InterNodeKind => kind;

    "HYDRANT_BOOTSTRAP" bootstrap: BootstrapKind = BootstrapKind::Auto;
        OneOf(&BootstrapKind::ALL);
        "how ranks find each other; `auto` is MPI's own if the program has initialized it, else the launcher in the environment, else a job of one rank";
        builder kind: BootstrapKind => kind;

    "HYDRANT_JOIN_TIMEOUT" join_timeout: Duration = Duration::from_secs(60);
        Seconds(1..=86_400);
        "the seconds to wait for the other ranks at the start";
        builder time: Duration => time;

    /// For real networks only: between pretended hosts the kernel reports processes that end.
    "HYDRANT_PEER_TIMEOUT" peer_timeout: Duration = Duration::from_secs(10);
        Seconds(0..=86_400);
        "the seconds for which a rank of another host may be silent before it is lost; 0 is forever";
        builder time: Duration => time;

    "HYDRANT_HOST_ID" host_id: String = String::new();
        Text("a name");
        "the name of the rank's host, for containers that cannot share memory: ranks with the same name do; if empty, the kernel's id and its namespaces (`docs/clusters.md`)";
        builder name: impl Into<String> => name.into();

    "HYDRANT_HOST_CPUS" host_cpus: Vec<usize> = Vec::new();
        Processors;
        "the processors that the ranks of the host share; `auto` is all of them; `hydrant run` sets it";
        builder cpus: impl IntoIterator<Item = usize> => cpus.into_iter().collect();

    "HYDRANT_RSH" rsh: String = DEFAULT_SHELL.to_owned();
        Text("a command");
        "the remote shell of `hydrant run --hosts`, a command that takes a host and a command line";
        environment "the launcher reads it";

    "HYDRANT_LOG" log: String = "warn".to_owned();
        LogFilter;
        "the part of the log that `log_to_stderr()` prints";
        feature "log";
        environment "the log begins before the job";

    "HYDRANT_COUNTERS" counters: bool = false;
        Switch;
        "whether each rank prints its counters at the end";
        builder on: bool => on;

    /// A socket and a sleeping thread serve it.
    "HYDRANT_TOP" top: bool = false;
        Switch;
        "whether `hydrant top` may look at this rank while it runs (`docs/watching.md`)";
        builder on: bool => on;
}

"Memory and registration" "" {
    "HYDRANT_HEAP" heap: usize = default_heap();
        ByteCount(64 * KIB..=64 * TIB);
        "the bytes of symmetric memory that each rank may allocate; they take memory only when used";
        default "half of physical memory, from 64 MiB to 1 TiB";
        builder bytes: usize => bytes;

    /// With [`put_anywhere`](crate::Job::put_anywhere) and [`get_anywhere`](crate::Job::get_anywhere). Both
    /// ranks must set it.
    "HYDRANT_ANYWHERE" anywhere: bool = false;
        Switch;
        "whether peers may name any address of this rank (`put_anywhere`, `get_anywhere`)";
        builder on: bool => on;

    "HYDRANT_REGISTRATION" registration: Strategy = Strategy::Auto;
        OneOf(&Strategy::ALL);
        "the strategy by which memory is registered, where the network needs it (`docs/registration.md`)";
        builder strategy: Strategy => strategy;

    "HYDRANT_M" m: Option<u64> = None;
        OrAuto(ByteCount(4 * KIB..=64 * TIB));
        "the bytes that peers together may keep registered here; `auto` is 4/10 of the bytes that can be pinned";
        builder bytes: u64 => Some(bytes);

    "HYDRANT_MAXVICTIM" maxvictim: Option<u64> = None;
        OrAuto(ByteCount(4 * KIB..=64 * TIB));
        "the bytes that may stay registered beside M, for victims and the rank's own operations; `auto` is M/8, a bucket at least";
        builder bytes: u64 => Some(bytes);

    "HYDRANT_BUCKET" bucket: Option<usize> = None;
        OrAuto(ByteCount(4 * KIB..=GIB));
        "the bytes of a bucket, the unit of registration: a power of two and a multiple of the page; `auto` is a page";
        builder bytes: usize => Some(bytes);

    "HYDRANT_EXTENTS" extents: Option<usize> = None;
        OrAuto(Quantity("extents", 1..=MIB));
        "the buffers that a rank may have exposed at once, and on `smp+pin`, `verbs` and `ofi` the extents that it may have registered; `auto` is 4096, on `smp+pin` the kernel's limit, on `verbs` and `ofi` 65536";
        builder extents: usize => Some(extents);

    /// Each thread makes the pages of a chunk resident, and has it registered.
    "HYDRANT_REGISTER_THREADS" register_threads: Option<usize> = None;
        OrAuto(Quantity("threads", 1..=256));
        "the threads that register much memory at once; `auto` is the processors of the rank, 4 at most";
        builder threads: usize => Some(threads);

    "HYDRANT_REGISTER_CHUNK" register_chunk: usize = 64 << 20;
        ByteCount(4 * KIB..=64 * TIB);
        "the bytes of an extent of much memory that is registered at once; the device's largest extent at most";
        builder bytes: usize => bytes;

    /// Memory that must be registered at its allocation is an error then. Other memory is registered when it is used.
    "HYDRANT_REGISTER_TIMEOUT" register_timeout: Duration = Duration::from_secs(300);
        Seconds(0..=86_400);
        "the seconds within which much memory must be registered; 0 is forever";
        builder time: Duration => time;

    /// Without one, memory from an allocator of the program's is registered for one operation or copied.
    "HYDRANT_MONITOR" monitor: MonitorKind = MonitorKind::Auto;
        OneOf(&MonitorKind::ALL);
        "the way to hear that own memory is unmapped, moved or emptied, so that it may stay registered: the kernel's `userfaultfd`, the program's own allocator if it is a `ReportingAllocator` (`allocator`), or none (`off`); `auto` is all that there is";
        builder kind: MonitorKind => kind;

    "HYDRANT_ATOMICS" atomics: AtomicsKind = AtomicsKind::Auto;
        OneOf(&AtomicsKind::ALL);
        "the executor that changes words of 64 bits atomically: the owner's NIC, also for the owner (`native`), or a processor (`messages`); `auto` is `native` where the network can";
        builder kind: AtomicsKind => kind;
}

"Messages" "" {
    "HYDRANT_MESSAGES" messages: MessageProtocol = MessageProtocol::Auto;
        OneOf(&MessageProtocol::ALL);
        "the protocol of two-sided messages: copied, written into the receiver's buffer, the same by chunks, or by size (`docs/messages.md`)";
        builder protocol: MessageProtocol => protocol;

    /// At most what one active message carries, or 128 KiB in several of them if the receiver's
    /// memory is not mapped here.
    "HYDRANT_MESSAGES_EAGER" messages_eager: Option<usize> = None;
        OrAuto(ByteCount(0..=64 * MIB));
        "the most bytes of a two-sided message that is sent at once; `auto` follows the network's costs";
        builder bytes: usize => Some(bytes);

    "HYDRANT_RING_SLOTS" ring_slots: usize = 256;
        Quantity("messages", 8..=MIB);
        "the messages that the ring from one rank to another holds (`smp`)";
        builder slots: usize => slots;

    "HYDRANT_RING_PAYLOAD" ring_payload: Option<usize> = None;
        OrAuto(ByteCount(KIB..=64 * MIB));
        "the payload bytes of a ring, of which a message carries at most a quarter; `auto` is 1 MiB, less from 9 ranks of a host on, with messages of 16 KiB (`smp`)";
        builder bytes: usize => Some(bytes);
}

"Processors" "" {
    /// Without it, call [`Job::poll`](crate::Job::poll) now and then.
    "HYDRANT_SERVICE" service: bool = true;
        Switch;
        "whether a thread answers peers while the application computes (not on `sim`, where the profile decides)";
        builder on: bool => on;

    /// If no processors are idle, choose those of ranks that wait for answers: then an answer need
    /// not cross to another core. Handlers run on the service thread. A thread that a handler starts
    /// inherits these processors.
    "HYDRANT_SERVICE_CPUS" service_cpus: Vec<usize> = Vec::new();
        Processors;
        "the processors of the service thread; `auto` is those of the rank, or those of the host's other ranks if each rank there has only one";
        builder cpus: impl IntoIterator<Item = usize> => cpus.into_iter().collect();

    "HYDRANT_SPIN" spin: Duration = Duration::from_micros(50);
        Microseconds(0..=10_000_000);
        "the microseconds for which a waiting thread spins before it yields and sleeps, where cores are free";
        builder time: Duration => time;
}

"RDMA" "" {
    "HYDRANT_VERBS_DEVICE" verbs_device: String = String::new();
        Text("devices, or ports as device:port, separated by commas");
        "the RDMA devices that may be used; if empty, all of them";
        feature "verbs";
        builder devices: impl Into<String> => devices.into();

    "HYDRANT_VERBS_GID" verbs_gid: Option<u8> = None;
        OrAuto(Quantity("index", 0..=255));
        "the index of the port's GID that peers use; `auto` prefers RoCE version 2 and IPv4";
        feature "verbs";
        builder index: u8 => Some(index);

    "HYDRANT_VERBS_WINDOW" verbs_window: u32 = 16;
        Quantity("requests", 1..=256);
        "the most requests of a rank that a peer has not handled yet; the peer has twice as many receive buffers ready";
        feature "verbs";
        builder requests: u32 => requests;

    /// A registration follows the mapping then, so no monitor is needed. Nothing of the program's memory is pinned.
    "HYDRANT_ODP" odp: PagingKind = PagingKind::Auto;
        OneOf(&PagingKind::ALL);
        "whether RDMA devices page registered memory on demand, instead of pinning it; `auto` is `on` where the device can and the kernel does not tell of changes of memory";
        feature "verbs";
        builder kind: PagingKind => kind;

    "HYDRANT_VERBS_ACK_TIMEOUT" verbs_ack_timeout: Option<u8> = None;
        OrAuto(Quantity("exponent", 1..=31));
        "the exponent n of the time, 4.096 µs × 2ⁿ, after which a packet without acknowledgement is sent again; `auto` suits the device";
        feature "verbs";
        builder exponent: u8 => Some(exponent);

    "HYDRANT_VERBS_LIBRARY" verbs_library: String = hydrant_verbs::SYSTEM_LIBRARY.to_owned();
        Text("a file");
        "the file of libibverbs, if it is not the system's";
        feature "verbs";
        environment "a process opens the library once";
}

"libfabric" "" {
    "HYDRANT_OFI_PROVIDER" ofi_provider: String = String::new();
        Text("a provider of libfabric");
        "the provider that all ranks use, such as `tcp`, `tcp;ofi_rxm` or `verbs;ofi_rxm`; if empty, the best of those that were tried, `tcp` and `tcp;ofi_rxm`";
        feature "ofi";
        builder provider: impl Into<String> => provider.into();

    "HYDRANT_OFI_INTERFACE" ofi_interface: String = String::new();
        Text("interfaces, addresses or networks");
        "the network interfaces of this host that peers reach, such as `eth0` or `eth0,10.9.0.0/24`; of several, and if empty, the one from which the routes lead to most other hosts";
        feature "ofi";
        builder interface: impl Into<String> => interface.into();

    "HYDRANT_OFI_WINDOW" ofi_window: u32 = 16;
        Quantity("requests", 1..=256);
        "the most requests of a rank that a peer has not handled yet";
        feature "ofi";
        builder requests: u32 => requests;

    "HYDRANT_OFI_LIBRARY" ofi_library: String = hydrant_ofi::SYSTEM_LIBRARY.to_owned();
        Text("a file");
        "the file of libfabric, if it is not the system's";
        feature "ofi";
        environment "a process opens the library once";
}

"For experiments only" "Only experiments need it." {
    "HYDRANT_PRETEND_HOSTS" pretend_hosts: u32 = 1;
        Quantity("hosts", 1..=64 * KIB);
        "the number of hosts that the ranks of one host pretend to be on, in blocks, to try a job for several hosts on one";
        builder hosts: u32 => hosts;

    "HYDRANT_SIM_RANKS" sim_ranks: u32 = 1;
        Quantity("ranks", 1..=64 * KIB);
        "the ranks of a simulated job, which are threads of one process; `hydrant run -n` sets it";
        feature "sim";
        builder ranks: u32 => ranks;

    /// The same seed gives the same run.
    "HYDRANT_SIM_SEED" sim_seed: u64 = 1;
        Quantity("seed", 0..=u64::MAX);
        "the seed of the random events of a simulated network";
        feature "sim";
        builder seed: u64 => seed;

    "HYDRANT_SMP_FOREIGN" smp_foreign: Foreign = Foreign::Auto;
        OneOf(&Foreign::ALL);
        "how memory outside the heap is reached: by the system's copy, or by messages (`smp`)";
        builder foreign: Foreign => foreign;

    "HYDRANT_PIGGYBACK" piggyback: usize = 1 << 10;
        ByteCount(0..=MIB);
        "the most bytes of data piggybacked on a move";
        builder bytes: usize => bytes;

    "HYDRANT_ADAPTIVE_VICTIMS" adaptive_victims: bool = true;
        Switch;
        "whether victims may use the part of M that peers do not use";
        builder on: bool => on;

    "HYDRANT_BORROW" borrow: bool = true;
        Switch;
        "whether a peer may borrow the part of M that others do not use; each peer is then sure of an eighth of its own share";
        builder on: bool => on;

    "HYDRANT_WIDEN" widen: bool = true;
        Switch;
        "whether misses in sequence make registrations wider, as far as their cost suggests";
        builder on: bool => on;

    "HYDRANT_PIN_DOWN_ENTRIES" pin_down_entries: u64 = 1024;
        Quantity("pages", 1..=GIB);
        "the most pages that the pin-down cache holds";
        builder pages: u64 => pages;

    "HYDRANT_FORESIGHT_FIREHOSES" foresight_firehoses: bool = true;
        Switch;
        "whether `foresight` moves firehoses to peers' memory ahead of use and gives them back after it";
        feature "foresight";
        builder on: bool => on;

    /// Without this, memory that is not expected soon is evicted, as in the paper. Programs that
    /// lose little time then save more memory.
    "HYDRANT_FORESIGHT_STEPS_BACK" foresight_steps_back: bool = false;
        Switch;
        "whether the evictions of `foresight` may cost only a hundredth of the time, divided among the ranks, for memory without a predicted next use";
        feature "foresight";
        builder on: bool => on;

    "HYDRANT_FORESIGHT_CORES" foresight_cores: IdleCores = IdleCores::Each;
        IdleCoresForm;
        "the idle cores of a host that the helpers of its ranks share; `auto` is those beyond one for each rank; by `each`, every helper has its own";
        feature "foresight";
        builder cores: IdleCores => cores;

    "HYDRANT_FORESIGHT_POLICY" foresight_policy: ForesightPolicy = ForesightPolicy::Conservative;
        OneOf(&ForesightPolicy::ALL);
        "how helpers share too few idle cores: only the ranks with most registered memory have a helper, or helpers take turns on a core";
        feature "foresight";
        builder policy: ForesightPolicy => policy;

    "HYDRANT_FORESIGHT_SLICE" foresight_slice: Duration = Duration::from_millis(3);
        Microseconds(1..=10_000_000);
        "the microseconds for which a helper runs before the next one on its core does";
        feature "foresight";
        builder time: Duration => time;
}
        }
    };
}

pub(crate) use each_setting;

each_setting!(declare_settings);

/// Returns half of physical memory. Allocations are checked against the memory that is really
/// available.
fn default_heap() -> usize {
    let pages = rustix::system::sysinfo();
    let total = pages.totalram as u64 * u64::from(pages.mem_unit);
    ((total / 2).clamp(64 << 20, 1 << 40) as usize).next_multiple_of(2 << 20)
}
