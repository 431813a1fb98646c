//! The nodes. Processes that map each other's memory share a node.

use hydrant::Job;

use crate::{Armci, Error, Result};

/// The nodes, each with its processes in order. The first process of a node is its master.
pub(crate) struct Nodes {
    nodes: Vec<Vec<usize>>,
    /// The number of each process's node.
    of: Vec<usize>,
}

impl Nodes {
    /// Collective.
    pub(crate) fn new(job: &Job) -> Result<Self> {
        let master = job.host_ranks().next().unwrap_or(job.rank());
        let masters = job.all_gather(&[master.index()])?;
        let mut nodes: Vec<Vec<usize>> = Vec::new();
        let mut of = Vec::with_capacity(masters.len());
        for (proc, master) in masters.iter().enumerate() {
            let known = nodes.iter().position(|node| node[0] == *master);
            let number = known.unwrap_or_else(|| {
                nodes.push(Vec::new());
                nodes.len() - 1
            });
            nodes[number].push(proc);
            of.push(number);
        }
        Ok(Self { nodes, of })
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The node of a process.
    pub(crate) fn of(&self, proc: usize) -> usize {
        self.of[proc]
    }

    /// The processes of a node.
    pub(crate) fn processes(&self, node: usize) -> &[usize] {
        &self.nodes[node]
    }

    /// The first process of each node.
    pub(crate) fn masters(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node[0]).collect()
    }
}

impl Armci {
    /// The number of nodes.
    pub fn nodes(&self) -> i32 {
        self.nodes.count() as i32
    }

    /// The node of a process.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    pub fn node_of(&self, proc: i32) -> Result<i32> {
        let proc = self.memory.process(proc)?;
        Ok(self.nodes.of(proc) as i32)
    }

    /// The processes of a node. A negative number means the node of this process.
    ///
    /// # Errors
    /// [`Error::Number`] if there is no such node.
    pub fn processes_of(&self, node: i32) -> Result<&[usize]> {
        let number = match usize::try_from(node) {
            Err(_) => self.nodes.of(self.me),
            Ok(number) if number < self.nodes.count() => number,
            Ok(_) => {
                return Err(Error::Number {
                    what: "the number of a node",
                    value: node.into(),
                    least: 0,
                });
            }
        };
        Ok(self.nodes.processes(number))
    }
}
