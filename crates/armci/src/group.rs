//! Groups of processes. The members alone make a group. Other processes may make the same calls, as
//! for a group of all.

use std::sync::Arc;

use hydrant_base::words::only;

use crate::{
    Armci, Error, Result,
    error::count,
    message::{ALL, Circle, Element, GROUPS, MessageScope, Reduction},
};

/// Names a group at one process. The group of all processes is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Group(pub i32);

/// Bits beside a group's context that name a part of the group. A part is the members on one node,
/// the first member of each node, or a list of members that C passes.
const PART_NODE: u64 = 1 << 63;
const PART_MASTERS: u64 = 1 << 62;
const PART: u64 = PART_NODE | PART_MASTERS;

/// The groups of a process.
pub(crate) struct Groups {
    /// The groups by number; `None` for a freed group.
    all: Vec<Option<GroupRecord>>,
    default: Group,
    /// The number of groups made so far whose first member is this process.
    made: u64,
}

/// The members of a group, and its messages' context.
#[derive(Clone)]
struct GroupRecord {
    members: Arc<[usize]>,
    /// Keeps the group's messages apart from those of other groups.
    context: u64,
}

impl Groups {
    pub(crate) fn new(processes: usize) -> Self {
        let world = GroupRecord {
            members: (0..processes).collect(),
            context: ALL,
        };
        Self {
            all: vec![Some(world)],
            default: Group(0),
            made: 0,
        }
    }

    fn find(&self, group: Group) -> Result<&GroupRecord> {
        let known = usize::try_from(group.0)
            .ok()
            .and_then(|at| self.all.get(at));
        known
            .and_then(Option::as_ref)
            .ok_or(Error::NoGroup { group: group.0 })
    }

    fn add(&mut self, known: GroupRecord) -> Group {
        let slot = self.all.iter().position(Option::is_none);
        let slot = slot.unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[slot] = Some(known);
        Group(slot as i32)
    }
}

impl Armci {
    /// Makes a group of members of `parent`, by their numbers there, in the order given. Collective
    /// over the new members. A process outside the new group may call too, and then has nothing to
    /// do. ARMCI's `Group_create_child`.
    ///
    /// # Errors
    /// [`Error::NoGroup`], [`Error::NoProcess`]. [`Error::Group`] if `numbers` is empty or names a
    /// process twice.
    pub fn group_of(&self, numbers: &[i32], parent: Group) -> Result<Group> {
        let parent = self.groups.lock().find(parent)?.members.clone();
        let wrong = |why| Error::Group {
            members: numbers.len() as i32,
            why,
        };
        if numbers.is_empty() {
            return Err(wrong("a group has members"));
        }
        let mut members = Vec::with_capacity(numbers.len());
        for number in numbers {
            let member = usize::try_from(*number).ok().and_then(|at| parent.get(at));
            let member = *member.ok_or(Error::NoProcess {
                proc: *number,
                processes: parent.len(),
            })?;
            if members.contains(&member) {
                return Err(wrong("one of them is named twice"));
            }
            members.push(member);
        }
        let context = match members.iter().position(|member| *member == self.me) {
            None => 0,
            Some(own) => self.agree_on_context(&members, own)?,
        };
        let members = members.into();
        Ok(self.groups.lock().add(GroupRecord { members, context }))
    }

    /// Splits a group by color. The members that pass the same color form a group, ordered by key
    /// and then by number. A member with a negative color gets no group. Collective over `parent`.
    /// ARMCI-MPI's `ARMCIX_Group_split`.
    ///
    /// # Errors
    /// As [`group_barrier`](Self::group_barrier).
    pub fn group_split(&self, parent: Group, color: i32, key: i32) -> Result<Option<Group>> {
        self.group_split_wanted(parent, Ok((color, key)))
    }

