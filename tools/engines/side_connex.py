"""connex-rs, over the system's UCX."""

import os

# A process that returns takes the port of the one before.
os.environ["UCX_TCP_CM_REUSEADDR"] = "y"

from sides import Lost, Side, Transfer  # noqa: E402

# The times that its own description uses.
HEARTBEAT = {"heartbeat_ms": 1000, "heartbeat_timeout_ms": 3000}


class ConnexTransfer(Transfer):
    def __init__(self, of, peer, is_write, rows):
        # Both name the own memory first.
        self.start = of.put_async if is_write else of.get_async
        self.sync = of.transfer_sync_write if is_write else of.transfer_sync_read
        self.rows = [(peer, *row) for row in rows.tolist()]

    def post(self):
        try:
            self.pending = [self.start(*row) for row in self.rows]
        except Exception as error:
            raise Lost(error) from error

    def is_done(self):
        try:
            while self.pending:
                if not self.pending[-1].done():
                    return False
                self.pending.pop().wait(0)
        except Exception as error:
            raise Lost(error) from error
        return True

    def run(self):
        if len(self.rows) == 1:
            status = self.sync(*self.rows[0])
            if status:
                raise Lost(f"connex-rs says {status}")
            return
        self.post()
        for pending in self.pending:
            if not pending.wait(30_000):
                raise Lost("connex-rs does not end in 30 s")


class Connex(Side):
    has_events = True

    def __init__(self, name, address, port, is_apart):
        if is_apart:
            # As with NIXL: hosts that are namespaces share a kernel.
            os.environ["UCX_TLS"] = "tcp"
        # UCX reads its settings when it is loaded.
        import connex_rs

        # One model; the name is the stage.
        stage = sum(name.encode())
        self.engine = connex_rs.Engine("engines", stage, listen_ip=address, port=port, **HEARTBEAT)

    def lend(self, start, count):
        self.engine.register_memory(start, count)
        return start

    def take_back(self, lent):
        self.engine.unregister_memory(lent)

    def allocate(self, count):
        return self.engine.allocate_managed_buffer(count)

    def card(self):
        return self.engine.local_url

    def meet(self, card):
        self.peer = card

    def transfer(self, is_write, rows):
        return ConnexTransfer(self.engine, self.peer, is_write, rows)

    def hears_of_loss(self, patience):
        event = {}
        while event is not None and event.get("type") != "failed":
            event = self.engine.wait_event(int(patience * 1000))
        return event is not None
