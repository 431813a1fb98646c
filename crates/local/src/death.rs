//! Words that tell at once when a process dies.
//!
//! The kernel closes the sockets of a killed process, and tells those who watch it, only after it has freed the process's
//! memory. With many gigabytes that takes long. But each dying thread first marks the *robust futexes* that it holds, and
//! wakes their waiters (`set_robust_list(2)`). So a thread of each endpoint holds a word of the area of each connection,
//! and a thread of the peer waits for the mark.
//!
//! The list of held words leads through the areas, so a peer can damage it. The kernel checks each address, and gives up.
//! A mark that does not come is no harm: the end of the process is told later.

#![allow(unsafe_code)] // a system call, and words of areas that are kept

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;
use rustix::thread::futex;

use crate::{LocalLink, alive::OFFSET};

/// The most words that one thread waits for. The kernel takes 128, and one wakes the thread.
const MOST: usize = 127;

/// The head of a list, as the kernel reads it.
#[derive(Debug)]
#[repr(C)]
struct ListHead {
    first: AtomicU64,
    offset: isize,
    /// The link that is being added or removed.
    pending: AtomicU64,
}

/// The words that a thread holds, until this is dropped by that thread.
#[derive(Debug)]
pub struct HeldWords {
    head: Box<ListHead>,
    /// The connections whose words are in the list, from the first on.
    links: Vec<Arc<LocalLink>>,
    thread: u32,
}

impl HeldWords {
    /// Makes the list of this thread. It replaces that of the C library.
    ///
    /// # Safety
    /// 1. The list is used and dropped by this thread.
    /// 2. The thread uses no robust mutexes of the C library.
    pub unsafe fn of_this_thread() -> Self {
        let head = Box::new(ListHead {
            first: AtomicU64::new(0),
            offset: OFFSET,
            pending: AtomicU64::new(0),
        });
        head.first.store(address(&*head), Relaxed);
        // SAFETY: the head stays where it is until the list is taken back by this thread, or the thread ends with its
        // process. The kernel reads it when the thread dies, and checks each address.
        let set = unsafe {
            libc::syscall(
                libc::SYS_set_robust_list,
                ptr::from_ref(&*head),
                size_of::<ListHead>(),
            )
        };
        if set != 0 {
            tracing::debug!(
                "peers hear of a sudden death only after this process's memory is freed"
            );
        }
        Self {
            head,
            links: Vec::new(),
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u32,
        }
    }

    /// Holds the own word of a connection.
    pub fn hold(&mut self, link: Arc<LocalLink>) {
        let word = link.own_alive();
        self.head.pending.store(address(word), Release);
        word.next.store(self.head.first.load(Relaxed), Relaxed);
        word.holder.store(self.thread, Release);
        self.head.first.store(address(word), Release);
        self.head.pending.store(0, Release);
        // A peer may wait for a word that nobody held.
        wake(&word.holder);
        self.links.insert(0, link);
    }

    /// Holds the word of a connection no more.
    pub fn release(&mut self, link: &LocalLink) {
        let is_it = |held: &Arc<LocalLink>| ptr::eq(&**held, link);
        let Some(place) = self.links.iter().position(is_it) else {
            return;
        };
        let word = link.own_alive();
        self.head.pending.store(address(word), Release);
        // A peer may have written into the link of its word. The order is known without.
        let next = match self.links.get(place + 1) {
            Some(next) => address(next.own_alive()),
            None => address(&*self.head),
        };
        match place.checked_sub(1) {
            Some(before) => self.links[before].own_alive().next.store(next, Release),
            None => self.head.first.store(next, Release),
        }
        word.holder.store(0, Release);
        self.head.pending.store(0, Release);
        wake(&word.holder);
        self.links.remove(place);
    }
}

impl Drop for HeldWords {
    fn drop(&mut self) {
        let none = ptr::null::<ListHead>();
        // SAFETY: no list is an empty one. This is the thread that made it, by the condition of `of_this_thread`.
        unsafe { libc::syscall(libc::SYS_set_robust_list, none, size_of::<ListHead>()) };
        for link in &self.links {
            link.own_alive().holder.store(0, Release);
            wake(&link.own_alive().holder);
        }
    }
}

