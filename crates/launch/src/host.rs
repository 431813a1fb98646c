//! Which ranks share a host.

use std::env;

use crate::{Bootstrap, Error};

/// The variable that names the host, where the kernel's own name for it will not do.
pub const HOST_ID: &str = "HYDRANT_HOST_ID";

/// The key under which every rank leaves the name of its host.
const ID: &str = "host-id";

/// The key under which rank 0 leaves which ranks share one.
const TABLE: &str = "hosts";

/// The longest name of a host, in characters.
const MAX_NAME: usize = 256;

/// Names the host of this process: the same for two processes if and only if they can share
/// memory.
///
/// It is [`HOST_ID`], if that is set (containers that share a kernel and no memory set it),
/// else [`kernel_id`].
pub fn host_id() -> String {
    let named = env::var(HOST_ID).ok();
    let named = named.map(|name| name.trim().chars().take(MAX_NAME).collect::<String>());
    named
        .filter(|name| !name.is_empty())
        .unwrap_or_else(kernel_id)
}

/// Names the running kernel: the same for two processes if and only if they share it.
pub fn kernel_id() -> String {
    let booted = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    booted.map(|id| id.trim().to_owned()).unwrap_or_else(|_| {
        let name = rustix::system::uname();
        name.nodename().to_string_lossy().into_owned()
    })
}

/// Which host each rank of the job is on, as a number: hosts are counted in the order of their
/// first ranks. Collective, and called once.
///
/// `id` is this rank's host, as [`host_id`] has it. Rank 0 reads them all, the others what it
/// makes of them.
pub fn hosts(bootstrap: &mut dyn Bootstrap, id: &str) -> Result<Vec<u32>, Error> {
    bootstrap.put(ID, id.as_bytes())?;
    bootstrap.fence()?;
    let size = bootstrap.size();
    if bootstrap.rank() == 0 {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let numbers: Result<Vec<u32>, Error> = (0..size)
            .map(|rank| {
                let name = bootstrap.get(rank, ID)?;
                let known = names.iter().position(|known| *known == name);
                Ok(known.unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                }) as u32)
            })
            .collect();
        bootstrap.put(TABLE, &pack(&numbers?))?;
    }
    bootstrap.fence()?;
    let packed = bootstrap.get(0, TABLE)?;
    unpack(&packed, size).ok_or_else(|| Error::Protocol {
        service: bootstrap.name(),
        doing: "reading which ranks share a host".into(),
        got: format!("{} bytes that do not say it of {size} ranks", packed.len()),
    })
}

/// Runs of equal numbers, each as number and length: ranks of a host mostly follow each other.
fn pack(numbers: &[u32]) -> Vec<u8> {
    let runs = numbers.chunk_by(|a, b| a == b);
    runs.flat_map(|run| [run[0], run.len() as u32])
        .flat_map(u32::to_le_bytes)
        .collect()
}

/// So many numbers that were [packed](pack), if they were.
fn unpack(packed: &[u8], count: u32) -> Option<Vec<u32>> {
    let (words, rest) = packed.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let (runs, odd) = words.as_chunks::<2>();
    let whole = rest.is_empty() && odd.is_empty();
    let length: u64 = runs.iter().map(|[_, length]| u64::from(*length)).sum();
    if !whole || length != u64::from(count) {
        return None;
    }
    let of_run = |&[number, length]: &[u32; 2]| std::iter::repeat_n(number, length as usize);
    Some(runs.iter().flat_map(of_run).collect())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_rank_learns_the_hosts() {
        let names = ["b", "b", "a", "b", "c", "c"];
        thread::scope(|scope| {
            for (mut rank, name) in crate::local(6).into_iter().zip(names) {
                scope.spawn(move || {
                    assert_eq!(hosts(&mut rank, name).unwrap(), [0, 0, 1, 0, 2, 2]);
                });
            }
        });
    }

    #[test]
    fn tables_are_small_and_checked() {
        let numbers: Vec<u32> = (0..4096).map(|rank| rank / 64).collect();
        assert_eq!(pack(&numbers).len(), 64 * 8);
        assert_eq!(unpack(&pack(&numbers), 4096), Some(numbers));
        for bad in [
            &[][..],
            &[1, 0, 0, 0],
            &[1, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0xff; 8],
        ] {
            assert_eq!(unpack(bad, 1), None);
        }
        assert_eq!(unpack(&[7, 0, 0, 0, 1, 0, 0, 0], 1), Some(vec![7]));
    }
}
