//! Pointers that one atomic operation publishes.

use hydrant::{Error, GlobalPtr, Job, PackedPtr, Rank, Result, Symmetric};

use crate::support::local;

const NODES: usize = 30;

/// A stack whose links go from rank to rank: its head lies at rank 0, a node is two words, the
/// packed pointer of the next one and a value.
struct Stack<'a> {
    job: &'a Job,
    head: Symmetric<u64>,
}

impl Stack<'_> {
    fn push(&self, node: GlobalPtr<u64>) -> Result<()> {
        let packed = self.job.pack(node)?;
        assert_eq!(self.job.unpack(packed)?, node);
        let mut first = self.head.atomic_load(Rank(0), 0)?;
        loop {
            self.job.put_to(node, &[first])?;
            let found = self
                .head
                .compare_swap(Rank(0), 0, first, packed.to_bits())?;
            if found == first {
                return Ok(());
            }
            first = found;
        }
    }

    /// Nodes are pushed once, so that none comes back under the eyes of who pops.
    fn pop(&self) -> Result<Option<u64>> {
        loop {
            let first = self.head.atomic_load(Rank(0), 0)?;
            let packed = PackedPtr::of_bits(first);
            if packed.is_null() {
                return Ok(None);
            }
            let mut node = [0; 2];
            self.job.get_from(self.job.unpack(packed)?, &mut node)?;
            if self.head.compare_swap(Rank(0), 0, first, node[0])? == first {
                return Ok(Some(node[1]));
            }
        }
    }
}

#[test_on(every)]
fn a_stack_of_all_ranks_nodes() {
    local(3, |job| {
        let head = job.alloc::<u64>(1)?;
        let symmetric = job.alloc::<u64>(2 * NODES)?;
        let mut exposed = job.expose(vec![0_u64; 2 * NODES])?;
        let stack = Stack { job, head };
        for round in 0..2 {
            job.barrier()?;
            for number in 0..NODES {
                let value = (job.rank().index() * NODES + number) as u64;
                let node = match round {
                    0 => symmetric.pointer(job.rank(), 2 * number)?,
                    _ => exposed.pointer(2 * number)?,
                };
                job.put_to(node.offset(1), &[value])?;
                stack.push(node)?;
            }
            let mut popped = Vec::new();
            for _ in 0..NODES / 2 {
                popped.extend(stack.pop()?);
            }
            job.barrier()?;
            while let Some(value) = stack.pop()? {
                popped.push(value);
            }
            popped.resize(3 * NODES, u64::MAX);
            let mut all = job.all_gather(&popped)?;
            all.retain(|value| *value < u64::MAX);
            all.sort_unstable();
            assert!(all.into_iter().eq(0..3 * NODES as u64), "round {round}");
        }
        job.barrier()?;
        // What is packed says no more of memory that is gone than a pointer does.
        let stale = job.pack(exposed.pointer(0)?)?;
        let told = job.all_gather(&[stale])?[job.right().index()];
        exposed = job.expose(vec![0; 2 * NODES])?;
        job.barrier()?;
        let gone = job.get_from(job.unpack(told)?, &mut [0; 2]);
        assert!(matches!(gone, Err(Error::Revoked { .. })), "{gone:?}");
        let far = job.pack(exposed.pointer(0)?.offset(1 << 58));
        assert!(matches!(far, Err(Error::PointerTooWide { .. })), "{far:?}");
        let unknown = job.unpack(PackedPtr::<u64>::of_bits(u64::MAX));
        assert!(
            matches!(
                unknown,
                Err(Error::ForgedPointer { .. } | Error::RankOutOfRange { .. })
            ),
            "{unknown:?}"
        );
        job.barrier()
    });
}
