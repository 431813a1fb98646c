//! Puts that signal their arrival, and waits for words of this rank's memory.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
    time::Duration,
};

use hydrant::Rank;

use super::{
    objects::{JOBS, MEMORIES, with_memory},
    sections::{end_of, local_section, section},
    types::{
        HYDRANT_FOREVER, comparison, hydrant_compare, hydrant_job, hydrant_memory, hydrant_pointer,
        hydrant_section, hydrant_signal_op, signal,
    },
    words::{word_at, words_at},
};
use crate::{
    edge::{base, edge, given, input, optional, output, room},
    operations::{hydrant_operation, keep_background},
    status::{CallFailure, HYDRANT_ERROR_TIMEOUT},
};

/// Puts bytes into the part of a rank, then changes the word of 64 bits at an offset of signals on the same rank. A thread
/// that sees the change also sees the data. Both are remotely complete on return.
///
/// Errors: as hydrant_put, for the data and for the word; HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT. Nothing is put
/// if the word is wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_signal(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    source: *const c_void,
    bytes: usize,
    signals: *mut hydrant_memory,
    signal_offset: usize,
    op: hydrant_signal_op,
    value: u64,
) -> c_int {
    edge("hydrant_put_signal", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data = unsafe { input(source.cast(), bytes, "the source")? };
        let signal = signal(op, value)?;
        let signals = MEMORIES.get(signals)?;
        let at = word_at(&signals, signal_offset)?;
        with_memory(memory, |it| {
            let rank = Rank(rank);
            Ok((it.bytes).put_signal(rank, offset, data, &signals.words, at, signal)?)
        })
    })
}

/// As hydrant_put_signal, without waiting. The source may be used again on return. The operation is complete when data
/// and signal are. A null operation is stored if both are complete at once.
///
/// Errors: as hydrant_put_signal, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_signal_nb(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    source: *const c_void,
    bytes: usize,
    signals: *mut hydrant_memory,
    signal_offset: usize,
    op: hydrant_signal_op,
    value: u64,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_put_signal_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(source.cast(), bytes, "the source")? };
        let signal = signal(op, value)?;
        let signals = MEMORIES.get(signals)?;
        let at = word_at(&signals, signal_offset)?;
        with_memory(memory, |it| {
            let rank = Rank(rank);
            let begun =
                (it.bytes).put_signal_nb(rank, offset, data.to_vec(), &signals.words, at, signal);
            let begun = begun.map_err(|refused| refused.cause)?;
            operation.write(keep_background(&it.job, begun, drop)?);
            Ok(())
        })
    })
}

/// As hydrant_put_signal, for a section: see hydrant_put_section.
///
/// Errors: as hydrant_put_section and hydrant_put_signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_section_signal(
    memory: *mut hydrant_memory,
    rank: u32,
    to: *const hydrant_section,
    source: *const c_void,
    from: *const hydrant_section,
    signals: *mut hydrant_memory,
    signal_offset: usize,
    op: hydrant_signal_op,
    value: u64,
) -> c_int {
    edge("hydrant_put_section_signal", || {
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { section(to, "the remote section")? };
        // SAFETY: 1. and 2. C1 and C2.
        let from = unsafe { local_section(from)? };
        let source = base(source, end_of(&from), "the source")?;
        let signal = signal(op, value)?;
        let signals = MEMORIES.get(signals)?;
        let at = word_at(&signals, signal_offset)?;
        with_memory(memory, |it| {
            let rank = Rank(rank);
            // The word is checked before anything is put.
            if !Arc::ptr_eq(&it.job, &signals.job) {
                let what = "memory";
                return Err(hydrant::Error::ForeignHandle { what }.into());
            }
            signals.words.pointer(rank, at)?;
            // SAFETY: 1. and 2. C1 and C2, for each run.
            unsafe { it.bytes.put_section_raw(rank, &to, source, &from)? };
            Ok(signals.words.signal(rank, at, signal)?)
        })
    })
}

