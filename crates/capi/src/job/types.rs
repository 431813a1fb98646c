//! The types of C: opaque handles, structures, and the numbers of types and operations.

use std::ffi::{c_char, c_int};

use hydrant::{GlobalPtr, Pod, Zeroable};

use crate::{edge::argument, status::Result};

/// A job, as seen by this rank. Any number of threads may use it at once.
pub struct hydrant_job(());
/// Symmetric memory: every rank owns as many bytes. Offsets are counted from the first byte of a rank's part.
pub struct hydrant_memory(());
/// Some of the ranks of a job, which call collectives together. Team ranks are counted from 0.
pub struct hydrant_team(());
/// Locks that all ranks of a job share.
pub struct hydrant_locks(());
/// A buffer of this rank that peers may put to and get from.
pub struct hydrant_exposed(());
/// Memory of this rank that is known to stay mapped, for peers that name it by its address.
pub struct hydrant_loan(());
/// The message that a handler handles. It is valid in that handler alone, in its thread.
pub struct hydrant_message(());

/// Names a byte in the memory of some rank, in symmetric or in exposed memory. It has the same meaning on every
/// rank of the job, and may be copied, put and sent as plain bytes. It is checked when it is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_pointer {
    /// The content, which has no meaning for programs.
    pub words: [u64; 4],
}

/// One level of repetition of a section.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_level {
    /// The number of repetitions.
    pub count: usize,
    /// The bytes from the start of one repetition to the start of the next.
    pub stride: usize,
}

/// Bytes of memory, in order: a run of neighbours, repeated by levels. Each level repeats all within it, so that
/// the levels of a section of an array begin with the innermost axis but one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_section {
    /// The first byte, counted from the start of the memory.
    pub start: usize,
    /// The bytes of a run.
    pub run: usize,
    /// The levels, innermost first. It may be null if there are none.
    pub levels: *const hydrant_level,
    /// The number of levels: at most HYDRANT_MOST_LEVELS.
    pub level_count: usize,
}

/// Options of an allocation. Zeros are the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_alloc_options {
    /// The alignment of the first byte in bytes: a power of two, or 0 for that of a page.
    pub align: usize,
    /// One of HYDRANT_HUGE_PAGES_NO, HYDRANT_HUGE_PAGES_TRY and HYDRANT_HUGE_PAGES_REQUIRE.
    pub huge_pages: c_int,
    /// If it is not 0, only addresses are reserved, and hydrant_commit commits memory to a part of them.
    pub reserve: c_int,
}

/// The capabilities of the network of a job. Later versions may add fields at the end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_capabilities {
    /// The name of the network, as in HYDRANT_CONDUIT. It ends with a zero byte.
    pub conduit: [c_char; 32],
    /// The ranks on this host, this one included.
    pub host_ranks: u32,
    /// 1 if the network only accesses registered memory, else 0.
    pub needs_registration: u32,
    /// 1 if peers may name memory of this rank by its address (HYDRANT_ANYWHERE), else 0.
    pub anywhere: u32,
    /// 1 if NICs change words of 64 bits, else 0.
    pub native_atomics: u32,
    /// The most arguments of a request.
    pub max_arguments: usize,
    /// The most arguments of a request that puts data first.
    pub max_arguments_long: usize,
    /// The most bytes of payload of a request or a reply.
    pub max_payload: usize,
    /// The bytes of symmetric memory that each rank may have (HYDRANT_HEAP).
    pub heap: usize,
    /// The highest tag of a message.
    pub max_tag: u64,
}

/// The message that a receive took.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_status {
    /// The tag of the message.
    pub tag: u64,
    /// The bytes of the message.
    pub bytes: usize,
    /// The rank that sent it.
    pub source: u32,
}

/// A counter: the number of events at this rank so far, or an amount.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hydrant_counter {
    /// The name, which is never freed.
    pub name: *const c_char,
    /// The value.
    pub value: u64,
}

