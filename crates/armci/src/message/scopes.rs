//! Collectives of all processes, of the processes of a node, and of the nodes' masters.

use hydrant::Rank;

use super::{Circle, Element, MASTERS, NODE, Reduction};
use crate::{Armci, Error, Result};

/// The processes that take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageScope {
    /// All processes.
    All,
    /// The processes of each node, each node for itself.
    Node,
    /// The first process of each node. Other processes have nothing to do.
    Masters,
}

/// The neighbours of a process in the binary tree of a scope, by process number; -1 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tree {
    /// The root of the tree.
    pub root: i32,
    /// The parent of this process.
    pub up: i32,
    /// The first child of this process.
    pub left: i32,
    /// The second child of this process.
    pub right: i32,
}

impl MessageScope {
    /// The scope that ARMCI names by a code.
    ///
    /// # Errors
    /// [`Error::Code`].
    pub fn of_code(code: i32) -> Result<Self> {
        match code {
            333 => Ok(Self::All),
            337 => Ok(Self::Node),
            339 => Ok(Self::Masters),
            code => Err(Error::Code {
                what: "a scope",
                code,
            }),
        }
    }
}

impl Armci {
    /// The context and the processes of a scope.
    fn scope(&self, scope: MessageScope) -> (u64, Vec<usize>) {
        match scope {
            MessageScope::All => (super::ALL, (0..self.job.size() as usize).collect()),
            MessageScope::Node => {
                let node = self.nodes.of(self.me);
                (NODE, self.nodes.processes(node).to_vec())
            }
            MessageScope::Masters => (MASTERS, self.nodes.masters()),
        }
    }

