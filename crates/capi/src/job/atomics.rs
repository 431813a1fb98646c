//! Atomic operations on words of 32 and 64 bits.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
};

use hydrant::{BackgroundHandle, Pod, Rank, Symmetric};

use super::{
    objects::{JOBS, JobObject, MemoryObject, with_memory},
    types::{
        HYDRANT_ATOMIC_ADD, HYDRANT_ATOMIC_AND, HYDRANT_ATOMIC_COMPARE_SWAP, HYDRANT_ATOMIC_LOAD,
        HYDRANT_ATOMIC_OR, HYDRANT_ATOMIC_SWAP, HYDRANT_ATOMIC_XOR, HYDRANT_F32, HYDRANT_F64,
        HYDRANT_I32, HYDRANT_I64, HYDRANT_U32, HYDRANT_U64, hydrant_atomic_op, hydrant_job,
        hydrant_memory, hydrant_pointer, hydrant_type,
    },
    words::index_of,
};
use crate::{
    edge::{argument, edge, given, not_null, room},
    operations::{hydrant_operation, keep_background, work::ResultPlace},
    status::{CallFailure, HYDRANT_ERROR_OPERATION, Result},
};

/// Calls the method of an operation: on symmetric memory with a rank and an index, on a pointer's word without. The
/// last word says whether the type has operations on bits.
macro_rules! call {
    ($on:expr, ($($at:expr),*), $given:expr, [$load:ident $swap:ident $compare:ident $add:ident
     $and:ident $or:ident $xor:ident], $bits:ident) => {{
        let Operands { op, value, expected } = $given;
        match op {
            HYDRANT_ATOMIC_LOAD => $on.$load($($at),*)?,
            HYDRANT_ATOMIC_SWAP => $on.$swap($($at,)* value)?,
            HYDRANT_ATOMIC_COMPARE_SWAP => $on.$compare($($at,)* expected, value)?,
            HYDRANT_ATOMIC_ADD => $on.$add($($at,)* value)?,
            HYDRANT_ATOMIC_AND => call!(@$bits $on.$and($($at,)* value)),
            HYDRANT_ATOMIC_OR => call!(@$bits $on.$or($($at,)* value)),
            HYDRANT_ATOMIC_XOR => call!(@$bits $on.$xor($($at,)* value)),
            other => return Err(argument(format!("{other} is no atomic operation"))),
        }
    }};
    (@integer $act:expr) => { $act? };
    (@float $act:expr) => { return Err(no_bits()) };
}

/// A type of words: how it does each operation.
trait AtomicWord: Pod + Send {
    /// Runs `act` with memory as words of this type.
    fn with<R>(it: &MemoryObject, act: impl FnOnce(&Symmetric<Self>) -> R) -> R;
    fn on_memory(
        memory: &Symmetric<Self>,
        at: (Rank, usize),
        given: Operands<Self>,
    ) -> Result<Self>;
    fn begin_on_memory(
        memory: &Symmetric<Self>,
        at: (Rank, usize),
        given: Operands<Self>,
    ) -> Result<BackgroundHandle<Self>>;
    fn at_pointer(job: &JobObject, at: hydrant_pointer, given: Operands<Self>) -> Result<Self>;
    fn begin_at_pointer(
        job: &JobObject,
        at: hydrant_pointer,
        given: Operands<Self>,
    ) -> Result<BackgroundHandle<Self>>;
}

