"""Measures one side of `cargo xtask beside-engines`: this process uses what a peer lends.

Each line of the output is a figure, as JSON: the case, and either values in nanoseconds or bytes, or a note that stands for
them.
"""

import argparse
import os
import shlex
import sys
import time
import traceback
import zlib

import numpy as np
import sides
from ends import measure_deaths, measure_waits
from figures import EACH, LENT, OWN_PORT, PEER_PORT, ROWS, SIZES, STRIDE, clock, say
from memory import kept, on_huge_page, untouched
from peer import Peer

GIB = 1 << 30
# The most calls that do not count.
WARM_UP = 3


class Round:
    def __init__(self, options):
        self.options = options
        self.is_apart = options.place == "hosts"
        self.prefix = shlex.split(options.peer_prefix)
        # The time for each figure, and the fewest and the most repetitions.
        self.budget, self.least, self.most = (0.05, 3, 300) if options.quick else (0.2, 3, 3000)
        self.user = sides.of(options.side)("user", options.own_address, OWN_PORT, self.is_apart)
        self.own = on_huge_page(LENT, 1)
        self.user.lend(self.own.ctypes.data, LENT)
        self.peers = []

    def peer(self):
        """A process for a peer, without an agent yet."""
        self.peers.append(Peer(self.options.side, self.prefix))
        return self.peers[-1]

    def end(self):
        for peer in self.peers:
            peer.end()

    def open(self, peer, name="owner", count=LENT):
        """Starts a peer's agent. Returns its card and the address of the memory that it lends."""
        return peer.ask("open", name, self.options.peer_address, PEER_PORT, self.is_apart, count)

    def transfer(self, is_write, there, count):
        return self.user.transfer(is_write, np.array([[self.own.ctypes.data, there, count]], np.uint64))

    def repeat(self, call):
        """The median of what many calls return, without the first ones."""
        values = []
        end = clock() + self.budget * 0.2e9
        while not values or (clock() < end and len(values) < WARM_UP):
            values.append(call())
        values.clear()
        end = clock() + self.budget * 1e9
        while len(values) < self.least or (clock() < end and len(values) < self.most):
            values.append(call())
        return sorted(values)[len(values) // 2]

    def repeat_run(self, transfer):
        """The nanoseconds from the begin of a transfer to its end."""

        def once():
            begin = clock()
            transfer.run()
            return clock() - begin

        return self.repeat(once)

    def measure_sizes(self, peer, there):
        for is_write in (True, False):
            word = "write" if is_write else "read"
            for name, count in SIZES:
                transfer = self.transfer(is_write, there, count)
                peer.ask("fill", count, count)
                self.own[:count] = np.random.default_rng(7).integers(0, 256, count, np.uint8)
                transfer.run()
                if self.user.is_checked and zlib.crc32(self.own[:count]) != peer.ask("checksum", count):
                    raise RuntimeError(f"a {word} of {name} has wrong bytes")
                self.say(f"{word} {name}", self.repeat_run(transfer))

    def measure_own_allocator(self, peer):
        count = SIZES[-1][1]
        card, start = peer.ask("allocate", count)
        if not start:
            return
        self.user.forget()
        self.user.meet(card)
        for name, count in (SIZES[0], SIZES[-1]):
            time = self.repeat_run(self.transfer(True, start, count))
            self.say(f"write {name}, allocated by the engine", time)

    def measure_posting(self, there):
        for name, count in (SIZES[0], SIZES[-1]):
            self.post(f"posting a write of {name}", self.transfer(True, there, count))

    def post(self, case, transfer):
        if transfer.no_post:
            self.say(case, note=transfer.no_post)
            return

        def once():
            begin = clock()
            transfer.post()
            posted = clock()
            transfer.finish()
            return posted - begin

        self.say(case, self.repeat(once))

    def measure_rows(self, peer, there):
        numbers = np.arange(ROWS, dtype=np.uint64)
        own, far = self.own.ctypes.data + numbers * EACH, there + numbers * STRIDE
        rows = np.stack([own, far, np.full(ROWS, EACH, np.uint64)], axis=1)
        for is_write in (True, False):
            word = "write" if is_write else "read"
            transfer = self.user.transfer(is_write, rows)
            peer.ask("fill", LENT, 3)
            self.own[: ROWS * EACH] = np.random.default_rng(8).integers(0, 256, ROWS * EACH, np.uint8)
            transfer.run()
            if self.user.is_checked and zlib.crc32(self.own[: ROWS * EACH]) != peer.ask("checksum_of_rows", ROWS, EACH, STRIDE):
                raise RuntimeError(f"a {word} of {ROWS} descriptors has wrong bytes")
            self.say(f"{word} 10,000 of 4 KiB", self.repeat_run(transfer))
            if is_write:
                self.post("posting a write of 10,000", transfer)

    def measure_idle(self, peer):
        time.sleep(0.2)
        before, begin = time.process_time(), clock()
        theirs = peer.ask("processor_time", 1.0)
        own = (time.process_time() - before) / ((clock() - begin) / 1e9)
        self.say("idle agent, processor time a second", theirs * 1e9, own * 1e9)

    def measure_lending(self):
        for name, count in (("1 GiB", GIB), ("16 GiB", 16 * GIB)):
            mapping, start = untouched(count)
            times, before = [], kept()
            for _ in range(5):
                begin = clock()
                lent = self.user.lend(start, count)
                times.append(clock() - begin)
                more = kept() - before
                self.user.take_back(lent)
                if more > count / 2:
                    break
            self.say(f"lending {name}", sorted(times)[len(times) // 2])
            if more > count / 2 and count == GIB:
                self.say("lending 16 GiB", note="fills memory")
                return
        self.say("bytes in memory by lending 16 GiB", more)

    def say(self, case, *values, note=None):
        say(self.options, case, *values, note=note)

    def measure(self):
        peer = self.peer()
        card, there = self.open(peer)
        self.user.meet(card)
        if self.options.waits:
            measure_waits(self, peer, card, there)
            return
        self.measure_sizes(peer, there)
        self.measure_rows(peer, there)
        if self.options.side == "bare":
            return
        self.measure_posting(there)
        self.measure_idle(peer)
        if not self.is_apart:
            self.measure_own_allocator(peer)
        measure_deaths(self, peer, there)
        if not self.is_apart:
            self.measure_lending()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=sides.ALL)
    parser.add_argument("--place", choices=["host", "hosts"], required=True)
    parser.add_argument("--peer-prefix", default="", help="the begin of a peer's command line")
    parser.add_argument("--link", default="", help="a command that takes `down` and `up`")
    parser.add_argument("--own-address", default="127.0.0.1")
    parser.add_argument("--peer-address", default="127.0.0.1")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--waits", action="store_true", help="only what takes seconds: a stopped peer, a link that is down")
    options = parser.parse_args()
    status = 0
    try:
        this = Round(options)
        try:
            this.measure()
        finally:
            this.end()
    except Exception:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    # Some engines crash when they are unloaded.
    os._exit(status)


if __name__ == "__main__":
    main()
