//! Explains the fault of an operation with a buffer that this process cannot read or write, before
//! the system ends the process. A check of each buffer beforehand would cost more than most
//! operations.
//!
//! The handler prints a sentence if the fault is in this library, or in a system function that it
//! called. Then it does what would happen without it: it calls the program's own handler, or lets
//! the system end the process.

use std::{
    ffi::{c_int, c_void},
    ops::Range,
    ptr,
    sync::{
        Once, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// The program's actions for each signal, from before this library's handler.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
/// The signals of a fault.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The address range of this library's code, and this process's number.
static KNOWN: OnceLock<(Range<usize>, i32)> = OnceLock::new();

/// True once the sentence was printed. The fault comes again if the program's handler does not mend
/// it.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// The registers of the thread at the fault.
struct FaultRegisters {
    instruction: usize,
    stack: usize,
    /// True if the instruction writes, `None` if the processor does not tell.
    writes: Option<bool>,
}

/// Installs the handler. Does nothing if this library is part of the program itself, because then
/// the program's own faults look the same.
pub(super) fn explain(me: i32) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(code) = own_code() else { return };
        if KNOWN.set((code, me)).is_err() {
            return;
        }
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: a `sigaction` of zero bytes is valid.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // SAFETY: a `sigaction` of zero bytes is valid.
            let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: the new action is null, and `old` has room.
            if unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) } == 0 {
                let _ = before.set(old);
                // SAFETY: `action` is complete, and the handler does only what a signal handler may
                // do.
                unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
            }
        }
    });
}

/// The address range of this library's code, or `None` if the library is part of the program.
fn own_code() -> Option<Range<usize>> {
    struct Search {
        wanted: usize,
        seen: usize,
        found: Option<Range<usize>>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: `own_code` passes its own `Search`.
        let search = unsafe { &mut *search.cast::<Search>() };
        // SAFETY: the loader passes a valid description of an object.
        let info = unsafe { &*info };
        // SAFETY: the object has `dlpi_phnum` headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        search.seen += 1;
        for header in headers {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let range = start..start.wrapping_add(header.p_memsz as usize);
            if header.p_type == libc::PT_LOAD && range.contains(&search.wanted) {
                // The first object is the program.
                search.found = Some(range).filter(|_| search.seen > 1);
                return 1;
            }
        }
        0
    }
    let mut search = Search {
        wanted: explain as *const () as usize,
        seen: 0,
        found: None,
    };
    // SAFETY: `visit` takes a `Search`, which lives until this call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

extern "C" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the description of the signal, which no other code writes to.
    let description = unsafe { &*info };
    // SAFETY: a fault's description has an address.
    let address = unsafe { description.si_addr() } as usize;
    // SAFETY: 1. The system passes the context to this handler.
    let registers = unsafe { registers(context) };
    if let (Some((code, me)), Some(registers)) = (KNOWN.get(), registers)
        && is_ours(code, &registers)
        && !PRINTED.swap(true, Relaxed)
    {
        print_fault(*me, address, registers.writes);
    }
    let at = SIGNALS.iter().position(|known| *known == signal);
    let before = at.and_then(|at| BEFORE[at].get());
    match before.map(|before| (before, before.sa_sigaction)) {
        Some((before, handler)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            if before.sa_flags & libc::SA_SIGINFO == 0 {
                // SAFETY: without that flag the program's handler has this type.
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            } else {
                // SAFETY: with that flag the program's handler has this type.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            }
        }
        // The fault comes again, and then the system ends the process.
        _ => {
            // SAFETY: this sets the default action of a valid signal.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if description.si_code <= 0 {
                // A process sent the signal, so it does not come again.
                // SAFETY: this ends the process, as the signal that was sent would have done.
                unsafe { libc::raise(signal) };
            }
        }
    }
}

/// Returns true if the thread was in this library, or in a system function that this library called. Such
/// a function has not moved its stack pointer, which points to its return address.
fn is_ours(code: &Range<usize>, registers: &FaultRegisters) -> bool {
    if code.contains(&registers.instruction) {
        return true;
    }
    // A system call reads the word, because it fails without a fault if an overflowed stack has no
    // memory.
    let mut top = 0_usize;
    let own = libc::iovec {
        iov_base: (&raw mut top).cast(),
        iov_len: size_of::<usize>(),
    };
    let stack = libc::iovec {
        iov_base: ptr::with_exposed_provenance_mut(registers.stack),
        iov_len: size_of::<usize>(),
    };
    // SAFETY: the call has no conditions.
    let pid = unsafe { libc::getpid() };
    // SAFETY: the call writes only to `top`, and only reads the stack.
    let read = unsafe { libc::process_vm_readv(pid, &raw const own, 1, &raw const stack, 1, 0) };
    read == size_of::<usize>() as isize && code.contains(&top)
}

/// Prints the sentence, with calls that a signal handler may make.
fn print_fault(me: i32, address: usize, writes: Option<bool>) {
    let mut line = FaultLine {
        bytes: [0; 320],
        len: 0,
    };
    line.decimal(me.unsigned_abs().into());
    line.text(b": ARMCI: the memory at 0x");
    line.hexadecimal(address);
    line.text(b" of this process cannot be ");
    line.text(match writes {
        Some(true) => b"written",
        Some(false) => b"read",
        None => b"read or written",
    });
    line.text(
        b", and an operation was given it: check the buffer and the number of bytes that it was called with\n",
    );
    // SAFETY: `line.bytes` has `line.len` bytes.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.len) };
}

/// The printed line, built without allocation.
struct FaultLine {
    bytes: [u8; 320],
    len: usize,
}

impl FaultLine {
    fn text(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(room) = self.bytes.get_mut(self.len) {
                *room = *byte;
                self.len += 1;
            }
        }
    }

    fn decimal(&mut self, number: u64) {
        if number >= 10 {
            self.decimal(number / 10);
        }
        self.text(&[b'0' + (number % 10) as u8]);
    }

    fn hexadecimal(&mut self, number: usize) {
        if number >= 16 {
            self.hexadecimal(number / 16);
        }
        self.text(&[b"0123456789abcdef"[number % 16]]);
    }
}

/// The registers in the context of a signal handler.
///
/// # Safety
/// 1. The system passed `context` to a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *mut c_void) -> Option<FaultRegisters> {
    // SAFETY: the context is a `ucontext_t`, by the caller's condition 1.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    Some(FaultRegisters {
        instruction: registers[libc::REG_RIP as usize] as usize,
        stack: registers[libc::REG_RSP as usize] as usize,
        writes: Some(registers[libc::REG_ERR as usize] & 2 != 0),
    })
}

/// As for x86-64, but the processor does not tell whether the instruction writes.
///
/// # Safety
/// 1. The system passed `context` to a signal handler.
#[cfg(target_arch = "aarch64")]
unsafe fn registers(context: *mut c_void) -> Option<FaultRegisters> {
    // SAFETY: the context is a `ucontext_t`, by the caller's condition 1.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    Some(FaultRegisters {
        instruction: registers.pc as usize,
        stack: registers.sp as usize,
        writes: None,
    })
}

/// The registers of other processors are not read.
///
/// # Safety
/// There are no conditions.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn registers(_: *mut c_void) -> Option<FaultRegisters> {
    None
}
