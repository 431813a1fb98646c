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

/// The handle of a call. ARMCI_Gpc_wait says when it is complete.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct gpc_hdl_t {
    /// The process that ran it.
    pub proc: c_int,
    /// What else is known of the call.
    pub ahdl: armci_hdl_t,
    /// Where its reply goes.
    pub rhdr: *mut c_void,
    /// As well.
    pub rdata: *mut c_void,
}

/// Why a procedure is run: because it was called, or because it returned `GPC_PENDING`.
const GPC_INIT: c_int = 1;
const GPC_PROBE: c_int = 2;
/// What it returns if its reply is not complete.
const GPC_PENDING: c_int = 5;

/// Most bytes of a header and of data.
const HEADER: c_int = 1024;
const DATA: c_int = 1 << 20;

/// A procedure of C: who runs it and who called, a header and data, room for those of its reply and how
/// long they are, and why it is run: GPC_INIT when it is called. If it returns GPC_PENDING, and not
/// GPC_DONE, its reply is not complete, and it is run again with the same arguments and GPC_PROBE.
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

/// Registers a procedure: its number. All processes register the same ones, in the same order.
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
            // SAFETY: everything is there for as long as it runs; the rest is the procedure's.
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

/// Forgets a procedure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_release(handle: c_int) {
    let act = || -> Result<()> {
        armci()?.release(handle);
        Ok(())
    };
    or_die("ARMCI_Gpc_release", act());
}

/// Where a process finds memory that another one named by its address: what ARMCI allocated of the
/// process itself is where the other one calls it.
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

/// Gives the lock of a process back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_unlock(proc: c_int) {
    let act = || armci()?.unlock_procedures(proc);
    or_die("ARMCI_Gpc_unlock", act());
}

/// Takes the lock of a process, if nobody has it: 1 if it did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_trylock(proc: c_int) -> c_int {
    let act = || Ok(c_int::from(armci()?.try_lock_procedures(proc)?));
    or_die("ARMCI_Gpc_trylock", act())
}

/// Has a process run a procedure. Without a handle it waits for the reply; with one, ARMCI_Gpc_wait does.
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
            // SAFETY: what C's caller promises.
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
        // SAFETY: null or a handle, says C's caller.
        let Some(handle) = (unsafe { nbh.as_mut() }) else {
            let reply = armci.execute(h, p, header, data, lengths)?;
            // SAFETY: no more than there is room, says C's caller.
            unsafe { give(reply, rhdr, rdata) };
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

/// Most bytes of the header of a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Get_gpc_hlen() -> c_int {
    HEADER
}

/// Most bytes of the data of a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Get_gpc_dlen() -> c_int {
    DATA
}

/// Most bytes of the header of a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_get_hlen() -> c_int {
    HEADER
}

/// Most bytes of the data of a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_get_dlen() -> c_int {
    DATA
}

/// Makes a handle one of no call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_init_handle(nbh: *mut gpc_hdl_t) {
    if !nbh.is_null() {
        // SAFETY: room for a handle, says C's caller.
        unsafe { nbh.write_bytes(0, 1) };
    }
}

/// Waits for a call that was begun with a handle: its reply is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Gpc_wait(nbh: *mut gpc_hdl_t) {
    let act = || -> Result<()> {
        // SAFETY: null or a handle, says C's caller.
        let handle = unsafe { nbh.as_mut() }.ok_or(Error::Null { what: "a handle" })?;
        let [name, number, ..] = std::mem::take(&mut handle.ahdl.data);
        if name != 0
            && let Some(reply) = armci()?.wait_executed(name, number)?
        {
            // SAFETY: no more than there is room, says C's caller.
            unsafe { give(reply, handle.rhdr, handle.rdata) };
        }
        Ok(())
    };
    or_die("ARMCI_Gpc_wait", act());
}

/// Puts a reply where it goes.
///
/// # Safety
/// There is as much room.
unsafe fn give(reply: Reply, rhdr: *mut c_void, rdata: *mut c_void) {
    for (at, bytes) in [(rhdr, reply.header), (rdata, reply.data)] {
        if !bytes.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len()) };
        }
    }
}
