//! `Pod` and `Zeroable`: each name is a trait of `bytemuck` and a derive macro of Hydrant.

// The glob also exports the derives of `bytemuck`. The derives of Hydrant are named, so they take
// precedence.
pub use bytemuck::*;
pub use hydrant_derive::{Pod, Zeroable};
