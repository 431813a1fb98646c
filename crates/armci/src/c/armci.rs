//! The types of `armci.h`, and its functions that set up, allocate, synchronize and tell who is where.

use std::ffi::{c_char, c_double, c_int, c_long, c_ulong, c_void};

use super::process::{self, armci, call, code, found, messages, or_die};
use crate::{
    Armci, Error, Group, Handle, Result, Strides, Vector,
    error::{count, not_null},
};

/// Runs of equally many bytes: from the places of one list to those of the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_giov_t {
    /// Where runs are read.
    pub src_ptr_array: *mut *mut c_void,
    /// Where they are written.
    pub dst_ptr_array: *mut *mut c_void,
    /// How many there are.
    pub ptr_array_len: c_int,
    /// Bytes of each.
    pub bytes: c_int,
}

/// A number of bytes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_size_t = c_long;

/// The handle of non-blocking operations, which ARMCI_INIT_HANDLE makes one of none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_hdl_t {
    /// A number, and whether it gathers.
    pub data: [c_int; 4],
    /// Not used.
    pub dummy: [c_double; 72],
}

/// Names a group of processes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type ARMCI_Group = c_int;

/// Names a way to group processes by their nodes.
#[allow(non_camel_case_types, reason = "its name in C")]
pub type armci_domain_t = c_int;

/// Memory that one process allocated, as others are told of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct armci_meminfo_t {
    /// Where its process has it.
    pub armci_addr: *mut c_char,
    /// The same.
    pub addr: *mut c_char,
    /// Its bytes.
    pub size: usize,
    /// Its process.
    pub cpid: c_int,
    /// Not used.
    pub idlist: [c_long; 128],
}

/// The handle in what C has.
pub(super) unsafe fn handle<R>(
    handle: *mut armci_hdl_t,
    act: impl FnOnce(Option<&mut Handle>) -> Result<R>,
) -> Result<R> {
    // SAFETY: null or a handle, says the caller.
    let Some(known) = (unsafe { handle.as_mut() }) else {
        return act(None);
    };
    let mut inner = Handle {
        number: known.data[0],
        is_aggregate: known.data[2],
    };
    let done = act(Some(&mut inner));
    known.data[0] = inner.number;
    known.data[2] = inner.is_aggregate;
    done
}

/// The strides and counts of so many levels. Without levels nobody looks at strides.
pub(super) unsafe fn strides<'a>(
    src: *mut c_int,
    dst: *mut c_int,
    count: *mut c_int,
    levels: c_int,
) -> Result<Strides<'a>> {
    let number = usize::try_from(levels).ok();
    let number = number.filter(|number| *number <= crate::MAX_STRIDE_LEVEL);
    let number = number.ok_or(Error::StrideLevels { levels })?;
    not_null(count, "the list of counts")?;
    let list = |list: *mut c_int, what| -> Result<&'a [c_int]> {
        if number == 0 {
            return Ok(&[]);
        }
        not_null(list, what)?;
        // SAFETY: a stride for each level, says the caller.
        Ok(unsafe { std::slice::from_raw_parts(list, number) })
    };
    Ok(Strides {
        src: list(src, "the list of strides of the source")?,
        dst: list(dst, "the list of strides of the destination")?,
        // SAFETY: one more, says the caller.
        count: unsafe { std::slice::from_raw_parts(count, number + 1) },
    })
}

/// The vectors of descriptors.
pub(super) unsafe fn vectors<'a>(
    descriptors: *mut armci_giov_t,
    len: c_int,
) -> Result<Vec<Vector<'a>>> {
    let len = count(len.into(), 1, "the number of descriptors")?;
    not_null(descriptors, "the list of descriptors")?;
    // SAFETY: so many, says the caller.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, len) };
    let vector = |it: &armci_giov_t| {
        not_null(it.src_ptr_array, "a list of sources")?;
        not_null(it.dst_ptr_array, "a list of destinations")?;
        let runs = count(
            it.ptr_array_len.into(),
            1,
            "the number of runs of a descriptor",
        )?;
        // SAFETY: as many as it says, says the caller.
        let list =
            |list: *mut *mut c_void| unsafe { std::slice::from_raw_parts(list.cast(), runs) };
        Ok(Vector {
            src: list(it.src_ptr_array),
            dst: list(it.dst_ptr_array),
            bytes: count(it.bytes.into(), 1, "the number of bytes of a run")?,
        })
    };
    descriptors.iter().map(vector).collect()
}

