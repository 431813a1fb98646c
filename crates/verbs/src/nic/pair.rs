//! Queue pairs: connected ones for data and messages, one for datagrams.

#![allow(unsafe_code)] // asks libibverbs; posts work

use std::{
    io,
    mem::{self, MaybeUninit},
    ptr::{self, NonNull},
    sync::Arc,
};

use super::{AddressHandle, CompletionQueue, Nic, SharedQueue, address_handle::route, check};
use crate::{
    address::EndpointAddress,
    ffi::{self, ibv_qp, ibv_qp_attr, ibv_recv_wr, ibv_send_wr, ibv_sge},
};

/// What a receiver without a buffer asks its sender to wait: code 12, 0.64 ms.
const RECEIVER_NOT_READY: u8 = 12;

pub(crate) struct QueuePair {
    qp: NonNull<ibv_qp>,
    pub(crate) number: u32,
    /// Most bytes that are taken along with a request.
    pub(crate) inline: usize,
    nic: Arc<Nic>,
    /// What it completes into and receives from.
    _queues: (
        Arc<CompletionQueue>,
        Arc<CompletionQueue>,
        Option<Arc<SharedQueue>>,
    ),
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

/// How a queue pair is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectAttributes<'a> {
    pub(crate) address: &'a EndpointAddress,
    /// The peer's queue pair.
    pub(crate) number: u32,
    /// The first PSN, either way.
    pub(crate) psn: u32,
    /// How long a packet waits to be acknowledged: 4.096 µs × 2 to this power.
    pub(crate) timeout: u8,
}

impl QueuePair {
    /// A queue pair to be connected.
    pub(crate) fn connected(
        nic: &Arc<Nic>,
        sends: &Arc<CompletionQueue>,
        receives: &Arc<CompletionQueue>,
        shared: &Arc<SharedQueue>,
        depth: u32,
        inline: u32,
    ) -> io::Result<Self> {
        let queues = (
            Arc::clone(sends),
            Arc::clone(receives),
            Some(Arc::clone(shared)),
        );
        let pair = Self::new(nic, queues, ffi::IBV_QPT_RC, [depth, 0], inline)?;
        let attr = ibv_qp_attr {
            qp_access_flags: ffi::IBV_ACCESS_REMOTE_WRITE
                | ffi::IBV_ACCESS_REMOTE_READ
                | if nic.limits.atomics.is_some() {
                    ffi::IBV_ACCESS_REMOTE_ATOMIC
                } else {
                    0
                },
            ..pair.initial()
        };
        pair.modify(attr, INITIAL | ffi::IBV_QP_ACCESS_FLAGS)?;
        Ok(pair)
    }

    /// A queue pair for datagrams that show this key, ready.
    pub(crate) fn datagrams(
        nic: &Arc<Nic>,
        [sends, receives]: [&Arc<CompletionQueue>; 2],
        depths: [u32; 2],
        key: u32,
    ) -> io::Result<Self> {
        let queues = (Arc::clone(sends), Arc::clone(receives), None);
        let pair = Self::new(nic, queues, ffi::IBV_QPT_UD, depths, 0)?;
        pair.ready(key)?;
        Ok(pair)
    }

    /// Makes a queue pair for datagrams as it was at first, under its number: nothing is posted
    /// to it.
    pub(crate) fn renew(&self, key: u32) -> io::Result<()> {
        self.modify(in_state(ffi::IBV_QPS_RESET), ffi::IBV_QP_STATE)?;
        self.ready(key)
    }

    fn ready(&self, key: u32) -> io::Result<()> {
        let attr = ibv_qp_attr {
            qkey: key,
            ..self.initial()
        };
        self.modify(attr, INITIAL | ffi::IBV_QP_QKEY)?;
        self.modify(in_state(ffi::IBV_QPS_RTR), ffi::IBV_QP_STATE)?;
        self.modify(
            in_state(ffi::IBV_QPS_RTS),
            ffi::IBV_QP_STATE | ffi::IBV_QP_SQ_PSN,
        )
    }

