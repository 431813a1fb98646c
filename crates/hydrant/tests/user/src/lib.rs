//! Programs as users of Hydrant write them, in a crate that depends on `hydrant` and nothing below
//! it. The programs are in `src/bin`, what is expected of them in `tests`.