    /// As [`group_split`](Self::group_split). `wanted` is the color and the key, or an error if this process already
    /// knows that it cannot take part. The others then learn that.
    pub(crate) fn group_split_wanted(
        &self,
        parent: Group,
        wanted: Result<(i32, i32)>,
    ) -> Result<Option<Group>> {
        /// No color has this bit.
        const REFUSED: u64 = 1 << 32;
        let mine = match &wanted {
            Ok((color, key)) => [u64::from(*color as u32), *key as u64],
            Err(_) => [REFUSED, 0],
        };
        let members = self.members(parent)?;
        let given = self.group_all_gather(parent, mine)?;
        let (color, _) = wanted?;
        if let Some(member) = given.iter().position(|[color, _]| *color == REFUSED) {
            let proc = members[member];
            return Err(Error::Elsewhere { proc });
        }
        if color < 0 {
            return Ok(None);
        }
        let numbered = (0..).zip(given);
        let mut members: Vec<(i32, i32)> = numbered
            .filter(|(_, [theirs, _])| *theirs == u64::from(color as u32))
            .map(|(number, [_, key])| (key as i32, number))
            .collect();
        members.sort_unstable();
        let numbers: Vec<i32> = members.into_iter().map(|(_, number)| number).collect();
        self.group_of(&numbers, parent).map(Some)
    }

    /// The first member chooses a number and sends it to the others.
    fn agree_on_context(&self, members: &[usize], own: usize) -> Result<u64> {
        // The name keeps apart two groups that have the same first member and are made at the same
        // time.
        let name = members.iter().fold(0_u64, |name, member| {
            (name ^ *member as u64).wrapping_mul(0x5851_f42d_4c95_7f2d)
        });
        if own > 0 {
            let first = Some(members[0]);
            let (_, context) = self
                .messages
                .receive(GROUPS, name as i64 | i64::MIN, first)?;
            return Ok(only(&context).unwrap_or(0));
        }
        let context = {
            let mut groups = self.groups.lock();
            groups.made += 1;
            (self.me as u64 + 1) << 32 | groups.made
        };
        for member in &members[1..] {
            let tag = name as i64 | i64::MIN;
            (self.messages).send(GROUPS, tag, &context.to_le_bytes(), *member)?;
        }
        Ok(context)
    }

    /// Frees a group. ARMCI's `Group_free`.
    ///
    /// # Errors
    /// [`Error::NoGroup`], also for the group of all processes.
    pub fn group_free(&self, group: Group) -> Result<()> {
        let mut groups = self.groups.lock();
        groups.find(group)?;
        if group == Group::default() {
            return Err(Error::NoGroup { group: 0 });
        }
        groups.all[group.0 as usize] = None;
        if groups.default == group {
            groups.default = Group::default();
        }
        Ok(())
    }

    /// This process's number in a group, or `None` if it is no member. ARMCI's `Group_rank`.
    ///
    /// # Errors
    /// [`Error::NoGroup`].
    pub fn group_rank(&self, group: Group) -> Result<Option<i32>> {
        let members = self.members(group)?;
        let own = members.iter().position(|member| *member == self.me);
        Ok(own.map(|own| own as i32))
    }

    /// The processes of a group. ARMCI's `Group_size` and `Absolute_id`.
    ///
    /// # Errors
    /// [`Error::NoGroup`].
    pub fn members(&self, group: Group) -> Result<Arc<[usize]>> {
        Ok(self.groups.lock().find(group)?.members.clone())
    }

    /// The group that new groups are made of. ARMCI's `Group_get_default`.
    pub fn default_group(&self) -> Group {
        self.groups.lock().default
    }

    /// Sets the group that new groups are made of. ARMCI's `Group_set_default`.
    ///
    /// # Errors
    /// [`Error::NoGroup`].
    pub fn set_default_group(&self, group: Group) -> Result<()> {
        let mut groups = self.groups.lock();
        groups.find(group)?;
        groups.default = group;
        Ok(())
    }

    /// Waits until all members have arrived. Collective over the group. ARMCI's
    /// `armci_msg_group_barrier`.
    ///
    /// # Errors
    /// [`Error::NoGroup`], [`Error::Group`] if this process is no member, [`Error::Hydrant`].
    pub fn group_barrier(&self, group: Group) -> Result<()> {
        self.in_group(group, |circle| circle.barrier())
    }

