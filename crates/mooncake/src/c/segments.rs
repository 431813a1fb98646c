//! Segments: the memory of peers.

#![allow(unsafe_code)] // names and pointers of C

use std::ffi::{c_char, c_int};

use crate::{
    edge::{edge, edge_or, name},
    engine::TransferEngine,
    failure::EngineFailure,
    segments::Freshness,
    types::{segment_id_t, transfer_engine_t},
};

/// Opens the segment of the engine at host:port. The first call contacts it, and later ones return the same number, even
/// if the engine has ended. An engine that returns under the same name is found by the next transfer.
///
/// Returns 0 for the own name, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openSegment(
    engine: transfer_engine_t,
    segment_name: *const c_char,
) -> segment_id_t {
    edge_or("openSegment", -1, || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        let name = unsafe { name(segment_name, "the name of the segment")? };
        engine.segments.open(&engine.core, name, Freshness::Cached)
    })
}

/// As openSegment, but contacts the engine in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openSegmentNoCache(
    engine: transfer_engine_t,
    segment_name: *const c_char,
) -> segment_id_t {
    edge_or("openSegmentNoCache", -1, || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        let name = unsafe { name(segment_name, "the name of the segment")? };
        engine.segments.open(&engine.core, name, Freshness::Asked)
    })
}

/// Does nothing. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn closeSegment(engine: transfer_engine_t, segment_id: segment_id_t) -> c_int {
    edge("closeSegment", || {
        let _ = segment_id;
        TransferEngine::get(engine)?;
        Ok(0)
    })
}

/// Forgets the segment of a peer, and its number. Returns 0, even if there was none; -1 for an empty name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn removeLocalSegment(
    engine: transfer_engine_t,
    segment_name: *const c_char,
) -> c_int {
    edge("removeLocalSegment", || {
        let engine = TransferEngine::get(engine)?;
        // SAFETY: 1. C1 and C2.
        let name = unsafe { name(segment_name, "the name of the segment")? };
        let name = name.strip_prefix('/').unwrap_or(name);
        if name.is_empty() {
            return Err(EngineFailure::argument("the name of the segment is empty"));
        }
        engine.segments.remove(name);
        Ok(0)
    })
}

/// Contacts the engines of all segments. Returns 0, even if some are not reached.
#[unsafe(no_mangle)]
pub extern "C" fn syncSegmentCache(engine: transfer_engine_t) -> c_int {
    edge("syncSegmentCache", || {
        let engine = TransferEngine::get(engine)?;
        for segment in engine.segments.all() {
            let _ = segment.link(&engine.core, Freshness::Asked);
        }
        Ok(0)
    })
}

/// Does nothing: no network here needs it. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn warmupEfaSegment(
    engine: transfer_engine_t,
    segment_name: *const c_char,
) -> c_int {
    edge("warmupEfaSegment", || {
        let _ = segment_name;
        TransferEngine::get(engine)?;
        Ok(0)
    })
}
