//! The rank's side of PMIx, through the launcher's own libpmix.
//!
//! PMIx has no wire protocol: its library is the interface. Hydrant opens the library at run time,
//! so that it builds and starts where libpmix is not installed. The library's calls block without a
//! bound, so a separate thread makes them. The rank waits for that thread with a time limit.

mod ffi;

use std::collections::HashSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ffi::{PmixProc, PmixStatus, c_text};

use crate::{Bootstrap, Error, JoinOptions, check_key, check_rank, check_value};

const SERVICE: &str = "PMIx";

/// The time limit for an abort to reach the launcher.
const ABORT_WITHIN: Duration = Duration::from_secs(5);

/// A call for the thread to make.
type PmixCall = Box<dyn FnOnce(&ffi::Libpmix) + Send>;

/// A rank that PMIx serves.
pub(crate) struct Pmix {
    me: PmixProc,
    size: u32,
    calls: mpsc::Sender<PmixCall>,
    put: HashSet<String>,
    answer_within: Duration,
    fence_within: Duration,
}

impl Pmix {
    /// Joins through libpmix.
    pub(crate) fn init(options: &JoinOptions) -> Result<Pmix, Error> {
        let library = ffi::Libpmix::open(options.libpmix.as_deref())?;
        let (calls, requests) = mpsc::channel::<PmixCall>();
        thread::Builder::new()
            .name("hydrant-pmix".into())
            .spawn(move || requests.into_iter().for_each(|call| call(&library)))
            .map_err(Error::Thread)?;
        let joining = || "joining".to_owned();
        let me = ask(&calls, options.answer_within, &joining, ffi::Libpmix::init)?.map_err(|status| {
            Error::LauncherUnusable {
                seen: "PMIX_NAMESPACE says that a PMIx launcher started this process".into(),
                why: format!("libpmix cannot reach it ({}, {})", status.text, status.code),
                fix: "start the program by the launcher itself, with a libpmix of its version, or unset \
                      PMIX_NAMESPACE to run it as a job of one"
                    .into(),
            }
        })?;
        let size = ask(&calls, options.answer_within, &joining, move |pmix| {
            pmix.job_size(&me)
        })?
        .map_err(|status| refused(&status, &joining))?;
        check_rank(me.rank, size)?;
        Ok(Pmix {
            me,
            size,
            calls,
            put: HashSet::new(),
            answer_within: options.answer_within,
            fence_within: options.fence_within,
        })
    }

    /// Has the thread make a call, and waits for the result.
    fn call<R: Send + 'static>(
        &self,
        within: Duration,
        doing: &dyn Fn() -> String,
        call: impl FnOnce(&ffi::Libpmix) -> Result<R, PmixStatus> + Send + 'static,
    ) -> Result<R, Error> {
        ask(&self.calls, within, doing, call)?.map_err(|status| refused(&status, doing))
    }
}

impl Bootstrap for Pmix {
    fn rank(&self) -> u32 {
        self.me.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn name(&self) -> &'static str {
        "pmix"
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        check_value(key, value)?;
        if self.put.contains(key) {
            return Err(Error::KeyTaken { key: key.into() });
        }
        let (name, bytes) = (c_text(&scoped(key)), value.to_vec());
        let doing = || format!("putting the key `{key}`");
        self.call(self.answer_within, &doing, move |pmix| {
            pmix.put(&name, &bytes)
        })?;
        self.put.insert(key.into());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), Error> {
        let rank = self.me.rank;
        self.call(
            self.fence_within,
            &|| format!("rank {rank} was in a fence"),
            ffi::Libpmix::fence,
        )
    }

    fn get(&mut self, from: u32, key: &str) -> Result<Vec<u8>, Error> {
        check_key(key)?;
        check_rank(from, self.size)?;
        let (proc, name) = (self.me.with_rank(from), c_text(&scoped(key)));
        let doing = || format!("getting the key `{key}` of rank {from}");
        let got = ask(&self.calls, self.answer_within, &doing, move |pmix| {
            pmix.get(&proc, &name)
        })?;
        got.map_err(|status| match status.code {
            ffi::NOT_FOUND => Error::NoSuchKey {
                from,
                key: key.into(),
            },
            _ => refused(&status, &doing),
        })
    }

    fn abort(&mut self, status: i32, why: &str) {
        let why = c_text(why);
        // Nobody is left to report a failure to, and the caller exits anyway.
        let _ = self.call(ABORT_WITHIN, &|| "aborting".into(), move |pmix| {
            pmix.abort(status, &why)
        });
    }

    fn finalize(&mut self) -> Result<(), Error> {
        let rank = self.me.rank;
        self.call(
            self.answer_within,
            &|| format!("rank {rank} was leaving"),
            ffi::Libpmix::finalize,
        )
    }
}

/// Prefixes the key, because PMIx's own keys begin with `pmix`.
fn scoped(key: &str) -> String {
    format!("hydrant.{key}")
}

fn ask<R: Send + 'static>(
    calls: &mpsc::Sender<PmixCall>,
    within: Duration,
    doing: &dyn Fn() -> String,
    call: impl FnOnce(&ffi::Libpmix) -> R + Send + 'static,
) -> Result<R, Error> {
    let (answer, answered) = mpsc::sync_channel(1);
    // A thread that ended drops the call, and with it the sender of the answer.
    let _ = calls.send(Box::new(move |pmix| {
        let _ = answer.send(call(pmix));
    }));
    answered.recv_timeout(within).map_err(|e| match e {
        RecvTimeoutError::Timeout => Error::TimedOut {
            service: SERVICE,
            doing: doing(),
            after: within,
        },
        RecvTimeoutError::Disconnected => Error::LauncherLost {
            service: SERVICE,
            doing: doing(),
            source: std::io::Error::other("the thread that calls libpmix ended"),
        },
    })
}

fn refused(status: &PmixStatus, doing: &dyn Fn() -> String) -> Error {
    Error::Refused {
        service: SERVICE,
        doing: doing(),
        why: format!("{} ({})", status.text, status.code),
    }
}