    fn new(
        nic: &Arc<Nic>,
        queues: (
            Arc<CompletionQueue>,
            Arc<CompletionQueue>,
            Option<Arc<SharedQueue>>,
        ),
        kind: ffi::ibv_qp_type,
        [sends, receives]: [u32; 2],
        inline: u32,
    ) -> io::Result<Self> {
        // SAFETY: integers and pointers that may be null.
        let mut init: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        init.send_cq = queues.0.as_ptr();
        init.recv_cq = queues.1.as_ptr();
        init.srq = queues
            .2
            .as_ref()
            .map_or(ptr::null_mut(), |srq| srq.as_ptr());
        init.cap.max_send_wr = sends;
        init.cap.max_recv_wr = receives;
        init.cap.max_send_sge = 1;
        init.cap.max_recv_sge = 1;
        init.cap.max_inline_data = inline;
        init.qp_type = kind;
        // SAFETY: the domain and the queues exist.
        let qp = unsafe { nic.lib().ibv_create_qp(nic.domain, &mut init) };
        let qp = NonNull::new(qp).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            qp,
            // SAFETY: just made.
            number: unsafe { qp.as_ref().qp_num },
            inline: init.cap.max_inline_data as usize,
            nic: Arc::clone(nic),
            _queues: queues,
        })
    }

    fn initial(&self) -> ibv_qp_attr {
        ibv_qp_attr {
            port_num: self.nic.port.port,
            ..in_state(ffi::IBV_QPS_INIT)
        }
    }

    /// Connects it: it can ask and answer.
    pub(crate) fn connect(&self, to: &ConnectAttributes<'_>) -> io::Result<()> {
        let reads = to
            .address
            .reads
            .clamp(1, u16::from(self.nic.limits.reads_asked.max(1)));
        let attr = ibv_qp_attr {
            path_mtu: code_of_mtu(to.address.mtu.min(self.nic.port.mtu)),
            dest_qp_num: to.number,
            rq_psn: to.psn,
            max_dest_rd_atomic: self.nic.limits.reads_answered.max(1),
            min_rnr_timer: RECEIVER_NOT_READY,
            ah_attr: route(&self.nic, to.address),
            ..in_state(ffi::IBV_QPS_RTR)
        };
        self.modify(
            attr,
            ffi::IBV_QP_STATE
                | ffi::IBV_QP_AV
                | ffi::IBV_QP_PATH_MTU
                | ffi::IBV_QP_DEST_QPN
                | ffi::IBV_QP_RQ_PSN
                | ffi::IBV_QP_MAX_DEST_RD_ATOMIC
                | ffi::IBV_QP_MIN_RNR_TIMER,
        )?;
        let attr = ibv_qp_attr {
            sq_psn: to.psn,
            timeout: to.timeout,
            // Seven, the most, is for ever with soft-RoCE.
            retry_cnt: 6,
            // For ever: a receiver out of buffers is slow, not dead.
            rnr_retry: 7,
            max_rd_atomic: reads as u8,
            ..in_state(ffi::IBV_QPS_RTS)
        };
        self.modify(
            attr,
            ffi::IBV_QP_STATE
                | ffi::IBV_QP_SQ_PSN
                | ffi::IBV_QP_TIMEOUT
                | ffi::IBV_QP_RETRY_CNT
                | ffi::IBV_QP_RNR_RETRY
                | ffi::IBV_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Answers nothing any more.
    pub(crate) fn halt(&self) -> io::Result<()> {
        self.modify(in_state(ffi::IBV_QPS_ERR), ffi::IBV_QP_STATE)
    }

    /// The PSN that it expects next, or would have before it was
    /// [halted](Self::halt).
    pub(crate) fn expected_psn(&self) -> io::Result<u32> {
        let mut attr = in_state(ffi::IBV_QPS_ERR);
        // SAFETY: integers and pointers that may be null.
        let mut init: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        let fields = ffi::mask(ffi::IBV_QP_STATE | ffi::IBV_QP_RQ_PSN);
        let lib = self.nic.lib();
        // SAFETY: the queue pair exists; both may be written to.
        check(unsafe { lib.ibv_query_qp(self.qp.as_ptr(), &mut attr, fields, &mut init) })?;
        Ok(attr.rq_psn)
    }

    fn modify(&self, mut attr: ibv_qp_attr, fields: u32) -> io::Result<()> {
        let fields = ffi::mask(fields);
        // SAFETY: the queue pair exists.
        check(unsafe {
            self.nic
                .lib()
                .ibv_modify_qp(self.qp.as_ptr(), &mut attr, fields)
        })
    }

    /// Gives the NIC a buffer for a datagram.
    ///
    /// # Safety
    /// As [`SharedQueue::post`].
    pub(crate) unsafe fn receive(
        &self,
        id: u64,
        addr: *mut u8,
        len: u32,
        lkey: u32,
    ) -> io::Result<()> {
        let mut piece = piece(addr.expose_provenance() as u64, len, lkey);
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &mut piece,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. The list has one entry, and the buffer is as promised.
        check(unsafe { ffi::ibv_post_recv(self.qp.as_ptr(), &mut request, &mut bad) })
    }

    /// Sends a datagram to the queue pair with that number and key.
    ///
    /// # Safety
    /// As [`SharedQueue::post`].
    pub(crate) unsafe fn send_datagram(
        &self,
        id: u64,
        [addr, len, lkey]: [u64; 3],
        to: &AddressHandle,
        [number, key]: [u32; 2],
    ) -> io::Result<()> {
        let mut piece = piece(addr, len as u32, lkey as u32);
        // SAFETY: integers, pointers that may be null, unions of them.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = id;
        request.sg_list = &mut piece;
        request.num_sge = 1;
        request.opcode = ffi::IBV_WR_SEND;
        request.send_flags = ffi::IBV_SEND_SIGNALED;
        request.wr.ud.ah = to.as_ptr();
        request.wr.ud.remote_qpn = number;
        request.wr.ud.remote_qkey = key;
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. So does the address, and the list has one entry.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), &mut request, &mut bad) })
    }

    /// Posts one work request. If it is not signaled, the completion of one after it stands for it.
    ///
    /// # Safety
    /// As [`post`](Self::post).
    #[inline(always)] // with what is asked, on the path of every hit
    pub(crate) unsafe fn post_one(&self, request: &WorkRequest, signaled: bool) -> io::Result<()> {
        let mut piece = piece(request.addr, request.len, request.lkey);
        let mut first = request.for_nic();
        if signaled {
            first.send_flags |= ffi::IBV_SEND_SIGNALED;
        }
        first.sg_list = &mut piece;
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. The list has one entry; the rest is promised.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), &mut first, &mut bad) })
    }

    /// Posts a batch with one ring of the doorbell.
    ///
    /// # Safety
    /// Until the completions of the requests, the own memory that they name:
    /// 1. is there under its key, and writable for reads;
    /// 2. is left alone as the conduit's contract says.
    #[inline]
    pub(crate) unsafe fn post(&self, batch: &mut RequestBatch) -> io::Result<()> {
        let Some(first) = batch.link() else {
            return Ok(());
        };
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. The list is linked; the rest is promised.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), first, &mut bad) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `ibv_create_qp`, and not destroyed before.
        unsafe { self.nic.lib().ibv_destroy_qp(self.qp.as_ptr()) };
    }
}

