//! The class of each error of the crate `hydrant`.

use std::ffi::c_int;

use hydrant::Error;

use super::{
    HYDRANT_ERROR_ADDRESS, HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT, HYDRANT_ERROR_BACKLOG,
    HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_BUSY, HYDRANT_ERROR_CANCELLED, HYDRANT_ERROR_CLOSED,
    HYDRANT_ERROR_DESCRIPTOR, HYDRANT_ERROR_EXPELLED, HYDRANT_ERROR_EXPIRED, HYDRANT_ERROR_FORKED,
    HYDRANT_ERROR_FREED, HYDRANT_ERROR_FULL, HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_HANDLER,
    HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_LAUNCH, HYDRANT_ERROR_LEFT,
    HYDRANT_ERROR_LENGTH, HYDRANT_ERROR_LOCK, HYDRANT_ERROR_MEMORY, HYDRANT_ERROR_MISMATCH,
    HYDRANT_ERROR_NETWORK, HYDRANT_ERROR_OPERATION, HYDRANT_ERROR_OTHER,
    HYDRANT_ERROR_OTHERS_ENDED, HYDRANT_ERROR_OVERFLOW, HYDRANT_ERROR_OVERLAP,
    HYDRANT_ERROR_PEER_ENDED, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_PERMISSION,
    HYDRANT_ERROR_POINTER, HYDRANT_ERROR_RANK, HYDRANT_ERROR_REFUSED, HYDRANT_ERROR_REGISTRATION,
    HYDRANT_ERROR_REPLY, HYDRANT_ERROR_RESULT_LOST, HYDRANT_ERROR_REVOKED, HYDRANT_ERROR_SETTING,
    HYDRANT_ERROR_TAG, HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_TURN,
    HYDRANT_ERROR_UNREACHABLE,
};

/// The number of a class of errors.
pub(super) fn code_of(cause: &Error) -> c_int {
    match cause {
        Error::RankOutOfRange { .. } | Error::TeamRankOutOfRange { .. } => HYDRANT_ERROR_RANK,
        Error::OutOfBounds { .. }
        | Error::OutsideBuffer { .. }
        | Error::BlockOutOfBounds { .. } => HYDRANT_ERROR_BOUNDS,
        Error::Misaligned { .. } => HYDRANT_ERROR_ALIGNMENT,
        Error::AnywhereRefused { .. } => HYDRANT_ERROR_REFUSED,
        Error::Overlap { .. } | Error::SectionOverlap { .. } | Error::BlocksOverlap { .. } => {
            HYDRANT_ERROR_OVERLAP
        }
        Error::SectionOverflow { .. } => HYDRANT_ERROR_OVERFLOW,
        Error::LengthMismatch { .. } | Error::CountMismatch { .. } => HYDRANT_ERROR_LENGTH,
        Error::SectionLevels { .. }
        | Error::NothingToWaitFor
        | Error::ZeroSized { .. }
        | Error::RankMismatch { .. } => HYDRANT_ERROR_ARGUMENT,
        Error::ReceiveTooShort { .. }
        | Error::MessageTooLong { .. }
        | Error::TooManyArgs { .. } => HYDRANT_ERROR_TOO_LONG,
        Error::ReservedTag { .. } => HYDRANT_ERROR_TAG,
        Error::UnknownHandler { .. }
        | Error::HandlerPanicked { .. }
        | Error::TooManyHandlers { .. } => HYDRANT_ERROR_HANDLER,
        Error::NoReply => HYDRANT_ERROR_REPLY,
        Error::InHandler { .. } => HYDRANT_ERROR_IN_HANDLER,
        Error::OnwardFull { .. } => HYDRANT_ERROR_BACKLOG,
        Error::CollectiveMismatch { .. } => HYDRANT_ERROR_MISMATCH,
        Error::OutOfTurn { .. } => HYDRANT_ERROR_TURN,
        Error::UnsuitableOp { .. } => HYDRANT_ERROR_OPERATION,
        Error::Freed => HYDRANT_ERROR_FREED,
        Error::Revoked { .. } => HYDRANT_ERROR_REVOKED,
        Error::ForeignHandle {
            what: "global pointer",
        }
        | Error::ForgedPointer { .. }
        | Error::PointerTooWide { .. } => HYDRANT_ERROR_POINTER,
        Error::ForeignHandle { .. } => HYDRANT_ERROR_HANDLE,
        Error::BadAddress { .. } => HYDRANT_ERROR_ADDRESS,
        Error::JobOver => HYDRANT_ERROR_JOB_OVER,
        Error::Forked { .. } => HYDRANT_ERROR_FORKED,
        Error::PeerLost(_) => HYDRANT_ERROR_PEER_LOST,
        Error::PeerEnded { .. } => HYDRANT_ERROR_PEER_ENDED,
        Error::OthersEnded { .. } => HYDRANT_ERROR_OTHERS_ENDED,
        Error::Expelled(_) => HYDRANT_ERROR_EXPELLED,
        Error::OutOfMemory { .. } => HYDRANT_ERROR_MEMORY,
        Error::Registration(_)
        | Error::RegistrationTimeout { .. }
        | Error::WordNotRegistered { .. } => HYDRANT_ERROR_REGISTRATION,
        Error::MutexHeld { .. } | Error::MutexNotHeld { .. } => HYDRANT_ERROR_LOCK,
        Error::ResultLost { .. } => HYDRANT_ERROR_RESULT_LOST,
        Error::Setting { .. } => HYDRANT_ERROR_SETTING,
        Error::Launch(_) => HYDRANT_ERROR_LAUNCH,
        Error::Conduit(_) => HYDRANT_ERROR_NETWORK,
        _ => HYDRANT_ERROR_OTHER,
    }
}