/// Bytes to allocate, if there is a list for where they are.
fn listed(list: *mut *mut c_void, bytes: armci_size_t) -> Result<usize> {
    not_null(list, "the list of addresses")?;
    count(bytes, 0, "the number of bytes")
}

/// Writes addresses into a list of as many.
unsafe fn fill(list: *mut *mut c_void, addresses: &[*mut u8]) {
    for (at, address) in addresses.iter().enumerate() {
        // SAFETY: the list has room for them, says the caller.
        unsafe { *list.add(at) = address.cast() };
    }
}

/// Initializes ARMCI, and joins the job. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init() -> c_int {
    code("ARMCI_Init", process::begin_armci())
}

/// As ARMCI_Init; the arguments are left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Init_args(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    code("ARMCI_Init_args", process::begin_armci())
}

/// Whether ARMCI is initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Initialized() -> c_int {
    c_int::from(process::begun() > 0)
}

/// Ends ARMCI, and the job, unless armci_msg_init began it. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Finalize() {
    or_die("ARMCI_Finalize", process::end_armci());
}

/// Says a message and a number, and ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Error(msg: *mut c_char, code: c_int) {
    // SAFETY: what C's caller promises.
    unsafe { process::say(msg, code) };
    process::die(code)
}

/// Does nothing: what a process has goes with it, however it ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Cleanup() {}

/// Waits until all processes have come, and all that they did is done. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Barrier() {
    found("ARMCI_Barrier", |armci| armci.barrier());
}

/// Waits until all that this process did to the memory of a process is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Fence(proc: c_int) {
    found("ARMCI_Fence", |armci| armci.fence(proc));
}

/// As ARMCI_Fence, of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_AllFence() {
    found("ARMCI_AllFence", |armci| armci.all_fence());
}

/// As ARMCI_Fence, of the processes of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_GroupFence(group: *mut ARMCI_Group) {
    // SAFETY: what C's caller promises.
    found("ARMCI_GroupFence", |armci| unsafe {
        let members = armci.members(group_at(group)?)?;
        let fenced = members.iter().map(|proc| armci.fence(*proc as c_int));
        // All of them, whatever befell what was done to one.
        fenced.fold(Ok(()), Result::and)
    });
}

/// Allocates memory of all processes, and lists where it is. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc(ptr_arr: *mut *mut c_void, bytes: armci_size_t) -> c_int {
    // SAFETY: what C's caller promises.
    call("ARMCI_Malloc", |armci| unsafe {
        let addresses = armci.malloc_wanted(listed(ptr_arr, bytes))?;
        fill(ptr_arr, &addresses);
        Ok(())
    })
}

/// Frees memory of ARMCI_Malloc, of which this process's part is given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free", |armci| armci.free(ptr.cast()))
}

/// Allocates memory of this process; null if there is no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_local(bytes: armci_size_t) -> *mut c_void {
    let mut found = std::ptr::null_mut();
    let mut act = || -> Result<()> {
        found = armci()?.malloc_local(bytes)?;
        Ok(())
    };
    code("ARMCI_Malloc_local", act());
    found.cast()
}

/// Frees memory of ARMCI_Malloc_local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_local(ptr: *mut c_void) -> c_int {
    call("ARMCI_Free_local", |armci| armci.free(ptr.cast()))
}

/// As ARMCI_Malloc, of the members of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Malloc_group(
    ptr_arr: *mut *mut c_void,
    bytes: armci_size_t,
    group: *mut ARMCI_Group,
) -> c_int {
    // SAFETY: what C's caller promises.
    call("ARMCI_Malloc_group", |armci| unsafe {
        let wanted = listed(ptr_arr, bytes);
        let addresses = armci.malloc_group_wanted(wanted, group_at(group)?)?;
        fill(ptr_arr, &addresses);
        Ok(())
    })
}

/// Frees memory of ARMCI_Malloc_group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Free_group(ptr: *mut c_void, _group: *mut ARMCI_Group) -> c_int {
    call("ARMCI_Free_group", |armci| armci.free(ptr.cast()))
}

/// Allocates memory of this process that others are told of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memget(bytes: usize, meminfo: *mut armci_meminfo_t, _memflg: c_int) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Memget", |armci| unsafe {
        not_null(meminfo, "the description of memory")?;
        let at = armci.malloc_local(bytes.try_into().unwrap_or(c_long::MAX))?;
        *meminfo = armci_meminfo_t {
            armci_addr: at.cast(),
            addr: at.cast(),
            size: bytes,
            cpid: armci.me(),
            idlist: [0; 128],
        };
        Ok(())
    });
}