/// What every queue pair is given at first.
const INITIAL: u32 = ffi::IBV_QP_STATE | ffi::IBV_QP_PKEY_INDEX | ffi::IBV_QP_PORT;

fn in_state(state: ffi::ibv_qp_state) -> ibv_qp_attr {
    // SAFETY: integers and unions of them.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = state;
    attr
}

/// 256 is 1, 512 is 2, and so on to 4096.
fn code_of_mtu(bytes: u32) -> ffi::ibv_mtu {
    bytes.clamp(256, 4096).ilog2() - 7
}

fn piece(addr: u64, length: u32, lkey: u32) -> ibv_sge {
    ibv_sge { addr, length, lkey }
}

/// What a connected queue pair is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkRequest {
    pub(crate) id: u64,
    /// What is asked.
    pub(crate) opcode: ffi::ibv_wr_opcode,
    /// The own memory.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    /// The peer's memory, for writes and reads.
    pub(crate) remote: u64,
    pub(crate) rkey: u32,
    /// Whether the NIC takes the data along.
    pub(crate) inline: bool,
    /// Of atomic operations: what is added or expected, and what is set.
    pub(crate) operands: Option<[u64; 2]>,
    /// Of messages that take it along: what arrives beside the data.
    pub(crate) immediate: u32,
}