macro_rules! word {
    ($type:ty, $bits:ident, |$it:ident| $memory:expr) => {
        impl AtomicWord for $type {
            #[inline]
            fn with<R>($it: &MemoryObject, act: impl FnOnce(&Symmetric<Self>) -> R) -> R {
                act($memory)
            }

            fn on_memory(
                memory: &Symmetric<Self>,
                (rank, index): (Rank, usize),
                given: Operands<Self>,
            ) -> Result<Self> {
                Ok(call!(memory, (rank, index), given,
                    [atomic_load swap compare_swap fetch_add fetch_and fetch_or fetch_xor], $bits))
            }

            fn begin_on_memory(
                memory: &Symmetric<Self>,
                (rank, index): (Rank, usize),
                given: Operands<Self>,
            ) -> Result<BackgroundHandle<Self>> {
                Ok(call!(memory, (rank, index), given,
                    [atomic_load_nb swap_nb compare_swap_nb fetch_add_nb fetch_and_nb fetch_or_nb
                     fetch_xor_nb], $bits))
            }

            fn at_pointer(
                job: &JobObject,
                at: hydrant_pointer,
                given: Operands<Self>,
            ) -> Result<Self> {
                let word = job.job.atomic::<Self>(at.global())?;
                Ok(call!(word, (), given,
                    [load swap compare_swap fetch_add fetch_and fetch_or fetch_xor], $bits))
            }

            fn begin_at_pointer(
                job: &JobObject,
                at: hydrant_pointer,
                given: Operands<Self>,
            ) -> Result<BackgroundHandle<Self>> {
                let word = job.job.atomic::<Self>(at.global())?;
                Ok(call!(word, (), given,
                    [load_nb swap_nb compare_swap_nb fetch_add_nb fetch_and_nb fetch_or_nb
                     fetch_xor_nb], $bits))
            }
        }
    };
}

word!(u32, integer, |it| &it.halves);
word!(u64, integer, |it| &it.words);
word!(f32, float, |it| &it.bytes.cast());
word!(f64, float, |it| &it.bytes.cast());

/// Does an atomic operation on the word at an offset of a rank's part. The type is HYDRANT_U32, HYDRANT_I32, HYDRANT_U64,
/// HYDRANT_I64, HYDRANT_F32 or HYDRANT_F64. The operand and the expected value lead to one element each. The operand may
/// be null for HYDRANT_ATOMIC_LOAD, and the expected value for all but HYDRANT_ATOMIC_COMPARE_SWAP. The previous value of
/// the word is stored in previous, which may be null.
///
/// Errors: as hydrant_put; HYDRANT_ERROR_ALIGNMENT if the offset is not aligned for the type, HYDRANT_ERROR_ARGUMENT,
/// HYDRANT_ERROR_OPERATION for a bitwise operation on floats, HYDRANT_ERROR_RESULT_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_atomic(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    op: hydrant_atomic_op,
    r#type: hydrant_type,
    operand: *const c_void,
    expected: *const c_void,
    previous: *mut c_void,
) -> c_int {
    edge("hydrant_atomic", || {
        let asked = Given {
            op,
            operand,
            expected,
            previous,
        };
        with_memory(memory, |it| {
            let place = WordPlace::Memory(it, Rank(rank), offset);
            match r#type {
                // SAFETY: 1. C1 and C2.
                HYDRANT_U32 | HYDRANT_I32 => unsafe { asked.run::<u32>(place)? },
                // SAFETY: 1. C1 and C2.
                HYDRANT_U64 | HYDRANT_I64 => unsafe { asked.run::<u64>(place)? },
                // SAFETY: 1. C1 and C2.
                HYDRANT_F32 => unsafe { asked.run::<f32>(place)? },
                // SAFETY: 1. C1 and C2.
                HYDRANT_F64 => unsafe { asked.run::<f64>(place)? },
                other => return Err(no_word(other)),
            };
            Ok(())
        })
    })
}

