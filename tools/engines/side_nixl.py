"""NIXL, with its own UCX and with Hydrant's plugin."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../nixl/tests"))

from owner import agent, finish  # noqa: E402
from sides import Lost, Side, Transfer  # noqa: E402


class NixlTransfer(Transfer):
    def __init__(self, of, handle):
        self.of, self.handle, self.status = of, handle, None

    def post(self):
        try:
            self.status = self.of.transfer(self.handle)
        except Exception as error:
            raise Lost(error) from error

    def is_done(self):
        if self.status == "PROC":
            try:
                self.status = self.of.check_xfer_state(self.handle)
            except Exception as error:
                raise Lost(error) from error
        if self.status == "ERR":
            raise Lost("NIXL says ERR")
        return self.status == "DONE"

    def run(self):
        if finish(self.of, self.handle, self.of.transfer(self.handle)) != "DONE":
            raise Lost("NIXL says ERR")


class Nixl(Side):
    backend = None

    def __init__(self, name, address, port, is_apart):
        self.agent = agent(name, [self.backend])
        self.peer = None

    def lend(self, start, count):
        return self.agent.register_memory([(start, count, 0, "")], "DRAM")

    def take_back(self, lent):
        self.agent.deregister_memory(lent)

    def card(self):
        return self.agent.get_agent_metadata()

    def meet(self, card):
        self.peer = self.agent.add_remote_agent(card)
        if isinstance(self.peer, bytes):
            self.peer = self.peer.decode()

    def forget(self):
        try:
            self.agent.remove_remote_agent(self.peer)
        except Exception as error:
            # An older NIXL forgets a lost peer by itself.
            if "NOT_FOUND" not in str(error):
                raise

    def transfer(self, is_write, rows):
        local, remote = rows.copy(), rows.copy()
        for descriptors, column in ((local, 0), (remote, 1)):
            descriptors[:, 0], descriptors[:, 1], descriptors[:, 2] = rows[:, column], rows[:, 2], 0
        made = self.agent.initialize_xfer(
            "WRITE" if is_write else "READ",
            self.agent.get_xfer_descs(local, "DRAM"),
            self.agent.get_xfer_descs(remote, "DRAM"),
            self.peer,
        )
        return NixlTransfer(self.agent, made)


class NixlUcx(Nixl):
    backend = "UCX"

    def __init__(self, name, address, port, is_apart):
        if is_apart:
            # Hosts that are namespaces share a kernel, by which UCX would copy otherwise.
            os.environ["UCX_TLS"] = "tcp"
        super().__init__(name, address, port, is_apart)


class NixlHydrant(Nixl):
    backend = "HYDRANT"
