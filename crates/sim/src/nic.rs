//! NICs and links: a transfer becomes packets, and the packets arrive.
//!
//! A transfer passes four stages, each used by one packet at a time: DMA from host memory, the
//! sender's link, the receiver's link, DMA to host memory. The receiver's link cuts through: a
//! packet's head does not wait for its tail.
//!
//! The sender's NIC takes turns among receivers, packet by packet, as InfiniBand hosts do among
//! queue pairs. A short message therefore waits for no long transfer to another rank. The switch
//! between the links is free of contention. The receiver's stages are computed when the packet's
//! head arrives, so packets of several senders share them in the order of time.

use std::collections::VecDeque;

use crate::{
    event::SimEvent,
    memory::PAGE,
    state::{SimShared, SimState},
    time::VirtualTime,
    transfer::{NicTransfer, Packet, Payload, SendQueue},
};

impl SimState {
    /// The host posts a transfer; its NIC takes it up at `time`.
    pub(crate) fn post(&mut self, transfer: NicTransfer, time: VirtualTime) -> u64 {
        let id = self.next_transfer;
        self.next_transfer += 1;
        self.transfers.insert(id, transfer);
        self.events.at(time, SimEvent::Start(id));
        id
    }

    /// The NIC of the sender takes up a transfer.
    pub(crate) fn launch(&mut self, fixed: &SimShared, id: u64) {
        let Some(transfer) = self.transfers.get(&id) else {
            return; // one of its ranks ended
        };
        let (from, to) = (transfer.from, transfer.to);
        let queues = &mut self.ranks[from].nic.queues;
        let is_idle = queues.is_empty();
        match queues.iter_mut().find(|it| it.to == to) {
            Some(queue) => queue.transfers.push_back(id),
            None => queues.push_back(SendQueue {
                to,
                transfers: VecDeque::from([id]),
                sent: None,
            }),
        }
        if is_idle {
            self.send_packet(fixed, from);
        }
    }

    /// The NIC of a rank sends a packet from the queue whose turn it is.
    pub(crate) fn send_packet(&mut self, fixed: &SimShared, from: usize) {
        let Some(mut queue) = self.ranks[from].nic.queues.pop_front() else {
            return; // the rank ended
        };
        while let Some(&id) = queue.transfers.front() {
            if self.send_packet_of(fixed, from, id, &mut queue.sent) {
                break;
            }
            // One of its ranks ended.
            queue.transfers.pop_front();
            queue.sent = None;
        }
        if queue.sent.is_none() {
            queue.transfers.pop_front();
        }
        let stages = &mut self.ranks[from].nic;
        if !queue.transfers.is_empty() {
            stages.queues.push_back(queue);
        }
        if !stages.queues.is_empty() {
            let free = stages.sending.max(self.now);
            self.events.at(free, SimEvent::Send(from as u32));
        }
    }

    /// Sends the next packet of a transfer; returns false if the transfer has ended. On entry,
    /// `sent` holds the bytes sent so far, or `None` before the first packet. On return it holds
    /// the bytes sent, or `None` after the last packet.
    fn send_packet_of(
        &mut self,
        fixed: &SimShared,
        from: usize,
        id: u64,
        sent: &mut Option<usize>,
    ) -> bool {
        let Some(transfer) = self.transfers.get(&id) else {
            return false;
        };
        let (to, bytes) = (transfer.to, transfer.bytes);
        let translated = transfer.payload.is_data();
        let write = matches!(transfer.payload, Payload::Write(_));
        let (nic, link) = (fixed.profile.nic(), fixed.profile.link());
        let mut time = self.now.max(self.ranks[from].nic.sending);
        if sent.is_none() {
            let faults = self.source_faults(fixed, id);
            time += nic.send.0 + nic.page_fault.times(faults);
        }
        let before = sent.unwrap_or(0);
        let part = (bytes - before).min(nic.mtu as usize);
        let last = before + part == bytes;
        *sent = (!last).then_some(before + part);
        time += step(fixed, part, translated);
        let stages = &mut self.ranks[from].nic;
        stages.sending = time;
        let outward = time.max(stages.outward);
        stages.outward = outward + link.bandwidth.of(part);
        let packet = Packet {
            transfer: id,
            from: from as u32,
            to: to as u32,
            bytes: part as u32,
            last,
            retry: false,
        };
        self.transmit(fixed, packet, outward);
        if last && write && nic.early_local {
            self.events.at(time, SimEvent::Local(id));
        }
        true
    }

    /// A packet leaves on the wire.
    fn transmit(&mut self, fixed: &SimShared, packet: Packet, outward: VirtualTime) {
        let mut head = outward + fixed.profile.link().latency.0;
        if fixed.delay > 0 {
            head += self.random.word_below(fixed.delay);
            let recovery = &mut self.pair(packet.from as usize, packet.to as usize).recovery;
            head = head.max(recovery.last);
            recovery.last = head;
        }
        self.events.at(head, SimEvent::Packet(packet));
    }

    /// The head of a packet arrives at the receiver's link.
    pub(crate) fn arrive(&mut self, fixed: &SimShared, packet: Packet) {
        if fixed.loss > 0 && !self.accepts(fixed, packet) {
            return;
        }
        let Some(transfer) = self.transfers.get(&packet.transfer) else {
            return; // one of its ranks ended
        };
        let translated = transfer.payload.is_data();
        let bytes = packet.bytes as usize;
        let (nic, link) = (fixed.profile.nic(), fixed.profile.link());
        let stages = &mut self.ranks[packet.to as usize].nic;
        let arrived = self.now.max(stages.inward) + link.bandwidth.of(bytes);
        stages.inward = arrived;
        let mut done = arrived.max(stages.receiving) + step(fixed, bytes, translated);
        if packet.last {
            done += nic.receive.0;
            self.events.at(done, SimEvent::Landed(packet.transfer));
        }
        stages.receiving = done;
    }

    /// True if the packet is accepted: neither it nor an earlier packet is missing.
    fn accepts(&mut self, fixed: &SimShared, packet: Packet) -> bool {
        let (from, to) = (packet.from as usize, packet.to as usize);
        let lost = fixed.loss > 0 && self.random.word() >> 32 < fixed.loss;
        let now = self.now;
        let recovery = &mut self.pair(from, to).recovery;
        if recovery.gap && !packet.retry {
            recovery.again.push_back(packet);
            return false;
        }
        let retry = Packet {
            retry: true,
            ..packet
        };
        if lost {
            recovery.gap = true;
            self.ranks[to].statistics.lost_packets += 1;
            let again = now + fixed.profile.link().retransmit.0;
            self.events.at(again, SimEvent::Packet(retry));
            return false;
        }
        if let Some(next) = recovery.again.pop_front() {
            // The following packets come as fast as the wire takes them.
            let next = Packet {
                retry: true,
                ..next
            };
            let wire = fixed.profile.link().bandwidth.of(next.bytes as usize);
            self.events.at(now + wire.max(1), SimEvent::Packet(next));
        } else {
            recovery.gap = false;
        }
        true
    }
}

/// The time that a packet occupies a NIC.
fn step(fixed: &SimShared, bytes: usize, translated: bool) -> VirtualTime {
    let nic = fixed.profile.nic();
    let pages = if translated { bytes.div_ceil(PAGE) } else { 0 };
    nic.packet.0 + nic.bandwidth.of(bytes) + nic.translate.times(pages)
}
