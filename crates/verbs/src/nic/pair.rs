//! Queue pairs: connected pairs for data and messages, and one pair for datagrams.

#![allow(unsafe_code)] // calls libibverbs; posts work

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

/// How long a receiver without a buffer asks its sender to wait: code 12, 0.64 ms.
const RECEIVER_NOT_READY: u8 = 12;

pub(crate) struct QueuePair {
    qp: NonNull<ibv_qp>,
    pub(crate) number: u32,
    /// Most bytes that a request may carry inline.
    pub(crate) inline: usize,
    nic: Arc<Nic>,
    /// The queues that the pair completes into and receives from.
    _queues: (
        Arc<CompletionQueue>,
        Arc<CompletionQueue>,
        Option<Arc<SharedQueue>>,
    ),
}

// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Send for QueuePair {}
// SAFETY: an object of libibverbs, which any thread may use.
unsafe impl Sync for QueuePair {}

/// The parameters to connect a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectAttributes<'a> {
    pub(crate) address: &'a EndpointAddress,
    /// The peer's queue pair.
    pub(crate) number: u32,
    /// The first PSN, in both directions.
    pub(crate) psn: u32,
    /// How long a packet waits for its acknowledgement: 4.096 µs × 2 to this power.
    pub(crate) timeout: u8,
}

impl QueuePair {
    /// Makes a queue pair that is not connected yet.
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

    /// Makes a queue pair for datagrams with this key, ready for use.
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

    /// Resets a queue pair for datagrams. It keeps its number, and nothing is posted to it.
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
        // SAFETY: all fields are integers and raw pointers, for which zero is valid.
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
            // SAFETY: the queue pair was just made.
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

    /// Connects the pair, which can then send and answer requests.
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
            // Soft-RoCE retries for ever at seven, the greatest value.
            retry_cnt: 6,
            // Seven means for ever: a receiver without buffers is slow, not dead.
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

    /// Stops the pair: it answers no further request.
    pub(crate) fn halt(&self) -> io::Result<()> {
        self.modify(in_state(ffi::IBV_QPS_ERR), ffi::IBV_QP_STATE)
    }

    /// Returns the PSN that the pair expects next, or expected before [`halt`](Self::halt).
    pub(crate) fn expected_psn(&self) -> io::Result<u32> {
        let mut attr = in_state(ffi::IBV_QPS_ERR);
        // SAFETY: all fields are integers and raw pointers, for which zero is valid.
        let mut init: ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
        let fields = ffi::mask(ffi::IBV_QP_STATE | ffi::IBV_QP_RQ_PSN);
        let lib = self.nic.lib();
        // SAFETY: the queue pair exists, and both structures are local variables.
        check(unsafe { lib.ibv_query_qp(self.qp.as_ptr(), &mut attr, fields, &mut init) })?;
        Ok(attr.rq_psn)
    }

    fn modify(&self, mut attr: ibv_qp_attr, fields: u32) -> io::Result<()> {
        let fields = ffi::mask(fields);
        // SAFETY: the queue pair exists as long as `self`.
        check(unsafe {
            self.nic
                .lib()
                .ibv_modify_qp(self.qp.as_ptr(), &mut attr, fields)
        })
    }

    /// Gives the NIC a buffer to receive a datagram into.
    ///
    /// # Safety
    /// Until the completion that names it:
    /// 1. The buffer is registered under `lkey`.
    /// 2. Nobody else uses the buffer.
    pub(crate) unsafe fn receive(
        &self,
        id: u64,
        addr: *mut u8,
        len: u32,
        lkey: u32,
    ) -> io::Result<()> {
        let mut sge = sge(addr.expose_provenance() as u64, len, lkey);
        let mut request = ibv_recv_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: &mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. The list has one entry; the buffer is registered and
        // nobody else uses it by the caller's conditions 1 and 2.
        check(unsafe { ffi::ibv_post_recv(self.qp.as_ptr(), &mut request, &mut bad) })
    }

    /// Sends a datagram to the queue pair with that number and key.
    ///
    /// # Safety
    /// Until the completion that names it:
    /// 1. The buffer is registered under `lkey`.
    /// 2. Nobody writes to the buffer.
    pub(crate) unsafe fn send_datagram(
        &self,
        id: u64,
        [addr, len, lkey]: [u64; 3],
        to: &AddressHandle,
        [number, key]: [u32; 2],
    ) -> io::Result<()> {
        let mut sge = sge(addr, len as u32, lkey as u32);
        // SAFETY: all fields are integers, raw pointers and unions of them, for which zero is
        // valid.
        let mut request: ibv_send_wr = unsafe { mem::zeroed() };
        request.wr_id = id;
        request.sg_list = &mut sge;
        request.num_sge = 1;
        request.opcode = ffi::IBV_WR_SEND;
        request.send_flags = ffi::IBV_SEND_SIGNALED;
        request.wr.ud.ah = to.as_ptr();
        request.wr.ud.remote_qpn = number;
        request.wr.ud.remote_qkey = key;
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. The list has one entry, and the address handle
        // exists. The buffer is registered and unchanged by the caller's conditions 1 and 2.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), &mut request, &mut bad) })
    }