/// The type of the elements of a reduction, an accumulate or an atomic operation: one of HYDRANT_U8 to HYDRANT_C64.
pub type hydrant_type = c_int;
/// Elements of type uint8_t.
pub const HYDRANT_U8: c_int = 1;
/// Elements of type int8_t.
pub const HYDRANT_I8: c_int = 2;
/// Elements of type uint16_t.
pub const HYDRANT_U16: c_int = 3;
/// Elements of type int16_t.
pub const HYDRANT_I16: c_int = 4;
/// Elements of type uint32_t.
pub const HYDRANT_U32: c_int = 5;
/// Elements of type int32_t.
pub const HYDRANT_I32: c_int = 6;
/// Elements of type uint64_t.
pub const HYDRANT_U64: c_int = 7;
/// Elements of type int64_t.
pub const HYDRANT_I64: c_int = 8;
/// Elements of type float.
pub const HYDRANT_F32: c_int = 9;
/// Elements of type double.
pub const HYDRANT_F64: c_int = 10;
/// Elements of 16-bit floats of IEEE 754.
pub const HYDRANT_F16: c_int = 11;
/// Elements of type bfloat16.
pub const HYDRANT_BF16: c_int = 12;
/// Elements of type float _Complex: two floats, the real part first.
pub const HYDRANT_C32: c_int = 13;
/// Elements of type double _Complex: two doubles, the real part first.
pub const HYDRANT_C64: c_int = 14;

/// The way in which a reduction makes one element of two: one of HYDRANT_SUM to HYDRANT_XOR.
pub type hydrant_op = c_int;
/// The sum; integers wrap around.
pub const HYDRANT_SUM: c_int = 1;
/// The product; integers wrap around.
pub const HYDRANT_PRODUCT: c_int = 2;
/// The smaller one. A float that is not a number loses. Not for complex numbers.
pub const HYDRANT_MIN: c_int = 3;
/// The larger one. A float that is not a number loses. Not for complex numbers.
pub const HYDRANT_MAX: c_int = 4;
/// The bitwise and; integers alone.
pub const HYDRANT_AND: c_int = 5;
/// The bitwise or; integers alone.
pub const HYDRANT_OR: c_int = 6;
/// The bitwise exclusive or; integers alone.
pub const HYDRANT_XOR: c_int = 7;

/// The effect of an atomic operation: one of HYDRANT_ATOMIC_LOAD to HYDRANT_ATOMIC_XOR.
pub type hydrant_atomic_op = c_int;
/// Gives the value. The operand is ignored.
pub const HYDRANT_ATOMIC_LOAD: c_int = 1;
/// Stores the operand, and gives the previous value.
pub const HYDRANT_ATOMIC_SWAP: c_int = 2;
/// Stores the operand if the value equals the expected one, bit for bit. Gives the previous value.
pub const HYDRANT_ATOMIC_COMPARE_SWAP: c_int = 3;
/// Adds the operand, and gives the previous value. Integers wrap around.
pub const HYDRANT_ATOMIC_ADD: c_int = 4;
/// Takes the bitwise and with the operand, and gives the previous value. Integers alone.
pub const HYDRANT_ATOMIC_AND: c_int = 5;
/// Takes the bitwise or with the operand, and gives the previous value. Integers alone.
pub const HYDRANT_ATOMIC_OR: c_int = 6;
/// Takes the bitwise exclusive or with the operand, and gives the previous value. Integers alone.
pub const HYDRANT_ATOMIC_XOR: c_int = 7;

/// The change of a signal word: HYDRANT_SIGNAL_SET or HYDRANT_SIGNAL_ADD.
pub type hydrant_signal_op = c_int;
/// Sets the word.
pub const HYDRANT_SIGNAL_SET: c_int = 1;
/// Adds to the word.
pub const HYDRANT_SIGNAL_ADD: c_int = 2;

