//! Active messages and remote calls, on the job.

use std::{any::type_name_of_val, panic::Location, sync::Arc, thread};

use hydrant_conduit::Message;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    CallHandle, Error, Function, Handler, HandlerContext, Job, Limits, Pod, Rank, Result,
    Symmetric,
    collective::CollectiveKind,
    message::{
        HandlerFn, HandlerName, HandlerSignature, call,
        request::{self, check_handler, long_args},
        serve,
    },
    progress::{self, Progress, kind},
};

impl Job {
    /// Runs `handler` on `rank` with arguments alone. Returns when the message is in flight.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::TooManyArgs`], [`Error::ForeignHandle`],
    /// [`Error::PeerLost`], [`Error::JobOver`]; in a handler [`Error::OnwardFull`].
    #[inline]
    pub fn request_short(&self, rank: Rank, handler: Handler, args: &[u64]) -> Result<()> {
        self.request_medium(rank, handler, args, &[])
    }

    /// Runs `handler` on `rank` with arguments and a payload. The payload is copied before this
    /// returns.
    ///
    /// # Errors
    /// As [`request_short`](Self::request_short); [`Error::MessageTooLong`].
    #[inline]
    pub fn request_medium(
        &self,
        rank: Rank,
        handler: Handler,
        args: &[u64],
        payload: &[u8],
    ) -> Result<()> {
        let progress = self.progress();
        check_handler(handler, progress)?;
        let message = Message {
            kind: kind::USER,
            tag: handler.number,
            args,
            payload,
        };
        request::send(progress, rank, &message)
    }

    /// Puts `data` into symmetric memory of `rank`, then runs `handler` there. The index of the
    /// first element and the number of elements follow its arguments.
    ///
    /// # Errors
    /// As [`request_short`](Self::request_short) and [`Symmetric::put`].
    pub fn request_long<T: Pod>(
        &self,
        rank: Rank,
        handler: Handler,
        args: &[u64],
        memory: &Symmetric<T>,
        index: usize,
        data: &[T],
    ) -> Result<()> {
        progress::may_wait("request_long")?;
        let args = long_args(args, index, data.len(), self.progress())?;
        // Checked before the data is put, because the request must not fail afterwards.
        check_handler(handler, self.progress())?;
        memory.block().check_job(self.progress().id)?;
        memory.put(rank, index, data)?;
        self.request_short(rank, handler, &args)
    }

    /// Waits until every request that this rank has sent so far was handled, those of its handlers
    /// included, and until their replies were handled. It also waits until every [one-way
    /// call](Self::call_one_way) has run, for arguments of any length. An
    /// [`async_function`](Self::async_function) called this way has begun by then. To wait for
    /// calls with results, use their handles.
    ///
    /// # Errors
    /// The first failure that a target has reported since the last call: [`Error::UnknownHandler`],
    /// [`Error::HandlerPanicked`]. Also [`Error::PeerLost`].
    pub fn am_quiet(&self) -> Result<()> {
        progress::may_wait("am_quiet")?;
        let core = self.active()?;
        let progress = &core.progress;
        core.messages.calls().finish_one_way(progress)?;
        core.messages.wait_until_replied(progress)?;
        self.core().messages.failure().map_or(Ok(()), Err)
    }

    /// Delivers messages that have arrived, some of each peer at a time. Returns how many there
    /// were. Needed only without the service thread. It delivers none when the job is over, and
    /// none in a handler. If there are more ranks than cores, a poll that delivers nothing yields,
    /// because the sender may need this core.
    pub fn poll(&self) -> usize {
        let Ok(core) = self.active() else { return 0 };
        if progress::may_wait("a poll").is_err() {
            // A poll holds its messages until the handler returns.
            return 0;
        }
        let delivered = core.progress.make_progress();
        if delivered == 0 && core.progress.is_crowded() {
            thread::yield_now();
        }
        delivered
    }

    /// Registers a handler for requests and replies. Collective: every rank registers the same
    /// handlers in the same order. When this returns, every rank has the handler.
    ///
    /// The handler gets its [context](HandlerContext), the arguments and the payload. It may reply,
    /// access memory directly, send requests, and begin calls and operations, but it may not wait.
    /// A handler keeps a handle of the job only [weakly](Self::downgrade).
    ///
    /// # Errors
    /// [`Error::TooManyHandlers`], [`Error::CollectiveMismatch`], [`Error::PeerLost`].
    #[track_caller]
    pub fn handler(
        &self,
        handler: impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static,
    ) -> Result<Handler> {
        let called = type_name_of_val(&handler);
        self.register(&HandlerSignature::of_handler(), called, Box::new(handler))
    }