/// Puts bytes to the memory that a pointer leads to, then changes the word of 64 bits that another pointer leads to, on
/// the same rank. Both are remotely complete on return.
///
/// Errors: as hydrant_put_to, for both pointers; HYDRANT_ERROR_ARGUMENT if they lead to different ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_signal_to(
    job: *mut hydrant_job,
    to: *const hydrant_pointer,
    source: *const c_void,
    bytes: usize,
    word: *const hydrant_pointer,
    op: hydrant_signal_op,
    value: u64,
) -> c_int {
    edge("hydrant_put_signal_to", || {
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(source.cast(), bytes, "the source")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { given(to, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let word = unsafe { given(word, "the pointer to the word")? };
        let (job, signal) = (JOBS.get(job)?, signal(op, value)?);
        Ok(job
            .job
            .put_signal_to(to.global(), data, word.global(), signal)?)
    })
}

/// As hydrant_put_signal_to, without waiting. The source may be used again on return.
///
/// Errors: as hydrant_put_signal_to, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_put_signal_to_nb(
    job: *mut hydrant_job,
    to: *const hydrant_pointer,
    source: *const c_void,
    bytes: usize,
    word: *const hydrant_pointer,
    op: hydrant_signal_op,
    value: u64,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_put_signal_to_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        // SAFETY: 1. and 2. C1 and C2.
        let data: &[u8] = unsafe { input(source.cast(), bytes, "the source")? };
        // SAFETY: 1. and 2. C1 and C2.
        let to = unsafe { given(to, "the pointer")? };
        // SAFETY: 1. and 2. C1 and C2.
        let word = unsafe { given(word, "the pointer to the word")? };
        let (job, signal) = (JOBS.get(job)?, signal(op, value)?);
        let begun = (job.job).put_signal_to_nb(to.global(), data.to_vec(), word.global(), signal);
        let begun = begun.map_err(|refused| refused.cause)?;
        operation.write(keep_background(&job, begun, drop)?);
        Ok(())
    })
}

/// Changes a word of 64 bits of a rank. A thread that sees the change also sees all that this thread has put to the rank
/// by calls that were complete.
///
/// Errors: as hydrant_put; HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_signal(
    signals: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    op: hydrant_signal_op,
    value: u64,
) -> c_int {
    edge("hydrant_signal", || {
        let signal = signal(op, value)?;
        with_memory(signals, |it| {
            Ok(it.words.signal(Rank(rank), word_at(it, offset)?, signal)?)
        })
    })
}

/// Waits until a word of 64 bits of this rank's part compares with a value as wanted. Stores the word in found, which may
/// be null. Waits for at most timeout nanoseconds. Handles messages meanwhile, and sleeps if it takes long.
///
/// Errors: HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT,
/// HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_PEER_LOST if a rank dies first, HYDRANT_ERROR_OTHERS_ENDED if nobody can change
/// the word any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait_until(
    signals: *const hydrant_memory,
    offset: usize,
    compare: hydrant_compare,
    value: u64,
    timeout: u64,
    found: *mut u64,
) -> c_int {
    edge("hydrant_wait_until", || {
        let enough = comparison(compare, value)?;
        // The wait may be long, so that this thread's last memory is left to handlers.
        let it = MEMORIES.get(signals)?;
        let (job, at) = (&it.job.job, word_at(&it, offset)?);
        let word = match timeout {
            HYDRANT_FOREVER => Some(job.wait_until(&it.words, at, enough)?),
            time => job.wait_until_within(&it.words, at, Duration::from_nanos(time), enough)?,
        };
        let word = word.ok_or_else(|| time_is_over(timeout))?;
        // SAFETY: 1. and 2. C1 and C2.
        if let Some(found) = unsafe { optional(found) } {
            found.write(word);
        }
        Ok(())
    })
}

/// Waits until one of count words at the offsets compares with a value as wanted. Stores its index in the list, and the
/// word in found; both may be null. Of several words it takes the first in the list.
///
/// Errors: as hydrant_wait_until; HYDRANT_ERROR_ARGUMENT if count is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait_until_any(
    signals: *const hydrant_memory,
    offsets: *const usize,
    count: usize,
    compare: hydrant_compare,
    value: u64,
    timeout: u64,
    index: *mut usize,
    found: *mut u64,
) -> c_int {
    edge("hydrant_wait_until_any", || {
        let enough = comparison(compare, value)?;
        // SAFETY: 1. and 2. C1 and C2.
        let offsets = unsafe { input(offsets, count, "the list of offsets")? };
        let it = MEMORIES.get(signals)?;
        let (job, at) = (&it.job.job, words_at(&it, offsets)?);
        let word = match timeout {
            HYDRANT_FOREVER => Some(job.wait_until_any(&it.words, &at, enough)?),
            time => {
                job.wait_until_any_within(&it.words, &at, Duration::from_nanos(time), enough)?
            }
        };
        let word = word.ok_or_else(|| time_is_over(timeout))?;
        // SAFETY: 1. and 2. C1 and C2.
        unsafe { tell(word, index, found) };
        Ok(())
    })
}