/// Begins an atomic operation, as hydrant_atomic does it. The previous value is stored when the operation is waited for,
/// or a test of it is true. A null operation is stored if it is complete at once. Handlers may call this.
///
/// Errors: as hydrant_atomic, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_atomic_nb(
    memory: *mut hydrant_memory,
    rank: u32,
    offset: usize,
    op: hydrant_atomic_op,
    r#type: hydrant_type,
    operand: *const c_void,
    expected: *const c_void,
    previous: *mut c_void,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_atomic_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let asked = Given {
            op,
            operand,
            expected,
            previous,
        };
        with_memory(memory, |it| {
            let place = WordPlace::Memory(it, Rank(rank), offset);
            operation.write(match r#type {
                // SAFETY: 1. C1 and C2.
                HYDRANT_U32 | HYDRANT_I32 => unsafe { asked.begin::<u32>(place, &it.job)? },
                // SAFETY: 1. C1 and C2.
                HYDRANT_U64 | HYDRANT_I64 => unsafe { asked.begin::<u64>(place, &it.job)? },
                // SAFETY: 1. C1 and C2.
                HYDRANT_F32 => unsafe { asked.begin::<f32>(place, &it.job)? },
                // SAFETY: 1. C1 and C2.
                HYDRANT_F64 => unsafe { asked.begin::<f64>(place, &it.job)? },
                other => return Err(no_word(other)),
            });
            Ok(())
        })
    })
}

/// Does an atomic operation on the word that a pointer leads to. In symmetric memory it is one of hydrant_atomic. In
/// exposed memory the owner does it, so that it is atomic among operations by pointers alone.
///
/// Errors: as hydrant_atomic and hydrant_put_to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_atomic_at(
    job: *mut hydrant_job,
    word: *const hydrant_pointer,
    op: hydrant_atomic_op,
    r#type: hydrant_type,
    operand: *const c_void,
    expected: *const c_void,
    previous: *mut c_void,
) -> c_int {
    edge("hydrant_atomic_at", || {
        let asked = Given {
            op,
            operand,
            expected,
            previous,
        };
        // SAFETY: 1. and 2. C1 and C2.
        let word = *unsafe { given(word, "the pointer")? };
        let job = JOBS.get(job)?;
        let place = WordPlace::Pointer(&job, word);
        match r#type {
            // SAFETY: 1. C1 and C2.
            HYDRANT_U32 | HYDRANT_I32 => unsafe { asked.run::<u32>(place)? },
            // SAFETY: 1. C1 and C2.
            HYDRANT_U64 | HYDRANT_I64 => unsafe { asked.run::<u64>(place)? },
            // SAFETY: 1. C1 and C2.
            HYDRANT_F32 => unsafe { asked.run::<f32>(place)? },
            // SAFETY: 1. C1 and C2.
            HYDRANT_F64 => unsafe { asked.run::<f64>(place)? },
            other => return Err(no_word(other)),
        };
        Ok(())
    })
}

/// Begins an atomic operation on the word that a pointer leads to, as hydrant_atomic_nb.
///
/// Errors: as hydrant_atomic_at, for errors found at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_atomic_at_nb(
    job: *mut hydrant_job,
    word: *const hydrant_pointer,
    op: hydrant_atomic_op,
    r#type: hydrant_type,
    operand: *const c_void,
    expected: *const c_void,
    previous: *mut c_void,
    operation: *mut *mut hydrant_operation,
) -> c_int {
    edge("hydrant_atomic_at_nb", || {
        // SAFETY: 1. and 2. C1 and C2.
        let operation = unsafe { room(operation, "the place of the operation")? };
        let asked = Given {
            op,
            operand,
            expected,
            previous,
        };
        // SAFETY: 1. and 2. C1 and C2.
        let word = *unsafe { given(word, "the pointer")? };
        let job = JOBS.get(job)?;
        let place = WordPlace::Pointer(&job, word);
        operation.write(match r#type {
            // SAFETY: 1. C1 and C2.
            HYDRANT_U32 | HYDRANT_I32 => unsafe { asked.begin::<u32>(place, &job)? },
            // SAFETY: 1. C1 and C2.
            HYDRANT_U64 | HYDRANT_I64 => unsafe { asked.begin::<u64>(place, &job)? },
            // SAFETY: 1. C1 and C2.
            HYDRANT_F32 => unsafe { asked.begin::<f32>(place, &job)? },
            // SAFETY: 1. C1 and C2.
            HYDRANT_F64 => unsafe { asked.begin::<f64>(place, &job)? },
            other => return Err(no_word(other)),
        });
        Ok(())
    })
}