    /// Registers a handler with its signature and its Rust name. Collective.
    #[track_caller]
    fn register(&self, said: &str, called: &'static str, handler: HandlerFn) -> Result<Handler> {
        let site = Location::caller();
        progress::may_wait("handler")?;
        let core = self.core();
        let collective = self.world().begin_collective(CollectiveKind::Handler)?;
        let number = core.messages.next_number()?;
        let ours = HandlerSignature::new(number, said);
        for (rank, theirs) in self.ranks().zip(collective.all_gather(&ours)?) {
            if theirs != ours {
                return Err(Error::CollectiveMismatch {
                    operation: "handler",
                    rank,
                    theirs: theirs.describe(),
                    own: core.progress.rank,
                    ours: ours.describe(),
                });
            }
        }
        core.messages
            .register(number, HandlerName { called, site }, handler)?;
        // A peer may send to the handler from here on.
        collective.barrier()?;
        Ok(Handler {
            number,
            job: core.progress.id,
        })
    }

    /// Returns the handler with a [number](Handler::number), if it was registered: for programs in which a number
    /// stands for a handler. A peer may send to a handler before its registration has returned here.
    pub fn handler_numbered(&self, number: u16) -> Option<Handler> {
        let job = self.progress().id;
        (self.core().messages.is_registered(number)).then_some(Handler { number, job })
    }

    /// Returns how much messages carry.
    pub fn limits(&self) -> Limits {
        let caps = self.progress().conduit().caps();
        Limits {
            max_args: caps.max_args,
            max_args_long: caps.max_args - 2,
            max_medium: caps.max_payload,
            max_long: self.settings().heap,
        }
    }

    /// Registers a function for remote calls. Collective, like [`handler`](Self::handler): ranks
    /// also compare the function's Rust name and its types. The function gets the calling rank, and
    /// runs as a handler: it may send and begin operations, but not wait. A function that calls
    /// onward and needs the answer is an [`async_function`](Self::async_function).
    ///
    /// # Errors
    /// As [`handler`](Self::handler).
    #[track_caller]
    pub fn function<A, R>(
        &self,
        function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
    ) -> Result<Function<A, R>>
    where
        A: DeserializeOwned + 'static,
        R: Serialize + 'static,
    {
        let called = type_name_of_val(&function);
        let said = HandlerSignature::of_function::<A, R>(called);
        let handler = self.register(&said, called, Box::new(serve::serve(function)))?;
        Ok(Function::of(handler))
    }

    /// Registers a function that returns a future. The future is awaited at the called rank, and
    /// may await calls of further ranks, operations, or other threads. The caller gets the result
    /// as for any function. Collective, like [`function`](Self::function).
    ///
    /// Polls of the rank run the future, as they run handlers: it may wait only by `await`. A
    /// one-way call counts as handled when the future was made; a later panic of the future is only
    /// logged. A future that has not ended when the job does is dropped. A caller that still has
    /// the handle [waits](Self::finalize) for its end first.
    ///
    /// The function should keep a handle of the job only [weakly](Self::downgrade).
    ///
    /// ```
    /// # fn main() -> hydrant::Result<()> {
    /// # hydrant::Job::builder()?.run_local(3, |job| {
    /// let weight = job.function(|_, n: u64| 10 * n)?;
    /// let here = job.downgrade();
    /// let sum = job.async_function(move |_, n: u64| {
    ///     let onward = here.upgrade().map(|job| job.call_nb(job.right(), &weight, &n));
    ///     async move {
    ///         let there = onward?.ok()?.await.ok()?;
    ///         Some(there + n)
    ///     }
    /// })?;
    /// assert_eq!(job.call(job.right(), &sum, &4)?, Some(44));
    /// # job.barrier()
    /// # }).into_iter().collect()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`handler`](Self::handler).
    #[track_caller]
    pub fn async_function<A, R, F>(
        &self,
        function: impl Fn(Rank, A) -> F + Send + Sync + 'static,
    ) -> Result<Function<A, R>>
    where
        A: DeserializeOwned + 'static,
        R: Serialize + 'static,
        F: Future<Output = R> + Send + 'static,
    {
        let called = type_name_of_val(&function);
        let said = HandlerSignature::of_function::<A, R>(called);
        let handler = serve::serve_async(function);
        let handler = self.register(&said, called, Box::new(handler))?;
        Ok(Function::of(handler))
    }

