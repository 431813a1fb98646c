//! Endpoints, as users hold them.

#![allow(unsafe_code)] // makes windows of lent memory

use std::{
    env, fmt,
    future::poll_fn,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::Arc,
    task::Waker,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hydrant_conduit::{Error as ConduitError, Window, descriptors};
use hydrant_fabric::{FabricOptions, FabricPeers};
use hydrant_local::{LocalListener, MappedMemory, proof};
use parking_lot::Mutex;

use crate::{
    Address, EndpointEvent, Error, MAX_NAME, Peer, Region, Result,
    address::Way,
    far::FarSide,
    lent::RegionCore,
    network::FarSink,
    owned::OwnedBytes,
    promise::Promise,
    service::Service,
    state::{EndpointCommand, EndpointState, wake},
    workers::is_own_thread,
};

/// The peers for which descriptors are provided, if the system allows so many.
const MANY_PEERS: u64 = 1024;

/// The choices of a new endpoint.
#[derive(Clone, Debug)]
pub struct EndpointBuilder {
    name: String,
    peer_timeout: Duration,
    hosts: Option<HostsOptions>,
}

/// How an endpoint uses the network.
///
/// The members have defaults: `HostsOptions::default()` uses the interface of the default route, and any port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostsOptions {
    /// The network interfaces that may be used: names, addresses or networks, with commas between; empty for any.
    pub interface: String,
    /// The provider of libfabric; empty for the best one. It has to be one over TCP.
    pub provider: String,
    /// The port to listen at; 0 for any.
    pub port: u16,
    /// The most bytes of lent memory that are registered at a time; `None` for no limit.
    pub registered: Option<u64>,
    /// True if the endpoint is to be of one host where there is no such network, instead of an error.
    pub optional: bool,
}

impl HostsOptions {
    /// Returns the default, with the interfaces and the provider of jobs: those of the variables `HYDRANT_OFI_INTERFACE`
    /// and `HYDRANT_OFI_PROVIDER`.
    pub fn from_env() -> Self {
        Self {
            interface: env::var("HYDRANT_OFI_INTERFACE").unwrap_or_default(),
            provider: env::var("HYDRANT_OFI_PROVIDER").unwrap_or_default(),
            ..Self::default()
        }
    }
}

impl EndpointBuilder {
    /// Sets the name by which peers know the endpoint; it is empty by default. An endpoint that is started again under the
    /// same name is an [incarnation](crate::EndpointEvent::Returned) of the same.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how long calls wait for a peer; 3 seconds by default.
    pub fn peer_timeout(mut self, timeout: Duration) -> Self {
        self.peer_timeout = timeout;
        self
    }

    /// Lets peers of other hosts connect, and this endpoint connect to them: by libfabric, over TCP. Peers of the same host
    /// still reach each other by memory.
    ///
    /// ```no_run
    /// use hydrant_endpoint::{Endpoint, HostsOptions};
    ///
    /// let hosts = HostsOptions {
    ///     interface: "10.0.0.0/8".to_owned(),
    ///     ..HostsOptions::default()
    /// };
    /// let server = Endpoint::builder().name("pages").hosts(hosts).listen()?;
    /// println!("{}", server.address());
    /// # Ok::<(), hydrant_endpoint::Error>(())
    /// ```
    pub fn hosts(mut self, options: HostsOptions) -> Self {
        self.hosts = Some(options);
        self
    }

