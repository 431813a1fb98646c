//! Replies of active messages whose data goes to symmetric memory first.

use crate::{
    Error, Handler, HandlerContext, Pod, Result, Symmetric,
    message::request::{check_handler, long_args},
};

impl HandlerContext<'_> {
    /// Puts `data` into symmetric memory of the source, then replies with `args`. The index of the
    /// first element and the number of elements follow the arguments.
    ///
    /// # Errors
    /// As [`reply_short`](Self::reply_short) and
    /// [`Symmetric::put`](crate::Symmetric::put).
    pub fn reply_long<T: Pod>(
        &mut self,
        handler: Handler,
        args: &[u64],
        memory: &Symmetric<T>,
        index: usize,
        data: &[T],
    ) -> Result<()> {
        if !self.may_reply() {
            return Err(Error::NoReply);
        }
        let args = long_args(args, index, data.len(), self.progress())?;
        // Checked before the data is put, because the reply must not fail afterwards.
        check_handler(handler, self.progress())?;
        memory.block().check_job(self.progress().id)?;
        memory.put(self.source(), index, data)?;
        self.reply_short(handler, &args)
    }
}
