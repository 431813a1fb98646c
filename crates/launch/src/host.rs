//! Which ranks share a host.

use std::env;

use crate::{Bootstrap, Error};

/// The variable that names the host, where the kernel's own name for it will not do.
pub const HOST_ID: &str = "HYDRANT_HOST_ID";

/// The key under which every rank leaves the name of its host.
const KEY: &str = "host-id";

/// The longest name of a host, in characters.
const MAX_NAME: usize = 256;

/// Names the host of this process: the same for two processes if and only if they can share
/// memory.
///
/// It is [`HOST_ID`], if that is set (containers that share a kernel and no memory set it),
/// else what the running kernel calls this boot.
pub fn host_id() -> String {
    let named = env::var(HOST_ID).ok().filter(|name| !name.is_empty());
    let booted = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    let id = named.or_else(booted).unwrap_or_else(|| {
        let name = rustix::system::uname();
        name.nodename().to_string_lossy().into_owned()
    });
    id.trim().chars().take(MAX_NAME).collect()
}

/// Which host each rank of the job is on, as a number: hosts are counted in the order of their
/// first ranks. Collective, and called once.
///
/// `id` is this rank's host, as [`host_id`] has it.
pub fn hosts(bootstrap: &mut dyn Bootstrap, id: &str) -> Result<Vec<u32>, Error> {
    bootstrap.put(KEY, id.as_bytes())?;
    bootstrap.fence()?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    (0..bootstrap.size())
        .map(|rank| {
            let name = bootstrap.get(rank, KEY)?;
            let known = names.iter().position(|known| *known == name);
            let number = known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            Ok(number as u32)
        })
        .collect()
}