/// Where this process finds memory of ARMCI_Memget, so many bytes from its start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memat(meminfo: *mut armci_meminfo_t, offset: c_long) -> *mut c_void {
    // SAFETY: what C's caller promises.
    found("ARMCI_Memat", |armci| unsafe {
        not_null(meminfo, "the description of memory")?;
        let known = &*meminfo;
        let at = armci.attach(known.addr.cast(), known.size, known.cpid)?;
        Ok(at.wrapping_offset(offset as isize).cast())
    })
}

/// Ends the use of memory that another process has; nothing need be done for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memdt(_meminfo: *mut armci_meminfo_t, _offset: c_long) {}

/// Frees memory of ARMCI_Memget, at the process that has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Memctl(meminfo: *mut armci_meminfo_t) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Memctl", |armci| unsafe {
        not_null(meminfo, "the description of memory")?;
        let known = &*meminfo;
        if known.cpid == armci.me() {
            armci.free(known.addr.cast())?;
        }
        Ok(())
    });
}

/// Sets how many bytes a process may allocate at most. Before ARMCI_Init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Set_shm_limit(shmemlimit: c_ulong) {
    process::set_limit(shmemlimit as usize);
}

/// Whether any process's memory is mapped here, as on nodes with several.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm() -> c_int {
    let uses = |armci: &Armci| Ok(armci.processes_of(-1)?.len() > 1);
    c_int::from(armci().and_then(uses).unwrap_or(false))
}

/// Whether memory of other members of a group is mapped here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Uses_shm_grp(group: *mut ARMCI_Group) -> c_int {
    // SAFETY: what C's caller promises.
    found("ARMCI_Uses_shm_grp", |armci| unsafe {
        let members = armci.members(group_at(group)?)?;
        let near = |proc: &&usize| armci.is_mapped(**proc as c_int).unwrap_or(false);
        Ok(c_int::from(members.iter().filter(near).count() > 1))
    })
}

/// Makes mutexes, so many of this process. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Create_mutexes(num: c_int) -> c_int {
    call("ARMCI_Create_mutexes", |armci| armci.create_mutexes(num))
}

/// Does away with the mutexes. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Destroy_mutexes() -> c_int {
    call("ARMCI_Destroy_mutexes", |armci| armci.destroy_mutexes())
}

/// Locks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Lock(mutex: c_int, proc: c_int) {
    found("ARMCI_Lock", |armci| armci.lock(mutex, proc));
}

/// Unlocks a mutex of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Unlock(mutex: c_int, proc: c_int) {
    found("ARMCI_Unlock", |armci| armci.unlock(mutex, proc));
}

/// Whether a process is on this one's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Same_node(proc: c_int) -> c_int {
    let act = || -> Result<_> { Ok(c_int::from(messages()?.is_mapped(proc)?)) };
    or_die("ARMCI_Same_node", act())
}

/// Whether a process is on this one's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_sameclusnode(proc: c_int) -> c_int {
    let act = || -> Result<_> { Ok(c_int::from(messages()?.is_mapped(proc)?)) };
    or_die("armci_sameclusnode", act())
}

/// How many processes a node has; this process's, if the number is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_nprocs(_domain: armci_domain_t, id: c_int) -> c_int {
    let act = || -> Result<_> { Ok(messages()?.processes_of(id)?.len() as c_int) };
    or_die("armci_domain_nprocs", act())
}

/// The node of a process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_id(_domain: armci_domain_t, glob_proc_id: c_int) -> c_int {
    let act = || -> Result<_> { messages()?.node_of(glob_proc_id) };
    or_die("armci_domain_id", act())
}

/// The number of a process of a node; of this process's, if the node's number is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_glob_proc_id(
    _domain: armci_domain_t,
    id: c_int,
    loc_proc_id: c_int,
) -> c_int {
    let act = || -> Result<_> {
        let all = messages()?.processes_of(id)?;
        let found = usize::try_from(loc_proc_id).ok().and_then(|at| all.get(at));
        found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
            proc: loc_proc_id,
            processes: all.len(),
        })
    };
    or_die("armci_domain_glob_proc_id", act())
}

/// This process's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_my_id(_domain: armci_domain_t) -> c_int {
    let act = || -> Result<_> {
        let armci = messages()?;
        armci.node_of(armci.me())
    };
    or_die("armci_domain_my_id", act())
}

/// How many nodes there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_count(_domain: armci_domain_t) -> c_int {
    let act = || -> Result<_> { Ok(messages()?.nodes()) };
    or_die("armci_domain_count", act())
}