    /// Posts one work request. An unsignaled request completes with the next signaled one.
    ///
    /// # Safety
    /// As [`post`](Self::post).
    #[inline(always)] // on the path of every hit
    pub(crate) unsafe fn post_one(&self, request: &WorkRequest, signaled: bool) -> io::Result<()> {
        let mut sge = sge(request.addr, request.len, request.lkey);
        let mut first = request.for_nic();
        if signaled {
            first.send_flags |= ffi::IBV_SEND_SIGNALED;
        }
        first.sg_list = &mut sge;
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. The list has one entry. Its memory is registered and
        // left alone by the caller's conditions 1 and 2.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), &mut first, &mut bad) })
    }

    /// Posts a batch with one doorbell.
    ///
    /// # Safety
    /// Until the requests complete:
    /// 1. The local memory that they name is registered under its key, and writable for reads.
    /// 2. Nobody writes to it for a write or a send, and nobody else uses it for a read.
    #[inline]
    pub(crate) unsafe fn post(&self, batch: &mut RequestBatch) -> io::Result<()> {
        let Some(first) = batch.link() else {
            return Ok(());
        };
        let mut bad = ptr::null_mut();
        // SAFETY: 1. The queue pair exists. 2. `link` linked the list. Its memory is registered and
        // left alone by the caller's conditions 1 and 2.
        check(unsafe { ffi::ibv_post_send(self.qp.as_ptr(), first, &mut bad) })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: `ibv_create_qp` made the pair, and nothing destroyed it before.
        unsafe { self.nic.lib().ibv_destroy_qp(self.qp.as_ptr()) };
    }
}

/// The fields that every queue pair sets first.
const INITIAL: u32 = ffi::IBV_QP_STATE | ffi::IBV_QP_PKEY_INDEX | ffi::IBV_QP_PORT;

fn in_state(state: ffi::ibv_qp_state) -> ibv_qp_attr {
    // SAFETY: all fields are integers and unions of integers, for which zero is valid.
    let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
    attr.qp_state = state;
    attr
}

/// Returns the code of an MTU: 1 for 256, 2 for 512, and so on to 5 for 4096.
fn code_of_mtu(bytes: u32) -> ffi::ibv_mtu {
    bytes.clamp(256, 4096).ilog2() - 7
}

fn sge(addr: u64, length: u32, lkey: u32) -> ibv_sge {
    ibv_sge { addr, length, lkey }
}

/// A work request to a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkRequest {
    pub(crate) id: u64,
    pub(crate) opcode: ffi::ibv_wr_opcode,
    /// The address of the local memory.
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    /// The address of the peer's memory, for writes and reads.
    pub(crate) remote: u64,
    pub(crate) rkey: u32,
    /// True if the request carries its data inline.
    pub(crate) inline: bool,
    /// Of atomic operations: the value to add or to expect, and the value to set.
    pub(crate) operands: Option<[u64; 2]>,
    /// The immediate data of a send.
    pub(crate) immediate: u32,
}

impl WorkRequest {
    /// The request in libibverbs' format, without the address of its `sge`.
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
        // libibverbs reads no field that the operation does not use.
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

/// Requests to be posted with one doorbell.
pub(crate) struct RequestBatch {
    requests: [MaybeUninit<ibv_send_wr>; RequestBatch::MAX_REQUESTS],
    sges: [MaybeUninit<ibv_sge>; RequestBatch::MAX_REQUESTS],
    len: usize,
}

impl RequestBatch {
    /// Most requests of a batch.
    pub(crate) const MAX_REQUESTS: usize = 16;

    pub(crate) fn new() -> Self {
        Self {
            requests: [const { MaybeUninit::uninit() }; Self::MAX_REQUESTS],
            sges: [const { MaybeUninit::uninit() }; Self::MAX_REQUESTS],
            len: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == Self::MAX_REQUESTS
    }

    /// Makes the last request a signaled one.
    pub(crate) fn signal_last(&mut self) {
        if let Some(last) = self.len.checked_sub(1) {
            // SAFETY: `push` initialized every request below the length.
            let request = unsafe { self.requests[last].assume_init_mut() };
            request.send_flags |= ffi::IBV_SEND_SIGNALED;
        }
    }

    /// Adds a request. Panics if the batch is full.
    #[inline]
    pub(crate) fn push(&mut self, request: &WorkRequest) {
        self.requests[self.len].write(request.for_nic());
        self.sges[self.len].write(sge(request.addr, request.len, request.lkey));
        self.len += 1;
    }

    /// Links the requests into a list and empties the batch. Returns the first request.
    #[inline]
    fn link(&mut self) -> Option<*mut ibv_send_wr> {
        let len = mem::take(&mut self.len);
        let mut next = ptr::null_mut();
        for index in (0..len).rev() {
            // SAFETY: `push` initialized every request below the length.
            let request = unsafe { self.requests[index].assume_init_mut() };
            request.next = next;
            request.sg_list = self.sges[index].as_mut_ptr();
            next = request;
        }
        (len > 0).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::code_of_mtu;

    #[test]
    fn mtus_have_the_codes_of_the_specification() {
        let codes = [256, 512, 1024, 2048, 4096, 9000].map(code_of_mtu);
        assert_eq!(codes, [1, 2, 3, 4, 5, 5]);
    }
}
