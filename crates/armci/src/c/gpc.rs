//! The functions of `gpc.h`.

use std::{
    ffi::{c_int, c_void},
    slice,
    sync::Arc,
};

use super::{
    armci::armci_hdl_t,
    process::{armci, code, or_die},
};
use crate::{
    Error, Reply, Request, Result, Turn,
    error::{count, not_null},
};

/// The handle of a call, which ARMCI_Gpc_wait completes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct gpc_hdl_t {
    /// The process that runs the procedure.
    pub proc: c_int,
    /// The identification of the call.
    pub ahdl: armci_hdl_t,
    /// The room for the reply's header.
    pub rhdr: *mut c_void,
    /// The room for the reply's data.
    pub rdata: *mut c_void,
}

/// The procedure is run because it was called.
const GPC_INIT: c_int = 1;
/// The procedure is run again because it returned `GPC_PENDING`.
const GPC_PROBE: c_int = 2;
/// The result of a procedure whose reply is not complete.
const GPC_PENDING: c_int = 5;

/// The greatest number of bytes of a header.
const HEADER: c_int = 1024;
/// The greatest number of bytes of data.
const DATA: c_int = 1 << 20;

/// A procedure of C. Its arguments are the process that runs it, the caller, a header and data, the
/// room for the reply's header and data, and GPC_INIT. It stores the lengths of the reply and
/// returns GPC_DONE. If it returns GPC_PENDING, its reply is not complete, and it is run again with
/// the same arguments and GPC_PROBE.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type gpc_func_t = Option<
    unsafe extern "C" fn(
        to: c_int,
        from: c_int,
        hdr: *mut c_void,
        hlen: c_int,
        data: *mut c_void,
        dlen: c_int,
        rhdr: *mut c_void,
        rhlen: c_int,
        rhsize: *mut c_int,
        rdata: *mut c_void,
        rdlen: c_int,
        rdsize: *mut c_int,
        rtype: c_int,
    ) -> c_int,
>;

/// Registers a procedure. Returns its number. All processes register the same procedures in the
/// same order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_register(func: gpc_func_t) -> c_int {
    let act = || -> Result<c_int> {
        let armci = armci()?;
        let func = func.ok_or(Error::Null {
            what: "a procedure",
        })?;
        let me = armci.me();
        let procedure = move |request: &mut Request, turn: Turn| {
            let why = match turn {
                Turn::First => GPC_INIT,
                Turn::Again => GPC_PROBE,
            };
            let Request {
                from,
                header,
                data,
                reply,
            } = request;
            let (mut rhsize, mut rdsize) = (0, 0);
            // SAFETY: C4 of the caller that registered the procedure. All buffers live while the
            // procedure runs, are as long as it is told, and are used by no other code.
            let ended = unsafe {
                func(
                    me,
                    *from,
                    header.as_mut_ptr().cast(),
                    header.len() as c_int,
                    data.as_mut_ptr().cast(),
                    data.len() as c_int,
                    reply.header.as_mut_ptr().cast(),
                    reply.header.len() as c_int,
                    &raw mut rhsize,
                    reply.data.as_mut_ptr().cast(),
                    reply.data.len() as c_int,
                    &raw mut rdsize,
                    why,
                )
            };
            if ended == GPC_PENDING {
                return false;
            }
            reply.header.truncate(usize::try_from(rhsize).unwrap_or(0));
            reply.data.truncate(usize::try_from(rdsize).unwrap_or(0));
            true
        };
        Ok(armci.register(Arc::new(procedure)))
    };
    or_die("ARMCI_Gpc_register", act())
}

/// Unregisters a procedure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_release(handle: c_int) {
    let act = || -> Result<()> {
        armci()?.release(handle);
        Ok(())
    };
    or_die("ARMCI_Gpc_release", act());
}

/// Returns the address by which a process names memory that process `from` named by `ptr`. Memory
/// that ARMCI did not allocate at the process keeps its address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_translate(
    ptr: *mut c_void,
    proc: c_int,
    from: c_int,
) -> *mut c_void {
    let act = || armci()?.translate(ptr.cast(), proc, from);
    or_die("ARMCI_Gpc_translate", act()).cast()
}

/// Takes the lock of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_lock(proc: c_int) {
    let act = || armci()?.lock_procedures(proc);
    or_die("ARMCI_Gpc_lock", act());
}

/// Releases the lock of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_unlock(proc: c_int) {
    let act = || armci()?.unlock_procedures(proc);
    or_die("ARMCI_Gpc_unlock", act());
}

