//! Every operation of the API, at random, checked; see [`hydrant_apps::torture`].

use std::process::ExitCode;

use hydrant_apps::torture::Heap;

/// In virtual time two runs of one seed must be equal, so their buffers must have the same layout.
#[global_allocator]
static HEAP: Heap = Heap;

fn main() -> ExitCode {
    hydrant_apps::torture::main()
}