/// Whether a process is on this one's node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn armci_domain_same_id(_domain: armci_domain_t, proc: c_int) -> c_int {
    let act = || -> Result<_> {
        let armci = messages()?;
        Ok(c_int::from(
            armci.node_of(proc)? == armci.node_of(armci.me())?,
        ))
    };
    or_die("armci_domain_same_id", act())
}

/// The group that C names.
pub(super) unsafe fn group_at(group: *mut ARMCI_Group) -> Result<Group> {
    not_null(group, "a group")?;
    // SAFETY: what C's caller promises.
    Ok(Group(unsafe { *group }))
}

/// Makes a group of members of the default one. Collective over those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut ARMCI_Group,
) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_create", |armci| unsafe {
        let len = count(n.into(), 1, "the number of members")?;
        not_null(pid_list, "the list of members")?;
        not_null(group_out, "where a group goes")?;
        let list = std::slice::from_raw_parts(pid_list, len);
        *group_out = armci.group_of(list, armci.default_group())?.0;
        Ok(())
    });
}

/// Makes a group of members of another. Collective over those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_create_child(
    n: c_int,
    pid_list: *mut c_int,
    group_out: *mut ARMCI_Group,
    group_parent: *mut ARMCI_Group,
) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_create_child", |armci| unsafe {
        let len = count(n.into(), 1, "the number of members")?;
        not_null(pid_list, "the list of members")?;
        not_null(group_out, "where a group goes")?;
        let list = std::slice::from_raw_parts(pid_list, len);
        *group_out = armci.group_of(list, group_at(group_parent)?)?.0;
        Ok(())
    });
}

/// Forgets a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_free(group: *mut ARMCI_Group) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_free", |armci| unsafe {
        armci.group_free(group_at(group)?)
    });
}

/// This process's number in a group; -1, and not 0 returned, if it is no member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_rank(group: *mut ARMCI_Group, rank: *mut c_int) -> c_int {
    let mut found = None;
    let mut act = || -> Result<()> {
        // SAFETY: what C's caller promises.
        found = armci()?.group_rank(unsafe { group_at(group) }?)?;
        not_null(rank, "where a number goes")?;
        // SAFETY: what C's caller promises.
        unsafe { *rank = found.unwrap_or(-1) };
        Ok(())
    };
    match code("ARMCI_Group_rank", act()) {
        0 if found.is_none() => -1,
        code => code,
    }
}

/// How many members a group has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_size(group: *mut ARMCI_Group, size: *mut c_int) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_size", |armci| unsafe {
        not_null(size, "where a number goes")?;
        *size = armci.members(group_at(group)?)?.len() as c_int;
        Ok(())
    });
}

/// Sets the group that new ones are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_set_default(group: *mut ARMCI_Group) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_set_default", |armci| unsafe {
        armci.set_default_group(group_at(group)?)
    });
}

/// The group that new ones are made of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_default(group_out: *mut ARMCI_Group) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_get_default", |armci| unsafe {
        not_null(group_out, "where a group goes")?;
        *group_out = armci.default_group().0;
        Ok(())
    });
}

/// The group of all processes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Group_get_world(group_out: *mut ARMCI_Group) {
    // SAFETY: what C's caller promises.
    found("ARMCI_Group_get_world", |_| unsafe {
        not_null(group_out, "where a group goes")?;
        *group_out = 0;
        Ok(())
    });
}

/// The process that is a member of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ARMCI_Absolute_id(group: *mut ARMCI_Group, group_rank: c_int) -> c_int {
    // SAFETY: what C's caller promises.
    found("ARMCI_Absolute_id", |armci| unsafe {
        let members = armci.members(group_at(group)?)?;
        let found = usize::try_from(group_rank)
            .ok()
            .and_then(|at| members.get(at));
        found.map(|proc| *proc as c_int).ok_or(Error::NoProcess {
            proc: group_rank,
            processes: members.len(),
        })
    })
}

/// Says that a condition does not hold that a program asserts, and ends the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dassertp_fail(
    cond_string: *const c_char,
    file: *const c_char,
    func: *const c_char,
    line: std::ffi::c_uint,
    code: c_int,
) -> c_int {
    let text = |text: *const c_char| match text.is_null() {
        true => String::new(),
        // SAFETY: a string of C, says the caller.
        false => unsafe { std::ffi::CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned(),
    };
    process::tell(&format!(
        "{}:{line}: {}: {} does not hold",
        text(file),
        text(func),
        text(cond_string)
    ));
    process::die(code)
}
