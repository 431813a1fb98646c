//! Engines, and the numbers by which C names them.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::c_void,
    fmt::Write as _,
    process,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, JoinHandle},
};

use parking_lot::{Mutex, RwLock};

use crate::{
    batches::TaskBatch,
    core::EngineCore,
    door::{Door, DoorListener, HostPort},
    failure::{EngineFailure, INVALID_ARGUMENT, METADATA, Result, SOCKET},
    segments::PeerSegments,
    types::INVALID_BATCH,
};

/// The only way in which engines find each other here.
const P2P: &str = "P2PHANDSHAKE";

/// The numbers of engines are multiples of this, so that they look like pointers.
const STEP: usize = 16;
/// The number of an engine's transport is so much above that of the engine.
const TRANSPORT: usize = 8;

/// All engines that are not destroyed.
static ENGINES: RwLock<BTreeMap<usize, Arc<TransferEngine>>> = RwLock::new(BTreeMap::new());

/// An engine.
pub(crate) struct TransferEngine {
    pub(crate) core: Arc<EngineCore>,
    pub(crate) segments: PeerSegments,
    batches: RwLock<HashMap<u64, Arc<TaskBatch>>>,
    has_transport: AtomicBool,
    threads: Mutex<Option<EngineThreads>>,
    /// The process that made it. A child that is forked has neither its threads nor its peers.
    creator: u32,
}

/// The threads of an engine.
struct EngineThreads {
    door: Door,
    service: JoinHandle<()>,
}

impl TransferEngine {
    /// Makes an engine, and returns its number.
    ///
    /// # Errors
    /// The sentence.
    pub(crate) fn create(metadata: &str, own_name: &str, discovers: bool) -> Result<*mut c_void> {
        if metadata != P2P {
            let text = format!(
                "this library has no metadata service, and cannot use \"{metadata}\": engines find each other with \
                 \"{P2P}\""
            );
            return Err(EngineFailure::new(METADATA, text));
        }
        let listener = DoorListener::bind(HostPort::parse(own_name)?)?;
        let name = listener.name();
        let core = EngineCore::new(name.clone())?;
        let door = listener.serve(core.address())?;
        let served = Arc::clone(&core);
        let service = thread::Builder::new()
            .name("hydrant-mooncake".to_owned())
            .spawn(move || served.serve());
        let service = service.map_err(|cause| {
            let text = format!("the thread of the engine cannot be started: {cause}");
            EngineFailure::new(SOCKET, text)
        })?;
        let engine = Self {
            core,
            segments: PeerSegments::new(&name),
            batches: RwLock::default(),
            has_transport: AtomicBool::new(discovers),
            threads: Mutex::new(Some(EngineThreads { door, service })),
            creator: process::id(),
        };
        static NEXT: AtomicUsize = AtomicUsize::new(STEP);
        let number = NEXT.fetch_add(STEP, Relaxed);
        ENGINES.write().insert(number, Arc::new(engine));
        Ok(std::ptr::without_provenance_mut(number))
    }

    /// Returns the engine with a number.
    ///
    /// # Errors
    /// If there is none, because it was destroyed, or never was.
    pub(crate) fn get(number: *mut c_void) -> Result<Arc<Self>> {
        let found = ENGINES.read().get(&number.addr()).cloned();
        found.ok_or_else(|| no_engine(number))
    }

