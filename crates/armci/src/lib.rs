//! Planned, and not built: ARMCI's operation set (Nieplocha and others 2002) on `hydrant`, and its
//! C ABI. The crate is empty; it is there so that the floors of `ARCHITECTURE.md` can be seen.