/// The number of a class of errors of endpoints.
pub(super) fn endpoint_code_of(cause: &hydrant::endpoint::Error) -> c_int {
    use hydrant::endpoint::Error;
    match cause {
        Error::BadAddress(_)
        | Error::BadDescriptor(_)
        | Error::Forged { .. }
        | Error::OtherOwner { .. } => HYDRANT_ERROR_DESCRIPTOR,
        Error::OwnAddress | Error::Unreachable { .. } | Error::NotConnected { .. } => {
            HYDRANT_ERROR_UNREACHABLE
        }
        Error::NameTooLong { .. } | Error::MessageTooLong { .. } => HYDRANT_ERROR_TOO_LONG,
        Error::Lost { .. } => HYDRANT_ERROR_PEER_LOST,
        Error::Left { .. } => HYDRANT_ERROR_LEFT,
        Error::Revoked { .. } => HYDRANT_ERROR_REVOKED,
        Error::Expired { .. } => HYDRANT_ERROR_EXPIRED,
        Error::NotPermitted { .. } | Error::Forbidden { .. } => HYDRANT_ERROR_PERMISSION,
        Error::OutOfBounds { .. } | Error::BadRange { .. } => HYDRANT_ERROR_BOUNDS,
        Error::LengthMismatch { .. } => HYDRANT_ERROR_LENGTH,
        Error::NotMapped { .. } => HYDRANT_ERROR_ADDRESS,
        Error::Exhausted { .. } | Error::NarrowedTooOften { .. } => HYDRANT_ERROR_FULL,
        Error::NoRoom { .. } | Error::StillInUse { .. } => HYDRANT_ERROR_BUSY,
        Error::DeadlinePassed { .. } | Error::TimedOut { .. } => HYDRANT_ERROR_TIMEOUT,
        Error::Cancelled { .. } => HYDRANT_ERROR_CANCELLED,
        Error::Closed => HYDRANT_ERROR_CLOSED,
        Error::Forked => HYDRANT_ERROR_FORKED,
        Error::System(_) => HYDRANT_ERROR_NETWORK,
        _ => HYDRANT_ERROR_OTHER,
    }
}