impl WorkRequest {
    /// As libibverbs wants it, but for the place of its own memory.
    #[inline(always)]
    fn for_nic(&self) -> ibv_send_wr {
        let wr = match self.operands {
            None => WrUnion {
                rdma: WrRdma {
                    remote_addr: self.remote,
                    rkey: self.rkey,
                },
            },
            Some([compare_add, swap]) => WrUnion {
                atomic: WrAtomic {
                    remote_addr: self.remote,
                    compare_add,
                    swap,
                    rkey: self.rkey,
                },
            },
        };
        // What these operations do not name is not read.
        ibv_send_wr {
            wr_id: self.id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: i32::from(self.len > 0),
            opcode: self.opcode,
            send_flags: if self.inline { ffi::IBV_SEND_INLINE } else { 0 },
            __bindgen_anon_1: ffi::ibv_send_wr__bindgen_ty_1 {
                imm_data: self.immediate.to_be(),
            },
            wr,
            qp_type: ffi::ibv_send_wr__bindgen_ty_3 {
                xrc: ffi::ibv_send_wr__bindgen_ty_3__bindgen_ty_1 { remote_srqn: 0 },
            },
            __bindgen_anon_2: ffi::ibv_send_wr__bindgen_ty_4 {
                tso: ffi::ibv_send_wr__bindgen_ty_4__bindgen_ty_2 {
                    hdr: ptr::null_mut(),
                    hdr_sz: 0,
                    mss: 0,
                },
            },
        }
    }
}

use ffi::{
    ibv_send_wr__bindgen_ty_2 as WrUnion, ibv_send_wr__bindgen_ty_2__bindgen_ty_1 as WrRdma,
    ibv_send_wr__bindgen_ty_2__bindgen_ty_2 as WrAtomic,
};

/// Requests to be posted at once.
pub(crate) struct RequestBatch {
    requests: [MaybeUninit<ibv_send_wr>; RequestBatch::MAX_REQUESTS],
    pieces: [MaybeUninit<ibv_sge>; RequestBatch::MAX_REQUESTS],
    len: usize,
}

impl RequestBatch {
    /// Most requests.
    pub(crate) const MAX_REQUESTS: usize = 16;

    pub(crate) fn new() -> Self {
        Self {
            requests: [const { MaybeUninit::uninit() }; Self::MAX_REQUESTS],
            pieces: [const { MaybeUninit::uninit() }; Self::MAX_REQUESTS],
            len: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == Self::MAX_REQUESTS
    }

    /// Makes the last work request a signaled one.
    pub(crate) fn signal_last(&mut self) {
        if let Some(last) = self.len.checked_sub(1) {
            // SAFETY: initialized by `push`, as all below the length are.
            let request = unsafe { self.requests[last].assume_init_mut() };
            request.send_flags |= ffi::IBV_SEND_SIGNALED;
        }
    }

    /// Adds a request; there is room.
    #[inline]
    pub(crate) fn push(&mut self, request: &WorkRequest) {
        self.requests[self.len].write(request.for_nic());
        self.pieces[self.len].write(piece(request.addr, request.len, request.lkey));
        self.len += 1;
    }

    /// Links what was added, and empties the batch: the first of the list.
    #[inline]
    fn link(&mut self) -> Option<*mut ibv_send_wr> {
        let len = mem::take(&mut self.len);
        let mut next = ptr::null_mut();
        for index in (0..len).rev() {
            // SAFETY: initialized by `push`, as all below the length are.
            let request = unsafe { self.requests[index].assume_init_mut() };
            request.next = next;
            request.sg_list = self.pieces[index].as_mut_ptr();
            next = request;
        }
        (len > 0).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::code_of_mtu;

    #[test]
    fn mtus_have_codes() {
        let codes = [256, 512, 1024, 2048, 4096, 9000].map(code_of_mtu);
        assert_eq!(codes, [1, 2, 3, 4, 5, 5]);
    }
}
