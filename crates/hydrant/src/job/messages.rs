//! Active messages and remote calls, on the job.

use hydrant_conduit::Message;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    CallHandle, Error, Function, Handler, HandlerContext, Job, Limits, Pod, Rank, Result,
    Symmetric,
    collective::Operation,
    message::{
        call,
        request::{self, check_handler, long_args},
    },
    progress::{self, kind},
};

impl Job {
    /// Runs `handler` on `rank` with arguments alone. Returns when the message is on its way.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::TooManyArgs`], [`Error::ForeignHandle`],
    /// [`Error::InHandler`], [`Error::PeerLost`].
    #[inline]
    pub fn request_short(&self, rank: Rank, handler: Handler, args: &[u64]) -> Result<()> {
        self.request_medium(rank, handler, args, &[])
    }

    /// Runs `handler` on `rank` with arguments and a payload. The payload is copied before
    /// this returns.
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

    /// Puts `data` into symmetric memory of `rank`, then runs `handler` there: its arguments
    /// are followed by the index of the first element put and their number.
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
        // The message is to go before its data does.
        check_handler(handler, self.progress())?;
        memory.block().check_job(self.progress().id)?;
        memory.put(rank, index, data)?;
        self.request_short(rank, handler, &args)
    }

    /// Waits until every request of this rank was handled, and its replies too.
    ///
    /// # Errors
    /// The first failure that a target reported since the last call:
    /// [`Error::UnknownHandler`], [`Error::HandlerPanicked`]. [`Error::PeerLost`].
    pub fn am_quiet(&self) -> Result<()> {
        progress::may_wait("am_quiet")?;
        let progress = &self.active()?.progress;
        for rank in self.ranks() {
            progress.wait_handled(rank)?;
        }
        // Replies were sent before their requests counted as handled.
        progress.drain();
        self.core().messages.failure().map_or(Ok(()), Err)
    }

    /// Delivers the messages that have arrived; how many there were. Needed only where the
    /// service thread is off. When the job is over there are none.
    pub fn poll(&self) -> usize {
        (self.active()).map_or(0, |core| core.progress.look_round())
    }

    /// Registers a handler for requests and replies. Collective: every rank registers the
    /// same handlers in the same order, and when this returns every rank has it.
    ///
    /// The handler gets its [context](HandlerContext), the arguments and the payload. It may
    /// reply and may use memory directly, but not wait.
    ///
    /// # Errors
    /// [`Error::TooManyHandlers`], [`Error::CollectiveMismatch`], [`Error::PeerLost`].
    pub fn handler(
        &self,
        handler: impl Fn(&mut HandlerContext<'_>, &[u64], &[u8]) + Send + Sync + 'static,
    ) -> Result<Handler> {
        progress::may_wait("handler")?;
        let core = self.core();
        let affair = self.world().affair(Operation::Handler)?;
        let number = core.messages.next_number()?;
        let numbers = affair.all_gather(&u64::from(number))?;
        for (rank, other) in self.ranks().zip(numbers) {
            if other != u64::from(number) {
                return Err(Error::CollectiveMismatch {
                    operation: "handler",
                    rank,
                    theirs: format!("registers handler number {other}"),
                    own: core.progress.rank,
                    ours: format!("registers handler number {number}"),
                });
            }
        }
        core.messages.register(number, Box::new(handler))?;
        // Only now may a peer send to it.
        affair.barrier()?;
        Ok(Handler {
            number,
            job: core.progress.id,
        })
    }

    /// How much messages carry.
    pub fn limits(&self) -> Limits {
        let caps = self.progress().conduit().caps();
        Limits {
            max_args: caps.max_args,
            max_args_long: caps.max_args - 2,
            max_medium: caps.max_payload,
            max_long: self.settings().heap,
        }
    }

    /// Registers a function for remote calls. Collective, like [`handler`](Self::handler). It
    /// runs as a handler: it may not wait.
    ///
    /// # Errors
    /// As [`handler`](Self::handler).
    pub fn function<A, R>(
        &self,
        function: impl Fn(Rank, A) -> R + Send + Sync + 'static,
    ) -> Result<Function<A, R>>
    where
        A: DeserializeOwned + 'static,
        R: Serialize + 'static,
    {
        Ok(Function::of(self.handler(call::handler_of(function))?))
    }

    /// Calls `function` on `rank` and waits for its result.
    ///
    /// # Errors
    /// [`Error::HandlerPanicked`] if it did, [`Error::Codec`], [`Error::MessageTooLong`] for
    /// an argument or result beyond [`Limits::max_medium`] (see
    /// [`encoded_len`](crate::encoded_len)), and as [`request_short`](Self::request_short).
    pub fn call<A, R>(&self, rank: Rank, function: &Function<A, R>, argument: &A) -> Result<R>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        progress::may_wait("call")?;
        let id = self.begin_call(rank, function, &call::encoded(argument)?)?;
        let answer = (self.core().messages.calls()).wait(self.progress(), rank, id)?;
        call::result_of(&answer)
    }

    /// Begins to call `function` on `rank`. The argument is copied before this returns.
    ///
    /// # Errors
    /// As [`call`](Self::call), of what is found at once; the rest is said by the handle.
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
        self.call_encoded(rank, function, &call::encoded(argument)?)
    }

    /// Begins to call `function` with the same argument on each of `ranks`, which is encoded once: a
    /// handle for each, in their order.
    ///
    /// # Errors
    /// As [`call_nb`](Self::call_nb). Those that were called before go on, and nobody learns of
    /// their results.
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
            .map(|rank| self.call_encoded(rank, function, &argument))
            .collect()
    }

    /// Has `function` run on `rank`, which sends no result back (UPC++, `rpc_ff`). Returns when the
    /// message is on its way; [`am_quiet`](Self::am_quiet) waits until it has run, and says whether
    /// it panicked.
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
        self.request_medium(rank, self.handler_of(function)?, &[], &argument)
    }

    fn call_encoded<A, R: DeserializeOwned>(
        &self,
        rank: Rank,
        function: &Function<A, R>,
        argument: &[u8],
    ) -> Result<CallHandle<R>> {
        let id = self.begin_call(rank, function, argument)?;
        let calls = self.core().messages.calls();
        Ok(CallHandle::new(self.progress(), calls, rank, id))
    }

    /// Sends a call: its number.
    fn begin_call<A, R>(
        &self,
        rank: Rank,
        function: &Function<A, R>,
        argument: &[u8],
    ) -> Result<u64> {
        let handler = self.handler_of(function)?;
        let progress = self.progress();
        progress.check_rank(rank)?;
        self.core().messages.calls().begin(|id| {
            let message = Message {
                kind: kind::CALL,
                tag: handler.number,
                args: &[id],
                payload: argument,
            };
            request::send(progress, rank, &message)
        })
    }

    /// The handler of a function of this job.
    fn handler_of<A, R>(&self, function: &Function<A, R>) -> Result<Handler> {
        let handler = function.handler();
        match handler.job == self.progress().id {
            true => Ok(handler),
            false => Err(Error::ForeignHandle { what: "function" }),
        }
    }
}