fn address<T>(of: &T) -> u64 {
    ptr::from_ref(of).expose_provenance() as u64
}

fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), u32::MAX);
}

/// Threads that wait for the deaths of peers.
pub struct DeathWatch {
    shared: Arc<WatchShared>,
}

struct WatchShared {
    groups: Mutex<Vec<Arc<WatchGroup>>>,
    told: Box<dyn Fn(u64) + Send + Sync>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The connections that one thread watches.
struct WatchGroup {
    watched: Mutex<Vec<(u64, Arc<LocalLink>)>>,
    /// Changed to wake the thread.
    changes: AtomicU32,
    is_over: AtomicBool,
}

impl DeathWatch {
    /// Makes a watch that calls `told` with the number of each connection whose peer has died.
    pub fn new(told: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(WatchShared {
                groups: Mutex::default(),
                told: Box::new(told),
                threads: Mutex::default(),
            }),
        }
    }

    /// Watches the peer of a connection.
    pub fn add(&self, number: u64, of: Arc<LocalLink>) {
        let mut groups = self.shared.groups.lock();
        for group in groups.iter() {
            let mut watched = group.watched.lock();
            if watched.len() < MOST {
                watched.push((number, of));
                drop(watched);
                return group.wake();
            }
        }
        let group = Arc::new(WatchGroup {
            watched: Mutex::new(vec![(number, of)]),
            changes: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        });
        let (shared, watching) = (Arc::clone(&self.shared), Arc::clone(&group));
        let started = thread::Builder::new()
            .name("hydrant-alive".to_owned())
            .stack_size(64 << 10)
            .spawn(move || watching.run(&*shared.told));
        match started {
            Ok(thread) => {
                self.shared.threads.lock().push(thread);
                groups.push(group);
            }
            // The end of the process is told later.
            Err(cause) => tracing::debug!(%cause, "no thread to watch peers"),
        }
    }

    /// Watches the peer of a connection no more.
    pub fn remove(&self, number: u64) {
        for group in self.shared.groups.lock().iter() {
            let mut watched = group.watched.lock();
            if let Some(place) = watched.iter().position(|(other, _)| *other == number) {
                watched.swap_remove(place);
                drop(watched);
                return group.wake();
            }
        }
    }
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        for group in self.shared.groups.lock().drain(..) {
            group.is_over.store(true, Release);
            group.wake();
        }
        for thread in self.shared.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl WatchGroup {
    fn wake(&self) {
        self.changes.fetch_add(1, Release);
        wake(&self.changes);
    }

    fn run(&self, told: &(dyn Fn(u64) + Send + Sync)) {
        let mut waiters: Vec<futex::Wait> = Vec::new();
        loop {
            let changes = self.changes.load(Acquire);
            if self.is_over.load(Acquire) {
                return;
            }
            // The connections are kept while the kernel uses their words.
            let kept: Vec<(u64, Arc<LocalLink>)> = {
                let mut watched = self.watched.lock();
                watched.retain(|(number, of)| {
                    let has_died = of.peer_alive().has_died();
                    if has_died {
                        told(*number);
                    }
                    !has_died
                });
                watched.clone()
            };
            waiters.clear();
            waiters.push(waiter(&self.changes, changes));
            for (_, of) in &kept {
                let word = of.peer_alive();
                waiters.push(waiter(&word.holder, word.prepare()));
            }
            let waited = futex::waitv(
                &waiters,
                futex::WaitvFlags::empty(),
                None,
                rustix::thread::ClockId::Monotonic,
            );
            if waited == Err(rustix::io::Errno::NOSYS) {
                // Linux before 5.16. The end of the process is told later.
                return;
            }
        }
    }
}

fn waiter(word: &AtomicU32, value: u32) -> futex::Wait {
    let mut waiter = futex::Wait::new();
    waiter.val = value.into();
    waiter.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
    waiter.flags = futex::WaitFlags::SIZE_U32;
    waiter
}