    /// Broadcasts bytes from process `root`, counted among all processes, to the others of a scope.
    /// Collective over the scope. ARMCI's `armci_msg_group_bcast_scope`.
    ///
    /// # Errors
    /// As [`group_barrier`](Self::group_barrier); [`Error::NoProcess`]. [`Error::NoMember`] if
    /// `root` is outside the scope.
    pub fn group_broadcast(
        &self,
        group: Group,
        scope: MessageScope,
        bytes: &mut [u8],
        root: i32,
    ) -> Result<()> {
        let number = self.memory.process(root)?;
        self.in_group_scope(group, scope, |circle| {
            circle.broadcast(circle.index_of(number)?, bytes)
        })
    }

    /// Broadcasts bytes from member `first` to the `number - 1` members after it, by their numbers
    /// in the group. Collective over these members. Other members have nothing to do. ARMCI's
    /// `armci_grp_clus_brdcst`.
    ///
    /// # Errors
    /// As [`group_barrier`](Self::group_barrier); [`Error::NoProcess`] if the group has fewer members,
    /// [`Error::Number`].
    pub fn group_part_broadcast(
        &self,
        group: Group,
        (first, number): (i32, i32),
        bytes: &mut [u8],
    ) -> Result<()> {
        let start = count(first.into(), 0, "the number of the first member")?;
        let number = count(number.into(), 0, "the number of members")?;
        self.in_group(group, |circle| {
            let part = circle.members.get(start..start + number);
            let members = part.ok_or(Error::NoProcess {
                proc: (start + number) as i32 - 1,
                processes: circle.members.len(),
            })?;
            let own = circle.own.wrapping_sub(start);
            if own >= members.len() {
                return Ok(());
            }
            let part = Circle {
                members,
                own,
                context: circle.context | PART,
                ..circle
            };
            part.broadcast(0, bytes)
        })
    }

    /// Combines the elements of all members of a scope, and leaves the result at each. Collective
    /// over the scope. ARMCI's `armci_msg_group_gop_scope`.
    ///
    /// # Errors
    /// As [`group_barrier`](Self::group_barrier).
    pub fn group_all_reduce(
        &self,
        group: Group,
        scope: MessageScope,
        bytes: &mut [u8],
        reduction: Reduction,
        element: Element,
    ) -> Result<()> {
        self.in_group_scope(group, scope, |circle| {
            reduction.begin(element, bytes);
            circle.reduce(bytes, |into, with| reduction.fold(element, into, with))?;
            circle.broadcast(0, bytes)
        })
    }

    pub(crate) fn group_all_gather(&self, group: Group, mine: [u64; 2]) -> Result<Vec<[u64; 2]>> {
        self.in_group(group, |circle| circle.all_gather(mine))
    }

    /// Runs `act` with the members of a group's scope, if this process is in the scope. A scope is
    /// all members, the members on this process's node, or the first member of each node.
    fn in_group_scope(
        &self,
        group: Group,
        scope: MessageScope,
        act: impl FnOnce(Circle<'_>) -> Result<()>,
    ) -> Result<()> {
        self.in_group(group, |circle| {
            let node_of = |member: &usize| self.nodes.of(*member);
            let (part, members): (_, Vec<usize>) = match scope {
                MessageScope::All => return act(circle),
                MessageScope::Node => {
                    let own = node_of(&self.me);
                    let members = circle.members.iter();
                    (
                        PART_NODE,
                        members.copied().filter(|it| node_of(it) == own).collect(),
                    )
                }
                MessageScope::Masters => {
                    let mut seen = Vec::new();
                    let is_first = |member: &usize| {
                        let node = node_of(member);
                        let is_new = !seen.contains(&node);
                        seen.push(node);
                        is_new
                    };
                    (
                        PART_MASTERS,
                        circle.members.iter().copied().filter(is_first).collect(),
                    )
                }
            };
            let Some(own) = members.iter().position(|member| *member == self.me) else {
                return Ok(());
            };
            act(Circle {
                members: &members,
                own,
                context: circle.context | part,
                ..circle
            })
        })
    }

    fn in_group<R>(&self, group: Group, act: impl FnOnce(Circle<'_>) -> Result<R>) -> Result<R> {
        let GroupRecord { members, context } = self.groups.lock().find(group)?.clone();
        let own = members.iter().position(|member| *member == self.me);
        let own = own.ok_or(Error::Group {
            members: members.len() as i32,
            why: "this process is none of them",
        })?;
        act(Circle {
            messages: &self.messages,
            context,
            members: &members,
            own,
        })
    }
}
