//! The agreement of a team, and short data that is piggybacked on it.
//!
//! | file | what it does |
//! |---|---|
//! | [`header`] | the call that members compare |
//! | [`rounds`] | the rounds: one future for blocking and background collectives |
//! | [`comparison`], [`messages`] | the message of a round; sending and reading it |
//! | [`piggyback`] | which bytes go out and come in with each round |
//! | [`blocks`], [`from_root`] | data of all members, and of a root |
//!
//! Collectives call [`Team::agree`](crate::Team) and the functions whose names begin with `piggyback`. They
//! say which data they give and want, and not how it moves. Nothing here calls a collective or a stream.

mod blocks;
mod comparison;
mod from_root;
mod header;
mod messages;
mod piggyback;
mod rounds;

pub(super) use blocks::{BlockAgreement, PiggybackedBlocks};
pub(super) use header::CallHeader;
pub(crate) use header::CollectiveKind;
pub(super) use piggyback::Wanted;
pub(super) use rounds::Agreement;