/// The arguments of C.
#[derive(Clone, Copy)]
struct Given {
    op: hydrant_atomic_op,
    operand: *const c_void,
    expected: *const c_void,
    previous: *mut c_void,
}

/// The arguments of an operation, by value.
struct Operands<T> {
    op: hydrant_atomic_op,
    value: T,
    expected: T,
}

/// Where the word is.
#[derive(Clone, Copy)]
enum WordPlace<'a> {
    Memory(&'a MemoryObject, Rank, usize),
    Pointer(&'a JobObject, hydrant_pointer),
}

impl Given {
    /// Reads the operands, which need not be aligned.
    ///
    /// # Safety
    /// 1. They are null, or readable for a `T`, and no other code writes to them meanwhile.
    unsafe fn operands<T: Pod>(&self) -> Result<Operands<T>> {
        let read = |at: *const c_void, what| -> Result<T> {
            not_null(at, what)?;
            // SAFETY: the caller's condition 1; any bytes are a `T`.
            Ok(unsafe { at.cast::<T>().read_unaligned() })
        };
        let value = match self.op {
            HYDRANT_ATOMIC_LOAD => T::zeroed(),
            _ => read(self.operand, "the operand")?,
        };
        let expected = match self.op {
            HYDRANT_ATOMIC_COMPARE_SWAP => read(self.expected, "the expected value")?,
            _ => T::zeroed(),
        };
        Ok(Operands {
            op: self.op,
            value,
            expected,
        })
    }

    /// Does the operation.
    ///
    /// # Safety
    /// 1. The operands are null or readable for a `T`, and the place of the previous value is null or writable for one. No
    ///    other code uses them meanwhile.
    #[inline]
    unsafe fn run<T: AtomicWord>(&self, place: WordPlace<'_>) -> Result<()> {
        // SAFETY: 1. the caller's condition 1.
        let operands = unsafe { self.operands::<T>()? };
        let old = match place {
            WordPlace::Memory(it, rank, offset) => T::with(it, |memory| {
                let index = index_of(memory, it.bytes.len(), offset)?;
                T::on_memory(memory, (rank, index), operands)
            })?,
            WordPlace::Pointer(job, at) => T::at_pointer(job, at, operands)?,
        };
        if !self.previous.is_null() {
            // SAFETY: the caller's condition 1.
            unsafe { self.previous.cast::<T>().write_unaligned(old) };
        }
        Ok(())
    }

    /// Begins the operation.
    ///
    /// # Safety
    /// 1. As in [`run`](Self::run); the place of the previous value until the operation is over.
    unsafe fn begin<T: AtomicWord>(
        &self,
        place: WordPlace<'_>,
        job: &Arc<JobObject>,
    ) -> Result<*mut hydrant_operation> {
        // SAFETY: 1. the caller's condition 1.
        let operands = unsafe { self.operands::<T>()? };
        let begun = match place {
            WordPlace::Memory(it, rank, offset) => T::with(it, |memory| {
                let index = index_of(memory, it.bytes.len(), offset)?;
                T::begin_on_memory(memory, (rank, index), operands)
            })?,
            WordPlace::Pointer(job, at) => T::begin_at_pointer(job, at, operands)?,
        };
        let previous = ResultPlace(self.previous.cast::<T>());
        // SAFETY: 1. C1 and C2, until the operation is over.
        keep_background(job, begun, move |old| unsafe { previous.store(old) })
    }
}

#[cold]
fn no_word(number: hydrant_type) -> CallFailure {
    argument(format!(
        "{number} is no type of words for atomic operations"
    ))
}

#[cold]
fn no_bits() -> CallFailure {
    let text = "floats have no bitwise operations";
    CallFailure::new(HYDRANT_ERROR_OPERATION, text)
}