    /// Calls `function` on `rank` and waits for its result. An argument or result may take more
    /// than [`Limits::max_medium`] bytes when it is [encoded](crate::encoded_len). Then its owner
    /// exposes it and the other side gets it. That costs some more messages, and the data is in
    /// memory twice meanwhile.
    ///
    /// # Errors
    /// [`Error::HandlerPanicked`] if the function panicked, [`Error::Codec`] if an argument or
    /// result cannot be encoded, decoded or got, and as [`request_short`](Self::request_short).
    pub fn call<A, R>(&self, rank: Rank, function: &Function<A, R>, argument: &A) -> Result<R>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        progress::may_wait("call")?;
        let id = self.begin_call(rank, function, call::encoded(argument)?)?;
        let answer = (self.core().messages.calls()).wait(self.progress(), rank, id)?;
        call::result_of(&answer)
    }

    /// Begins to call `function` on `rank`. The argument is copied before this returns.
    ///
    /// # Errors
    /// As [`call`](Self::call), for errors found at once. The handle reports the others.
    pub fn call_nb<A, R>(
        &self,
        rank: Rank,
        function: &Function<A, R>,
        argument: &A,
    ) -> Result<CallHandle<R>>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        self.call_encoded(rank, function, call::encoded(argument)?)
    }

    /// Begins to call `function` with the same argument on each of `ranks`. The argument is encoded
    /// once. Returns a handle for each rank, in their order.
    ///
    /// # Errors
    /// As [`call_nb`](Self::call_nb). Calls begun before the error go on, but their results are
    /// dropped.
    pub fn call_each<A, R>(
        &self,
        ranks: impl IntoIterator<Item = Rank>,
        function: &Function<A, R>,
        argument: &A,
    ) -> Result<Vec<CallHandle<R>>>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        let argument = call::encoded(argument)?;
        (ranks.into_iter())
            .map(|rank| self.call_encoded(rank, function, argument.clone()))
            .collect()
    }

    /// Calls `function` on `rank` without a result (UPC++, `rpc_ff`). Returns when the message is
    /// in flight. [`am_quiet`](Self::am_quiet) waits until the function has run, and reports its
    /// panic. An argument of more than [`Limits::max_medium`] bytes is copied before this returns,
    /// and the rank gets it first.
    ///
    /// # Errors
    /// As [`request_medium`](Self::request_medium); [`Error::Codec`].
    pub fn call_one_way<A, R>(
        &self,
        rank: Rank,
        function: &Function<A, R>,
        argument: &A,
    ) -> Result<()>
    where
        A: Serialize,
    {
        let argument = call::encoded(argument)?;
        if argument.len() > self.limits().max_medium {
            let tag = self.handler_of(function)?.number;
            self.progress().check_rank(rank)?;
            return self
                .begin_large_call(rank, tag, argument, AnswerKind::Report)
                .map(drop);
        }
        self.request_medium(rank, self.handler_of(function)?, &[], &argument)
    }

    fn call_encoded<A, R: DeserializeOwned>(
        &self,
        rank: Rank,
        function: &Function<A, R>,
        argument: Vec<u8>,
    ) -> Result<CallHandle<R>> {
        let id = self.begin_call(rank, function, argument)?;
        let calls = self.core().messages.calls();
        Ok(CallHandle::new(self.progress(), calls, rank, id))
    }

    /// Sends a call. Returns its number.
    fn begin_call<A, R>(
        &self,
        rank: Rank,
        function: &Function<A, R>,
        argument: Vec<u8>,
    ) -> Result<u64> {
        let tag = self.handler_of(function)?.number;
        let progress = self.progress();
        progress.check_rank(rank)?;
        progress.check_running()?;
        if argument.len() > progress.conduit().caps().max_payload {
            return self.begin_large_call(rank, tag, argument, AnswerKind::Result);
        }
        self.core().messages.calls().begin(rank, None, |id| {
            let message = Message {
                kind: kind::CALL,
                tag,
                args: &[id],
                payload: &argument,
            };
            request::send(progress, rank, &message)
        })
    }

    /// Lends an argument, and sends a call with the key of the loan. Returns the number of the
    /// call. In a handler, a task does this.
    fn begin_large_call(
        &self,
        rank: Rank,
        tag: u16,
        argument: Vec<u8>,
        answer: AnswerKind,
    ) -> Result<u64> {
        let core = self.active()?;
        let (progress, calls) = (self.progress(), core.messages.calls());
        let len = argument.len() as u64;
        let lending = core.messages.lend(argument);
        let send = move |progress: &Progress, id, key| {
            let args = [id, key, len, 1];
            let message = Message {
                kind: kind::CALL,
                tag,
                args: match answer {
                    AnswerKind::Report => &args,
                    AnswerKind::Result => &args[..3],
                },
                payload: &[],
            };
            request::send(progress, rank, &message)
        };
        if progress::may_wait("lending").is_ok() {
            let (key, lent) = progress::wait_for(progress, lending)??;
            return calls.begin(rank, Some(lent), |id| {
                if let AnswerKind::Report = answer {
                    calls.make_one_way(id);
                }
                send(progress, id, key)
            });
        }
        let id = calls.begin(rank, None, |_| Ok(()))?;
        if let AnswerKind::Report = answer {
            calls.make_one_way(id);
        }
        let (messages, here) = (Arc::clone(&core.messages), progress.weak());
        progress.spawn(async move {
            let lent = lending.await;
            let Some(progress) = here.upgrade() else {
                return;
            };
            let sent = lent.and_then(|(key, lent)| {
                messages.calls().keep(id, lent);
                send(&progress, id, key)
            });
            if let Err(cause) = sent {
                messages.end_call(&progress, rank, id, Err(cause));
            }
        });
        Ok(id)
    }

    /// Returns the handler of a function of this job.
    fn handler_of<A, R>(&self, function: &Function<A, R>) -> Result<Handler> {
        let handler = function.handler();
        if handler.job == self.progress().id {
            Ok(handler)
        } else {
            Err(Error::ForeignHandle { what: "function" })
        }
    }
}

/// The answer that a call brings back.
#[derive(Clone, Copy)]
enum AnswerKind {
    /// Only the report that the function was run or begun.
    Report,
    /// The function's result.
    Result,
}