/// Waits until each of count words at the offsets has compared with a value as wanted, not all at the same time. Stores
/// the words in found, in the order of the list, unless it is null.
///
/// Errors: as hydrant_wait_until_any, without a time limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_wait_until_all(
    signals: *const hydrant_memory,
    offsets: *const usize,
    count: usize,
    compare: hydrant_compare,
    value: u64,
    found: *mut u64,
) -> c_int {
    edge("hydrant_wait_until_all", || {
        let enough = comparison(compare, value)?;
        // SAFETY: 1. and 2. C1 and C2.
        let offsets = unsafe { input(offsets, count, "the list of offsets")? };
        let it = MEMORIES.get(signals)?;
        let at = words_at(&it, offsets)?;
        let words = it.job.job.wait_until_all(&it.words, &at, enough)?;
        if !found.is_null() {
            // SAFETY: 1. and 2. C1 and C2.
            unsafe { output(found, count, "the list of words")? }.copy_from_slice(&words);
        }
        Ok(())
    })
}

/// Stores in met whether a word of 64 bits of this rank's part compares with a value as wanted, and if so the word in
/// found, which may be null. It does not wait, and handlers may call it.
///
/// Errors: as hydrant_wait_until, but HYDRANT_ERROR_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_test_until(
    signals: *const hydrant_memory,
    offset: usize,
    compare: hydrant_compare,
    value: u64,
    met: *mut bool,
    found: *mut u64,
) -> c_int {
    edge("hydrant_test_until", || {
        // SAFETY: 1. and 2. C1 and C2.
        let met = unsafe { room(met, "the place of the answer")? };
        let enough = comparison(compare, value)?;
        let it = MEMORIES.get(signals)?;
        let word = (it.job.job).test_until(&it.words, word_at(&it, offset)?, enough)?;
        met.write(word.is_some());
        if let Some(word) = word {
            // SAFETY: 1. and 2. C1 and C2.
            unsafe { tell((0, word), std::ptr::null_mut(), found) };
        }
        Ok(())
    })
}

/// Stores in met whether one of count words at the offsets compares with a value as wanted, and if so its index and the
/// word, as hydrant_wait_until_any. It does not wait, and handlers may call it.
///
/// Errors: as hydrant_wait_until_any, but HYDRANT_ERROR_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_test_until_any(
    signals: *const hydrant_memory,
    offsets: *const usize,
    count: usize,
    compare: hydrant_compare,
    value: u64,
    met: *mut bool,
    index: *mut usize,
    found: *mut u64,
) -> c_int {
    edge("hydrant_test_until_any", || {
        // SAFETY: 1. and 2. C1 and C2.
        let met = unsafe { room(met, "the place of the answer")? };
        let enough = comparison(compare, value)?;
        // SAFETY: 1. and 2. C1 and C2.
        let offsets = unsafe { input(offsets, count, "the list of offsets")? };
        let it = MEMORIES.get(signals)?;
        let word = (it.job.job).test_until_any(&it.words, &words_at(&it, offsets)?, enough)?;
        met.write(word.is_some());
        if let Some(word) = word {
            // SAFETY: 1. and 2. C1 and C2.
            unsafe { tell(word, index, found) };
        }
        Ok(())
    })
}

/// Stores the index and the value of a word, where C wants them.
///
/// # Safety
/// 1. The places are null, or aligned and writable.
/// 2. No other code uses them meanwhile.
unsafe fn tell((at, word): (usize, u64), index: *mut usize, found: *mut u64) {
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    if let Some(index) = unsafe { optional(index) } {
        index.write(at);
    }
    // SAFETY: 1. and 2. the caller's conditions 1 and 2.
    if let Some(found) = unsafe { optional(found) } {
        found.write(word);
    }
}

#[cold]
fn time_is_over(timeout: u64) -> CallFailure {
    let text = format!("the word was not as wanted within {timeout} ns");
    CallFailure::new(HYDRANT_ERROR_TIMEOUT, text)
}