/// Takes the lock of a process if it is free. Returns 1 if it took the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_trylock(proc: c_int) -> c_int {
    let act = || Ok(c_int::from(armci()?.try_lock_procedures(proc)?));
    or_die("ARMCI_Gpc_trylock", act())
}

/// Has a process run a procedure. Without a handle it waits for the reply. With a handle,
/// ARMCI_Gpc_wait waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_exec(
    h: c_int,
    p: c_int,
    hdr: *mut c_void,
    hlen: c_int,
    data: *mut c_void,
    dlen: c_int,
    rhdr: *mut c_void,
    rhlen: c_int,
    rdata: *mut c_void,
    rdlen: c_int,
    nbh: *mut gpc_hdl_t,
) -> c_int {
    let act = || -> Result<()> {
        let armci = armci()?;
        let given = |at: *mut c_void, len: c_int, most: c_int, what| -> Result<&[u8]> {
            let bytes = count(len.into(), 0, what)?;
            if len > most {
                return Err(Error::TooLong {
                    what,
                    bytes: len.into(),
                    most: most.into(),
                });
            }
            if bytes == 0 {
                return Ok(&[]);
            }
            not_null(at, what)?;
            // SAFETY: `at` has `len` bytes that no other code writes to, by C1 and C2.
            Ok(unsafe { slice::from_raw_parts(at.cast(), bytes) })
        };
        let header = given(hdr, hlen, HEADER, "the header of a call")?;
        let data = given(data, dlen, DATA, "the data of a call")?;
        let lengths = [
            count(rhlen.into(), 0, "the room for a reply's header")?,
            count(rdlen.into(), 0, "the room for a reply's data")?,
        ];
        for (at, length) in [(rhdr, rhlen), (rdata, rdlen)] {
            if length > 0 {
                not_null(at, "the room for a reply")?;
            }
        }
        // SAFETY: `nbh` is null or a handle that no other code uses, by C1 and C2.
        let Some(handle) = (unsafe { nbh.as_mut() }) else {
            let reply = armci.execute(h, p, header, data, lengths)?;
            // SAFETY: 1. The reply is no longer than the room, which C1 grants.
            unsafe { write_reply(reply, rhdr, rdata) };
            return Ok(());
        };
        let name = armci.execute_nb(h, p, header, data, lengths)?;
        handle.proc = p;
        handle.ahdl.data = [name, h, 0, 0];
        (handle.rhdr, handle.rdata) = (rhdr, rdata);
        Ok(())
    };
    code("ARMCI_Gpc_exec", act())
}

/// The greatest number of bytes of a call's header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Get_gpc_hlen() -> c_int {
    HEADER
}

/// The greatest number of bytes of a call's data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Get_gpc_dlen() -> c_int {
    DATA
}

/// The greatest number of bytes of a call's header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_get_hlen() -> c_int {
    HEADER
}

/// The greatest number of bytes of a call's data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_get_dlen() -> c_int {
    DATA
}

/// Initializes a handle: it names no call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_init_handle(nbh: *mut gpc_hdl_t) {
    if !nbh.is_null() {
        // SAFETY: `nbh` is writable for a handle, by C1, and no other code uses it, by C2.
        unsafe { nbh.write_bytes(0, 1) };
    }
}

/// Waits for the reply of a call that was begun with a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_wait(nbh: *mut gpc_hdl_t) {
    let act = || -> Result<()> {
        // SAFETY: `nbh` is null or a handle that no other code uses, by C1 and C2.
        let handle = unsafe { nbh.as_mut() }.ok_or(Error::Null { what: "a handle" })?;
        let [name, number, ..] = std::mem::take(&mut handle.ahdl.data);
        if name != 0
            && let Some(reply) = armci()?.wait_executed(name, number)?
        {
            // SAFETY: 1. The reply is no longer than the room of the call, which C1 grants until
            // now, as C2 says.
            unsafe { write_reply(reply, handle.rhdr, handle.rdata) };
        }
        Ok(())
    };
    or_die("ARMCI_Gpc_wait", act());
}

/// Writes a reply to the caller's room.
///
/// # Safety
/// 1. `rhdr` and `rdata` have room for the reply's header and data.
unsafe fn write_reply(reply: Reply, rhdr: *mut c_void, rdata: *mut c_void) {
    for (at, bytes) in [(rhdr, reply.header), (rdata, reply.data)] {
        if !bytes.is_empty() {
            // SAFETY: there is room for the bytes, by the caller's condition 1. The reply is
            // another allocation.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len()) };
        }
    }
}
