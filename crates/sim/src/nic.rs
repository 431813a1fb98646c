//! NICs and links: how a transfer becomes packets, and these arrive.
//!
//! A transfer passes four stages, each used by one packet at a time: DMA from host memory, the
//! sender's link, the receiver's link (cut through: its head does not wait for its tail), DMA to
//! host memory. The switch between is free of contention. The receiver's half is worked out when
//! the packet's head arrives, so packets of several senders share it in the order of time.

use crate::{
    event::Event,
    memory::PAGE,
    state::{Fixed, State},
    time::Time,
    transfer::{Packet, Payload, Transfer},
};

impl State {
    /// The host posts a transfer; its NIC takes it up at `time`.
    pub(crate) fn post(&mut self, transfer: Transfer, time: Time) -> u64 {
        let id = self.next_transfer;
        self.next_transfer += 1;
        self.transfers.insert(id, transfer);
        self.events.at(time, Event::Start(id));
        id
    }

    /// The NIC of the sender takes up a transfer.
    pub(crate) fn launch(&mut self, fixed: &Fixed, id: u64) {
        let Some(transfer) = self.transfers.get(&id) else {
            return; // one of its ranks ended
        };
        let (from, to, bytes) = (transfer.from, transfer.to, transfer.bytes);
        let translated = transfer.payload.is_data();
        let write = matches!(transfer.payload, Payload::Write(_));
        let faults = self.source_faults(fixed, id);
        let (nic, link) = (fixed.profile.nic(), fixed.profile.link());
        let started = self.now.max(self.ranks[from].nic.sending);
        let mut time = started + nic.send.0 + nic.page_fault.times(faults);
        let mut left = bytes;
        loop {
            let part = left.min(nic.mtu as usize);
            left -= part;
            time += step(fixed, part, translated);
            let outward = time.max(self.ranks[from].nic.outward);
            self.ranks[from].nic.outward = outward + link.bandwidth.of(part);
            let packet = Packet {
                transfer: id,
                from: from as u32,
                to: to as u32,
                bytes: part as u32,
                last: left == 0,
                retry: false,
            };
            self.fly(fixed, packet, outward);
            if left == 0 {
                break;
            }
        }
        self.ranks[from].nic.sending = time;
        if write && nic.early_local {
            self.events.at(time, Event::Local(id));
        }
    }

    /// A packet leaves on the wire.
    fn fly(&mut self, fixed: &Fixed, packet: Packet, outward: Time) {
        let mut head = outward + fixed.profile.link().latency.0;
        if fixed.delay > 0 {
            head += self.random.below(fixed.delay);
            let way = &mut self.pair(packet.from as usize, packet.to as usize).way;
            head = head.max(way.last);
            way.last = head;
        }
        self.events.at(head, Event::Packet(packet));
    }

    /// The head of a packet arrives at the receiver's link.
    pub(crate) fn arrive(&mut self, fixed: &Fixed, packet: Packet) {
        if fixed.loss > 0 && !self.taken(fixed, packet) {
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
            self.events.at(done, Event::Landed(packet.transfer));
        }
        stages.receiving = done;
    }

    /// Whether a packet is taken: it was not lost, nor one before it.
    fn taken(&mut self, fixed: &Fixed, packet: Packet) -> bool {
        let (from, to) = (packet.from as usize, packet.to as usize);
        let lost = self.random.happens(fixed.loss);
        let now = self.now;
        let way = &mut self.pair(from, to).way;
        if way.gap && !packet.retry {
            way.again.push_back(packet);
            return false;
        }
        let retry = Packet {
            retry: true,
            ..packet
        };
        if lost {
            way.gap = true;
            self.ranks[to].statistics.lost_packets += 1;
            let again = now + fixed.profile.link().retransmit.0;
            self.events.at(again, Event::Packet(retry));
            return false;
        }
        if let Some(next) = way.again.pop_front() {
            // The rest follows as fast as the wire takes it.
            let next = Packet {
                retry: true,
                ..next
            };
            let wire = fixed.profile.link().bandwidth.of(next.bytes as usize);
            self.events.at(now + wire.max(1), Event::Packet(next));
        } else {
            way.gap = false;
        }
        true
    }
}

/// How long a packet occupies a NIC.
fn step(fixed: &Fixed, bytes: usize, translated: bool) -> Time {
    let nic = fixed.profile.nic();
    let pages = if translated { bytes.div_ceil(PAGE) } else { 0 };
    nic.packet.0 + nic.bandwidth.of(bytes) + nic.translate.times(pages)
}
