//! What cannot be, where a value must be taken out of a table that surely has it.

/// Says what cannot be: a bug of the engine, or of a driver that reports what it was not asked
/// for. Debug builds stop there; others leave that step undone, and the rank lives on.
#[track_caller]
#[cold]
pub(super) fn impossible(what: &str) {
    debug_assert!(false, "impossible: {what}");
}