    /// Starts the endpoint.
    ///
    /// # Errors
    /// [`Error::NameTooLong`], [`Error::System`] for instance if no descriptors are left.
    pub fn listen(self) -> Result<Endpoint> {
        if self.name.len() > MAX_NAME {
            return Err(Error::NameTooLong {
                len: self.name.len(),
                limit: MAX_NAME,
            });
        }
        // A socket, and a descriptor that tells of the end of the process.
        descriptors::allow(MANY_PEERS, 2);
        let key = proof::fresh()?;
        let drawn = proof::fresh()?;
        let incarnation = drawn.first_chunk().copied().map_or(0, u64::from_le_bytes) | 1;
        let listener = LocalListener::open(key)?;
        let sink = Arc::new(FarSink::default());
        let mut ways = vec![Way::Local(listener.name())];
        let far = match &self.hosts {
            None => None,
            Some(hosts) => match self.listen_far(hosts, key, &sink) {
                Ok(far) => Some(Arc::new(far)),
                Err(why) if hosts.optional => {
                    tracing::info!(%why, "the endpoint is of this host only");
                    None
                }
                Err(why) => return Err(why),
            },
        };
        ways.extend(far.as_ref().map(|far| Way::Far(far.locator())));
        let address = Address {
            incarnation,
            key,
            name: self
                .name
                .chars()
                .filter(|char| !char.is_control())
                .collect(),
            ways,
        };
        let state = EndpointState::new(
            address,
            proof::fresh()?,
            self.peer_timeout,
            FarSide::new(far),
        )?;
        sink.set(&state);
        let service = Service::new(Arc::clone(&state), listener)?;
        let thread = thread::Builder::new()
            .name("hydrant-endpoint".to_owned())
            .spawn(move || service.run())
            .map_err(|cause| ConduitError::system("starting the endpoint's thread", cause))?;
        Ok(Endpoint {
            handle: Arc::new(EndpointHandle {
                state,
                thread: Mutex::new(Some(thread)),
            }),
        })
    }

    /// Listens on the network.
    ///
    /// # Errors
    /// [`Error::System`].
    fn listen_far(
        &self,
        hosts: &HostsOptions,
        key: proof::Bytes16,
        sink: &Arc<FarSink>,
    ) -> Result<FabricPeers> {
        let options = FabricOptions {
            provider: hosts.provider.clone(),
            interface: hosts.interface.clone(),
            port: hosts.port,
            registered: hosts.registered,
            peer_timeout: self.peer_timeout,
            connect_timeout: self.peer_timeout,
            ..FabricOptions::default()
        };
        Ok(FabricPeers::listen(&options, key, Arc::clone(sink) as _)?)
    }
}

/// A process that lends memory, and uses that of its peers.
///
/// The handle can be cloned and used by any thread. Once the last clone is dropped, or by [`close`](Self::close), the
/// endpoint leaves: its peers hear of it, and their operations on its memory fail.
#[derive(Clone)]
pub struct Endpoint {
    handle: Arc<EndpointHandle>,
}

struct EndpointHandle {
    state: Arc<EndpointState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EndpointHandle {
    fn close(&self) {
        if self.state.check_origin().is_err() || !self.state.close() {
            return;
        }
        let (state, service) = (Arc::clone(&self.state), self.thread.lock().take());
        let close = move || {
            state.workers.end();
            state.commands.push(EndpointCommand::Close);
            if let Some(service) = service {
                let _ = service.join();
            }
            state.far.close();
            state.wake_rest();
            state.events.close().into_iter().for_each(wake);
        };
        if !is_own_thread() {
            return close();
        }
        // A task that was woken here, or dropped, had the last handle. No thread can wait for its own end.
        let closer = thread::Builder::new().name("hydrant-close".to_owned());
        if let Err(cause) = closer.spawn(close) {
            tracing::error!(%cause, "an endpoint is not closed");
        }
    }
}

impl Drop for EndpointHandle {
    fn drop(&mut self) {
        self.close();
    }
}

impl Endpoint {
    /// Begins to make an endpoint.
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder {
            name: String::new(),
            peer_timeout: Duration::from_secs(3),
            hosts: None,
        }
    }

    fn state(&self) -> &Arc<EndpointState> {
        &self.handle.state
    }

    /// Returns the address, which others need to connect.
    pub fn address(&self) -> &Address {
        &self.state().address
    }