    /// Runs `act` with the members of a scope, if this process is one of them.
    fn among<R>(
        &self,
        scope: MessageScope,
        act: impl FnOnce(Circle<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let (context, members) = self.scope(scope);
        let Some(own) = members.iter().position(|member| *member == self.me) else {
            return Ok(None);
        };
        let circle = Circle {
            messages: &self.messages,
            context,
            members: &members,
            own,
        };
        act(circle).map(Some)
    }

    /// Broadcasts bytes of process `root` to all processes of a scope. Collective over the scope.
    /// ARMCI's `armci_msg_bcast_scope`.
    ///
    /// # Errors
    /// [`Error::NoProcess`], [`Error::NoMember`] if the root is outside the scope,
    /// [`Error::Hydrant`].
    pub fn broadcast(&self, scope: MessageScope, bytes: &mut [u8], root: i32) -> Result<()> {
        let number = self.memory.process(root)?;
        if scope == MessageScope::All {
            return Ok(self.job.broadcast(Rank(number as u32), bytes)?);
        }
        self.among(scope, |circle| {
            circle.broadcast(circle.index_of(number)?, bytes)
        })?;
        Ok(())
    }

    /// Combines the elements of all processes of a scope, and leaves the result at each. Collective
    /// over the scope. ARMCI's `armci_msg_gop_scope`.
    ///
    /// # Errors
    /// [`Error::Hydrant`].
    pub fn all_reduce(
        &self,
        scope: MessageScope,
        bytes: &mut [u8],
        reduction: Reduction,
        element: Element,
    ) -> Result<()> {
        if scope == MessageScope::All {
            return self.with_all(bytes, reduction, element, true);
        }
        self.among(scope, |circle| {
            reduction.begin(element, bytes);
            circle.reduce(bytes, |into, with| reduction.fold(element, into, with))?;
            circle.broadcast(0, bytes)
        })?;
        Ok(())
    }

    /// Combines the elements of all processes of a scope, and leaves the result at the first. The
    /// elements of the others are undefined afterwards. Collective over the scope. ARMCI's
    /// `armci_msg_reduce_scope`.
    ///
    /// # Errors
    /// [`Error::Hydrant`].
    pub fn reduce(
        &self,
        scope: MessageScope,
        bytes: &mut [u8],
        reduction: Reduction,
        element: Element,
    ) -> Result<()> {
        if scope == MessageScope::All {
            return self.with_all(bytes, reduction, element, false);
        }
        self.among(scope, |circle| {
            reduction.begin(element, bytes);
            circle.reduce(bytes, |into, with| reduction.fold(element, into, with))
        })?;
        Ok(())
    }

    /// Selects the process whose first element is the largest or the smallest, among those that
    /// contribute. Its bytes go to all processes of the scope. Collective over the scope. ARMCI's
    /// `armci_msg_sel_scope`.
    ///
    /// # Errors
    /// [`Error::Code`] if the reduction is neither, [`Error::Hydrant`].
    pub fn select(
        &self,
        scope: MessageScope,
        bytes: &mut [u8],
        reduction: Reduction,
        element: Element,
        contributes: bool,
    ) -> Result<()> {
        if !matches!(reduction, Reduction::Max | Reduction::Min) || bytes.len() < element.bytes() {
            return Err(Error::Code {
                what: "a selection, which is of the largest or the smallest first element of some",
                code: bytes.len() as i32,
            });
        }
        // The first byte is 1 if a process contributed.
        let mut record = vec![u8::from(contributes)];
        record.extend_from_slice(bytes);
        let first = 1..1 + element.bytes();
        self.among(scope, |circle| {
            circle.reduce(&mut record, |into, with| {
                let mut best = into[first.clone()].to_vec();
                reduction.fold(element, &mut best, &with[first.clone()]);
                let is_better = best != into[first.clone()];
                if with[0] != 0 && (into[0] == 0 || is_better) {
                    into.copy_from_slice(with);
                }
            })?;
            circle.broadcast(0, &mut record)
        })?;
        if record[0] != 0 {
            bytes.copy_from_slice(&record[1..]);
        }
        Ok(())
    }

    /// The neighbours of this process in the tree of a scope. ARMCI's `armci_msg_bintree`.
    pub fn tree(&self, scope: MessageScope) -> Tree {
        let (_, members) = self.scope(scope);
        let at = |index: Option<usize>| {
            (index.and_then(|index| members.get(index))).map_or(-1, |proc| *proc as i32)
        };
        let own = members.iter().position(|member| *member == self.me);
        Tree {
            root: at(Some(0)),
            up: at(own.filter(|own| *own > 0).map(|own| (own - 1) / 2)),
            left: at(own.map(|own| 2 * own + 1)),
            right: at(own.map(|own| 2 * own + 2)),
        }
    }

    /// Combines the elements of all processes, at all of them or at the first.
    fn with_all(
        &self,
        bytes: &mut [u8],
        reduction: Reduction,
        element: Element,
        at_all: bool,
    ) -> Result<()> {
        reduction.begin(element, bytes);
        match element {
            Element::Int => self.with_all_as::<i32>(bytes, reduction, at_all),
            Element::Long => self.with_all_as::<i64>(bytes, reduction, at_all),
            Element::Float => self.with_all_as::<f32>(bytes, reduction, at_all),
            Element::Double => self.with_all_as::<f64>(bytes, reduction, at_all),
        }
    }

    fn with_all_as<T: super::reduction::Combine>(
        &self,
        bytes: &mut [u8],
        reduction: Reduction,
        at_all: bool,
    ) -> Result<()> {
        // The caller's memory may be unaligned, so the elements are copied.
        let mut elements: Vec<T> = hydrant::bytemuck::pod_collect_to_vec(bytes);
        let combine = |a, b| reduction.combine(a, b);
        if at_all {
            self.job.all_reduce_with(&mut elements, combine)?;
        } else {
            (self.job).reduce_in_place_with(Rank(0), &mut elements, combine)?;
        }
        bytes.copy_from_slice(hydrant::bytemuck::cast_slice(&elements));
        Ok(())
    }
}
