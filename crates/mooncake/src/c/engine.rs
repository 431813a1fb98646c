//! Engines: begin, name, transport and end.

#![allow(unsafe_code)] // names and pointers of C

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

use crate::{
    edge::{batch_edge, edge, edge_or, name, write_text},
    engine::TransferEngine,
    failure::EngineFailure,
    shutdown,
    types::{transfer_engine_t, transport_t},
};

/// Creates an engine. It listens at a TCP port, by which peers find it.
///
/// - `metadata_conn_string`: "P2PHANDSHAKE".
/// - `local_server_name`: the host or host:port by which peers reach this process. Another port is taken if this one is
///   in use or left out: see getLocalIpAndPort.
/// - `ip_or_host_name`, `rpc_port`: not used.
/// - `auto_discover`: if it is not 0, the transport is installed at once.
///
/// Returns null if it fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn createTransferEngine(
    metadata_conn_string: *const c_char,
    local_server_name: *const c_char,
    ip_or_host_name: *const c_char,
    rpc_port: u64,
    auto_discover: c_int,
) -> transfer_engine_t {
    edge_or("createTransferEngine", null_mut(), || {
        let _ = (ip_or_host_name, rpc_port);
        // SAFETY: 1. C1 and C2.
        let metadata = unsafe { name(metadata_conn_string, "the metadata string")? };
        // SAFETY: 1. C1 and C2.
        let own_name = unsafe { name(local_server_name, "the engine's own name")? };
        TransferEngine::create(metadata, own_name, auto_discover != 0)
    })
}

/// Destroys an engine. When this returns, nothing of its transfers lands any more, and no peer touches its memory. Peers
/// hear that it has left.
#[unsafe(no_mangle)]
pub extern "C" fn destroyTransferEngine(engine: transfer_engine_t) {
    edge("destroyTransferEngine", || {
        TransferEngine::destroy(engine)?;
        Ok(0)
    });
}

/// Does nothing: the network is chosen for each peer. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn discoverTopology(engine: transfer_engine_t) -> c_int {
    edge("discoverTopology", || {
        TransferEngine::get(engine)?;
        Ok(0)
    })
}

/// Writes the name by which peers open this engine, host:port, cut to `buf_len` bytes with the 0 at its end. Returns 0,
/// or -1 without an engine or room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getLocalIpAndPort(
    engine: transfer_engine_t,
    buf_out: *mut c_char,
    buf_len: usize,
) -> c_int {
    edge("getLocalIpAndPort", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        unsafe { write_text(&engine.core.name, buf_out, buf_len)? };
        Ok(0)
    })
}

/// Installs a transport: "tcp", or "hydrant", which is the same. Data goes by the fastest network that reaches the peer.
/// `args` is not used. Returns the transport, the same for each call, or null for another name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn installTransport(
    engine: transfer_engine_t,
    proto: *const c_char,
    args: *mut *mut c_void,
) -> transport_t {
    edge_or("installTransport", null_mut(), || {
        let _ = args;
        let found = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        match unsafe { name(proto, "the name of the transport")? } {
            "tcp" | "hydrant" => Ok(found.install_transport(engine)),
            other => Err(EngineFailure::argument(format!(
                "there is no transport \"{other}\": \"tcp\" chooses the fastest network by itself"
            ))),
        }
    })
}

/// Does nothing. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn uninstallTransport(engine: transfer_engine_t, proto: *const c_char) -> c_int {
    edge("uninstallTransport", || {
        let _ = proto;
        TransferEngine::get(engine)?;
        Ok(0)
    })
}

/// Has the engine destroyed when SIGTERM or SIGINT comes. The signal is raised again then, with the handler that was
/// there before.
#[unsafe(no_mangle)]
pub extern "C" fn enableGracefulShutdown(engine: transfer_engine_t) {
    batch_edge("enableGracefulShutdown", || {
        TransferEngine::get(engine)?;
        shutdown::enable(engine)?;
        Ok(0)
    });
}
