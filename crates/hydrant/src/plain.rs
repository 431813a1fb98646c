//! `Pod` and `Zeroable`, each a trait of `bytemuck` and a derive of ours in one name.

// The derives of the same names come along with all the rest, and give way to ours, which are
// named.
pub use bytemuck::*;
pub use hydrant_derive::{Pod, Zeroable};