/// The comparison of a word with a value: one of HYDRANT_EQ to HYDRANT_GE.
pub type hydrant_compare = c_int;
/// The word equals the value.
pub const HYDRANT_EQ: c_int = 1;
/// The word differs from the value.
pub const HYDRANT_NE: c_int = 2;
/// The word is less than the value. Both are unsigned.
pub const HYDRANT_LT: c_int = 3;
/// The word is at most the value.
pub const HYDRANT_LE: c_int = 4;
/// The word is greater than the value.
pub const HYDRANT_GT: c_int = 5;
/// The word is at least the value.
pub const HYDRANT_GE: c_int = 6;

/// Huge pages are left to the system.
pub const HYDRANT_HUGE_PAGES_NO: c_int = 0;
/// Huge pages are used if the system has them.
pub const HYDRANT_HUGE_PAGES_TRY: c_int = 1;
/// The allocation fails if the system has no huge pages.
pub const HYDRANT_HUGE_PAGES_REQUIRE: c_int = 2;

/// Any rank, as the source of a receive or a probe.
pub const HYDRANT_ANY_SOURCE: u32 = 0xffff_ffff;
/// Any tag, for receives and probes.
pub const HYDRANT_ANY_TAG: u64 = 0xffff_ffff_ffff_ffff;
/// The color of a rank that becomes a member of no team.
pub const HYDRANT_NO_COLOR: u32 = 0xffff_ffff;
/// The team rank of a rank that is no member.
pub const HYDRANT_NO_RANK: u32 = 0xffff_ffff;
/// No time limit, in nanoseconds.
pub const HYDRANT_FOREVER: u64 = 0xffff_ffff_ffff_ffff;
/// The most levels of a section.
pub const HYDRANT_MOST_LEVELS: usize = 8;

impl hydrant_pointer {
    pub(super) fn of(pointer: GlobalPtr<u8>) -> Self {
        Self {
            words: hydrant::bytemuck::cast(pointer),
        }
    }

    pub(super) fn global<T: Pod + Zeroable>(self) -> GlobalPtr<T> {
        hydrant::bytemuck::cast(self.words)
    }
}

/// The operation of a reduction.
pub(super) fn reduction(op: hydrant_op) -> Result<hydrant::Op> {
    use hydrant::Op;
    Ok(match op {
        HYDRANT_SUM => Op::Sum,
        HYDRANT_PRODUCT => Op::Product,
        HYDRANT_MIN => Op::Min,
        HYDRANT_MAX => Op::Max,
        HYDRANT_AND => Op::And,
        HYDRANT_OR => Op::Or,
        HYDRANT_XOR => Op::Xor,
        _ => return Err(argument(format!("{op} is no operation of a reduction"))),
    })
}

/// The change of a signal word.
pub(super) fn signal(op: hydrant_signal_op, value: u64) -> Result<hydrant::Signal> {
    match op {
        HYDRANT_SIGNAL_SET => Ok(hydrant::Signal::Set(value)),
        HYDRANT_SIGNAL_ADD => Ok(hydrant::Signal::Add(value)),
        _ => Err(argument(format!("{op} is no change of a signal word"))),
    }
}

/// The comparison of a word.
pub(super) fn comparison(
    compare: hydrant_compare,
    value: u64,
) -> Result<impl Fn(u64) -> bool + Copy> {
    if !(HYDRANT_EQ..=HYDRANT_GE).contains(&compare) {
        return Err(argument(format!("{compare} is no comparison")));
    }
    Ok(move |word: u64| match compare {
        HYDRANT_EQ => word == value,
        HYDRANT_NE => word != value,
        HYDRANT_LT => word < value,
        HYDRANT_LE => word <= value,
        HYDRANT_GT => word > value,
        _ => word >= value,
    })
}

/// The error of a number that names no type.
#[cold]
pub(super) fn no_type(number: hydrant_type) -> crate::status::CallFailure {
    argument(format!("{number} is no type of elements"))
}
