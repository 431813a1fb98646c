"""The engines that are compared, each behind the same few calls.

A side is an agent of an engine in this process. It lends memory, meets one peer at a time, and moves bytes. A call that
fails because the peer does not answer raises `Lost`, whatever the engine's own word for it is.
"""

import importlib
import time


class Lost(Exception):
    """A transfer has failed."""


class Transfer:
    """Reads or writes that can be repeated."""

    # The reason why they cannot be posted.
    no_post = None

    def post(self):
        """Starts it."""
        raise NotImplementedError

    def is_done(self):
        """Looks if the transfer that was started is over."""
        raise NotImplementedError

    def finish(self, patience=60):
        """Polls until it is over. Raises TimeoutError if it is not over in so many seconds."""
        end = time.monotonic() + patience
        while not self.is_done():
            if time.monotonic() > end:
                raise TimeoutError

    def run(self):
        """Does it by the calls that the engine's users would make, and waits for its end."""
        self.post()
        self.finish()


class Side:
    """An agent. Cards are what a peer has to know of it; they can be pickled."""

    # True if the engine tells of a lost peer by itself.
    has_events = False
    # True if bytes really come to the peer's memory, at their places.
    is_checked = True

    def __init__(self, name, address, port, is_apart):
        """An agent that peers reach at this address of IPv4, and at this port if the engine lets its user choose.
        `is_apart` says that its peers are on other hosts."""
        raise NotImplementedError

    def lend(self, start, count):
        """Lends memory. Returns what `take_back` takes."""
        raise NotImplementedError

    def take_back(self, lent):
        raise NotImplementedError

    def allocate(self, count):
        """Lends memory of the engine's own allocator. Returns its address, or None if it has none."""
        return None

    def card(self):
        """What a peer needs to use all that is lent."""
        raise NotImplementedError

    def meet(self, card):
        raise NotImplementedError

    def forget(self):
        """Gives up the peer."""

    def transfer(self, is_write, rows):
        """Makes a transfer of rows: own addresses, addresses at the peer, bytes."""
        raise NotImplementedError

    def hears_of_loss(self, patience):
        """Waits for the event that the peer is lost. Returns false if there is none in so many seconds."""
        raise NotImplementedError


# The names of sides, and their modules and classes.
ALL = {
    "bare": ("side_bare", "Bare"),
    "nixl-ucx": ("side_nixl", "NixlUcx"),
    "nixl-hydrant": ("side_nixl", "NixlHydrant"),
    "mooncake": ("side_mooncake", "Mooncake"),
    "connex": ("side_connex", "Connex"),
    "hydrant": ("side_hydrant", "Hydrant"),
}


def of(name):
    """The class of a side. Its engine is loaded now."""
    module, kind = ALL[name]
    return getattr(importlib.import_module(module), kind)
