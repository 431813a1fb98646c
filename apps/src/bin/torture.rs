//! Everything that the API can do, at random, checked; see [`hydrant_apps::torture`].

use std::process::ExitCode;

use hydrant_apps::torture::Heap;

/// In virtual time two runs of one seed are the same, and so their buffers lie alike.
#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    hydrant_apps::torture::main()
}
