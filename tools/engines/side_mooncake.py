"""Mooncake's transfer engine over TCP, which is all that it has without RDMA."""

import os

# Its log has a line for each engine and each peer.
os.environ.setdefault("GLOG_minloglevel", "3")
os.environ.setdefault("MC_LOG_LEVEL", "ERROR")

from mooncake.engine import TransferEngine  # noqa: E402
from sides import Lost, Side, Transfer  # noqa: E402

# A batch of more than about 2,048 parts is refused.
MOST_PARTS = 1000


class OneTransfer(Transfer):
    def __init__(self, of, peer, is_write, row):
        self.of, self.row = of, (peer, *(int(number) for number in row))
        self.sync = of.transfer_sync_write if is_write else of.transfer_sync_read
        self.is_write = is_write

    def post(self):
        # Reads cannot be started alone, but as a batch.
        peer, own, far, count = self.row
        if self.is_write:
            self.batch = self.of.transfer_submit_write(*self.row)
        else:
            self.batch = self.of.batch_transfer_async_read(peer, [own], [far], [count])
        if self.batch in (0, -1):
            raise Lost("Mooncake gives no batch")

    def is_done(self):
        status = self.of.transfer_check_status(self.batch)
        if status < 0:
            raise Lost(f"Mooncake says {status}")
        return status == 1

    def run(self):
        status = self.sync(*self.row)
        if status:
            raise Lost(f"Mooncake says {status}")


class ManyTransfers(Transfer):
    """Transfers in batches that Mooncake takes, one after the other."""

    no_post = "in batches"

    def __init__(self, of, peer, is_write, rows):
        self.of, self.peer = of, peer
        self.sync = of.batch_transfer_sync_write if is_write else of.batch_transfer_sync_read
        self.parts = []
        for begin in range(0, len(rows), MOST_PARTS):
            self.parts.append([column.tolist() for column in rows[begin : begin + MOST_PARTS].T])

    def run(self):
        for part in self.parts:
            status = self.sync(self.peer, *part)
            if status:
                raise Lost(f"Mooncake says {status}")


class Mooncake(Side):
    def __init__(self, name, address, port, is_apart):
        self.engine = TransferEngine()
        status = self.engine.initialize(address, "P2PHANDSHAKE", "tcp", "")
        if status:
            raise RuntimeError(f"Mooncake does not start: {status}")
        self.address = address

    def lend(self, start, count):
        status = self.engine.register_memory(start, count)
        if status:
            raise RuntimeError(f"Mooncake does not register: {status}")
        return start

    def take_back(self, lent):
        self.engine.unregister_memory(lent)

    def allocate(self, count):
        return self.engine.allocate_managed_buffer(count) or None

    def card(self):
        return f"{self.address}:{self.engine.get_rpc_port()}"

    def meet(self, card):
        self.peer = card

    def transfer(self, is_write, rows):
        if len(rows) == 1:
            return OneTransfer(self.engine, self.peer, is_write, rows[0])
        return ManyTransfers(self.engine, self.peer, is_write, rows)