    /// Destroys an engine. When this returns, nothing of it lands any more, and no peer touches its memory.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(crate) fn destroy(number: *mut c_void) -> Result<()> {
        let removed = ENGINES.write().remove(&number.addr());
        let engine = removed.ok_or_else(|| no_engine(number))?;
        if engine.creator != process::id() {
            // Memory, peers and threads are the parent's.
            std::mem::forget(engine);
            return Ok(());
        }
        engine.close();
        Ok(())
    }

    fn close(&self) {
        let Some(EngineThreads { door, service }) = self.threads.lock().take() else {
            return;
        };
        drop(door);
        // The drop of a transfer waits until nothing of it lands any more.
        let batches = std::mem::take(&mut *self.batches.write());
        drop(batches);
        self.segments.clear();
        self.core.close();
        let _ = service.join();
        self.core.memory.clear();
    }

    /// Gives the engine a transport. Returns its number.
    pub(crate) fn install_transport(&self, engine: *mut c_void) -> *mut c_void {
        self.has_transport.store(true, SeqCst);
        engine.wrapping_byte_add(TRANSPORT)
    }

    pub(crate) fn has_transport(&self) -> bool {
        self.has_transport.load(SeqCst)
    }

    /// Makes a batch, and returns its number, which no other engine of this process gives out.
    pub(crate) fn add_batch(&self, capacity: usize) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Relaxed);
        let batch = Arc::new(TaskBatch::new(capacity));
        self.batches.write().insert(number, batch);
        number
    }

    /// Returns the batch with a number.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn batch(&self, number: u64) -> Result<Arc<TaskBatch>> {
        let found = self.batches.read().get(&number).cloned();
        found.ok_or_else(|| no_batch(number))
    }

    /// Frees a batch whose tasks have ended.
    ///
    /// # Errors
    /// If there is none, or BUSY.
    pub(crate) fn free_batch(&self, number: u64) -> Result<()> {
        let mut batches = self.batches.write();
        let batch = batches.get(&number).ok_or_else(|| no_batch(number))?;
        batch.check_over()?;
        let freed = batches.remove(&number);
        drop(batches);
        drop(freed);
        Ok(())
    }

    /// Describes the engine's connections, for people or as JSON.
    pub(crate) fn describe(&self, as_json: bool) -> String {
        let segments = self.segments.all();
        let (ranges, bytes) = self.core.memory.sum();
        let (unread, refused) = self.core.notifications.counts();
        let mut text = String::new();
        if as_json {
            let links: Vec<String> = (segments.iter())
                .map(|segment| {
                    let (name, is_up) = (json(&segment.name), segment.is_connected());
                    let number = segment.number;
                    format!("{{\"segment\":{number},\"name\":{name},\"connected\":{is_up}}}")
                })
                .collect();
            let _ = write!(
                text,
                "{{\"engine\":{},\"registered\":{ranges},\"registered_bytes\":{bytes},\"peers\":{},\
                 \"notifications\":{unread},\"notifications_refused\":{refused},\"links\":[{}]}}",
                json(&self.core.name),
                self.core.endpoint.peers().len(),
                links.join(",")
            );
            return text;
        }
        let _ = writeln!(
            text,
            "engine {}: {ranges} registered ranges of {bytes} bytes, {} connected peers, {unread} notifications, \
             {refused} refused",
            self.core.name,
            self.core.endpoint.peers().len()
        );
        for segment in segments {
            let state = match segment.is_connected() {
                true => "connected",
                false => "not connected",
            };
            let _ = writeln!(text, "segment {} {}: {state}", segment.number, segment.name);
        }
        text
    }
}

/// Returns a text as JSON.
fn json(text: &str) -> String {
    let mut to = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => to.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(to, "\\u{:04x}", u32::from(letter));
            }
            letter => to.push(letter),
        }
    }
    to.push('"');
    to
}

#[cold]
fn no_engine(number: *mut c_void) -> EngineFailure {
    let number = number.addr();
    EngineFailure::argument(match number {
        0 => "the engine is null".to_owned(),
        _ => format!("there is no engine {number:#x}: it was destroyed, or never created"),
    })
}

#[cold]
fn no_batch(number: u64) -> EngineFailure {
    let text = match number {
        INVALID_BATCH => "the batch is INVALID_BATCH".to_owned(),
        _ => format!("this engine has no batch {number}: it was freed, or never allocated"),
    };
    EngineFailure::new(INVALID_ARGUMENT, text)
}
