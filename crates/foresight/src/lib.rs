//! Planned, and not built: predicting when a buffer will be needed again (Li and others 2011), as a
//! state machine without I/O, clock or threads. The crate is empty; it is there so that the floors
//! of `ARCHITECTURE.md` can be seen.