    /// Connects to another endpoint, or returns the peer if it is connected. Both may connect at once; one connection is
    /// made. Waits as long as [`EndpointBuilder::peer_timeout`] says.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the reason, [`Error::OwnAddress`], [`Error::Closed`], [`Error::Forked`],
    /// [`Error::System`].
    pub fn connect(&self, address: &Address) -> Result<Peer> {
        let (entry, _) = self.state().connect(address, self.state().patience)?;
        Ok(Peer::new(Arc::clone(self.state()), entry))
    }

    /// As [`connect`](Self::connect), as a task. A thread of its own connects, also if the task is dropped.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_async(&self, address: &Address) -> Result<Peer> {
        self.state().check_open()?;
        let outcome = Promise::new();
        let (promise, state, address) = (
            Arc::clone(&outcome),
            Arc::clone(self.state()),
            address.clone(),
        );
        thread::Builder::new()
            .name("hydrant-connect".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                let connected = state.connect(&address, state.patience);
                let peer = connected.map(|(entry, _)| Peer::new(Arc::clone(&state), entry));
                let _ = promise.keep(peer);
                promise.take_waker().into_iter().for_each(Waker::wake);
            })
            .map_err(|cause| ConduitError::system("starting a thread to connect", cause))?;
        poll_fn(|context| outcome.poll(context)).await
    }

    /// Returns the peer of an address, without a connection. It costs a few hundred bytes.
    ///
    /// # Errors
    /// [`Error::OwnAddress`], [`Error::Closed`], [`Error::Forked`].
    pub fn peer(&self, address: &Address) -> Result<Peer> {
        self.state().check_open()?;
        if address.incarnation == self.state().incarnation {
            return Err(Error::OwnAddress);
        }
        let entry = self.state().peers.of(address);
        Ok(Peer::new(Arc::clone(self.state()), entry))
    }

    /// Returns the connected peers.
    pub fn peers(&self) -> Vec<Peer> {
        let entries = self.state().peers.up().into_iter();
        entries
            .map(|(entry, _)| Peer::new(Arc::clone(self.state()), entry))
            .collect()
    }

    /// Lends new, zeroed memory of `len` bytes. Peers of this host map it, so that their copies need no system call. Its
    /// pages are there at once.
    ///
    /// # Errors
    /// [`Error::System`] if there is not so much memory; [`Error::Closed`], [`Error::Forked`].
    pub fn alloc(&self, len: usize) -> Result<Region> {
        self.state().check_open()?;
        let memory = MappedMemory::new(len)?;
        let file = memory.file().try_clone_to_owned();
        let file = file.map_err(|cause| ConduitError::system("keeping a file open", cause))?;
        Ok(self.add(memory.window().clone(), Some(Arc::new(file)), None))
    }

    /// Lends a buffer. [`Region::take_back`] returns it.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn expose(&self, buffer: Vec<u8>) -> Result<Region> {
        self.state().check_open()?;
        let (owned, window) = OwnedBytes::new(buffer);
        Ok(self.add(window, None, Some(owned)))
    }

    /// Lends a borrowed buffer while `during` runs. When this returns, also by a panic, the region is revoked.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    ///
    /// ```
    /// use hydrant_endpoint::{Endpoint, Rights};
    ///
    /// let owner = Endpoint::builder().listen()?;
    /// let user = Endpoint::builder().listen()?;
    /// let peer = user.connect(owner.address())?;
    /// let mut buffer = vec![0; 100];
    /// owner.expose_during(&mut buffer, |region| {
    ///     let remote = peer.open(&region.descriptor(Rights::WRITE))?;
    ///     remote.write(99, &[7])
    /// })??;
    /// assert_eq!(buffer[99], 7);
    /// # Ok::<(), hydrant_endpoint::Error>(())
    /// ```
    pub fn expose_during<R>(
        &self,
        buffer: &mut [u8],
        during: impl FnOnce(&Region) -> R,
    ) -> Result<R> {
        /// Revokes the region at the end of the scope.
        struct Revoke<'a>(&'a Arc<RegionCore>, &'a Arc<EndpointState>);
        impl Drop for Revoke<'_> {
            fn drop(&mut self) {
                self.1.regions.revoke(self.0);
                // Without a limit there is no error.
                let _ = self.0.wait_unused(None);
            }
        }
        let base = NonNull::from(&mut *buffer).cast::<u8>();
        base.as_ptr().expose_provenance();
        // SAFETY: 1. to 3. of `expose_raw`: the buffer is borrowed mutably until this returns, and initialized. The region
        // is revoked by then, after which clones of it fail.
        let region = unsafe { self.expose_raw(base.as_ptr(), buffer.len())? };
        let _revoke = Revoke(&region.handle.core, self.state());
        Ok(during(&region))
    }

    /// Lends any memory, of any length, without touching it.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    ///
    /// # Safety
    /// Until the region is revoked:
    /// 1. Memory that peers, or this process by the region, access is initialized. An access to memory that is not mapped
    ///    is an error for peers, but not for this process.
    /// 2. Nobody holds a reference to memory that peers access. All accesses of this process are atomic, or by the region,
    ///    or outside the compiler's view.
    /// 3. The memory may change by the writes of those who get a descriptor with that right.
    ///
    /// # Panics
    /// If `base` is null.
    pub unsafe fn expose_raw(&self, base: *mut u8, len: usize) -> Result<Region> {
        self.state().check_open()?;
        let base = NonNull::new(base).expect("lent memory does not begin at address 0");
        base.as_ptr().expose_provenance();
        // SAFETY: 1. to 3. the caller's conditions. Nobody uses the window after the revocation.
        let window = unsafe { Window::new(base, len, Arc::new(())) };
        Ok(self.add(window, None, None))
    }

    fn add(
        &self,
        window: Window,
        file: Option<Arc<std::os::fd::OwnedFd>>,
        owned: Option<Arc<OwnedBytes>>,
    ) -> Region {
        let state = self.state();
        let core = RegionCore::new(state.fresh_number(), window, file);
        state.regions.add(&core);
        Region::new(state, core, owned)
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`Error::Closed`] if the endpoint is closed and all events were read; [`Error::Forked`].
    pub fn next_event(&self) -> Result<EndpointEvent> {
        self.state().check_origin()?;
        let news = self.state().events.wait(None);
        Ok(EndpointEvent::new(self.state(), news.ok_or(Error::Closed)?))
    }

    /// Waits for the next event, at most so long. Returns `None` if there was none.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub fn next_event_within(&self, patience: Duration) -> Result<Option<EndpointEvent>> {
        self.state().check_origin()?;
        let deadline = Instant::now().checked_add(patience);
        match self.state().events.wait(deadline) {
            Some(news) => Ok(Some(EndpointEvent::new(self.state(), news))),
            None if self.state().is_closed() => Err(Error::Closed),
            None => Ok(None),
        }
    }

    /// Returns an event if there is one.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn try_event(&self) -> Result<Option<EndpointEvent>> {
        self.state().check_origin()?;
        let news = self.state().events.take();
        Ok(news.map(|news| EndpointEvent::new(self.state(), news)))
    }

    /// Waits for the next event, as a task.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub async fn event_async(&self) -> Result<EndpointEvent> {
        self.state().check_origin()?;
        let news = poll_fn(|context| self.state().events.poll(context)).await;
        Ok(EndpointEvent::new(self.state(), news.ok_or(Error::Closed)?))
    }

    /// Returns a descriptor for `poll` or `epoll` that is readable while there are events. It is only to be polled: the
    /// events are read by [`try_event`](Self::try_event).
    ///
    /// # Errors
    /// [`Error::System`] if no descriptors are left; [`Error::Forked`].
    pub fn event_descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.state().check_origin()?;
        self.state().events.descriptor()
    }

    /// Closes the endpoint: peers hear that it has left. Operations under way end, and later ones fail. Regions can be
    /// read and written here until they are dropped. If a waker of a task calls this, the endpoint is closed later.
    pub fn close(&self) {
        self.handle.close();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address();
        write!(
            f,
            "Endpoint({:?}, {:016x})",
            address.name(),
            address.incarnation()
        )
    }
}
