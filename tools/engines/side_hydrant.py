"""Hydrant's endpoints, by its library for C (docs/c.md), whose path is in the variable HYDRANT_LIBRARY."""

import ctypes
import os

import numpy as np
from sides import Lost, Side, Transfer

HERE = ctypes.CDLL(os.environ["HYDRANT_LIBRARY"])
HERE.hydrant_last_error.restype = ctypes.c_char_p
READ, WRITE = 1, 2
HOSTS_IF_AVAILABLE, HOSTS_REQUIRED = 1, 2
EVENT_LOST = 4
SECOND = 1_000_000_000

Pointer, Number, Wide = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
HERE.hydrant_remote_write.argtypes = [Pointer, Wide, Pointer, Number]
HERE.hydrant_remote_read.argtypes = [Pointer, Wide, Pointer, Number]
HERE.hydrant_batch_start.argtypes = [ctypes.c_uint32, Pointer, Number, Pointer, Pointer, Number, Wide, Pointer]
for function in ("hydrant_batch_help", "hydrant_batch_test"):
    getattr(HERE, function).argtypes = [Pointer, Pointer]

# hydrant_run
RUN = np.dtype([("remote", np.uint64), ("offset", np.uint64), ("local", np.uint64), ("bytes", np.uint64)])


class Options(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("peer_timeout", Wide),
        ("hosts", ctypes.c_uint32),
        ("port", ctypes.c_uint16),
        ("interfaces", ctypes.c_char_p),
        ("registered", Wide),
    ]


class Event(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("peer", Pointer),
        ("previous", Wide),
        ("message", Pointer),
        ("bytes", Number),
    ]


def check(status, kind=RuntimeError):
    if status:
        raise kind(HERE.hydrant_last_error().decode())


def text(call, *arguments):
    """The bytes that a function of C writes into a buffer."""
    buffer, length = ctypes.create_string_buffer(4096), Number()
    check(call(*arguments, buffer, Number(len(buffer)), ctypes.byref(length)))
    return buffer.raw[: length.value]


class HydrantTransfer(Transfer):
    def __init__(self, direction, runs):
        self.direction, self.runs = direction, runs
        self.batch = Pointer()
        self.started = ctypes.byref(self.batch)
        self.is_over = ctypes.c_bool()
        self.post_arguments = (direction, runs.ctypes.data, len(runs), None, None, 0, 0, self.started)
        self.one = None
        if len(runs) == 1:
            call = HERE.hydrant_remote_write if direction == WRITE else HERE.hydrant_remote_read
            self.one = call, tuple(int(runs[0][field]) for field in RUN.names)

    def post(self):
        check(HERE.hydrant_batch_start(*self.post_arguments), Lost)

    def is_done(self):
        HERE.hydrant_batch_help(self.batch, ctypes.byref(self.is_over))
        if not self.is_over.value:
            return False
        self.end()
        return True

    def end(self):
        status = HERE.hydrant_batch_wait(self.batch)
        sentence = HERE.hydrant_last_error().decode()
        HERE.hydrant_batch_free(self.batch)
        if status:
            raise Lost(sentence)

    def run(self):
        if self.one:
            call, arguments = self.one
            check(call(*arguments), Lost)
            return
        self.post()
        self.end()


class Hydrant(Side):
    has_events = True

    def __init__(self, name, address, port, is_apart):
        hosts = HOSTS_REQUIRED if is_apart else HOSTS_IF_AVAILABLE
        options = Options(name=name.encode(), hosts=hosts, interfaces=address.encode())
        self.endpoint, self.peer = Pointer(), Pointer()
        check(HERE.hydrant_endpoint_open(ctypes.byref(options), ctypes.byref(self.endpoint)))
        self.lent, self.remotes = {}, []

    def lend(self, start, count):
        region = Pointer()
        check(HERE.hydrant_region_expose(self.endpoint, Pointer(start), Number(count), ctypes.byref(region)))
        self.lent[region.value] = (start, count)
        return region.value

    def take_back(self, lent):
        del self.lent[lent]
        check(HERE.hydrant_region_revoke(Pointer(lent)))

    def allocate(self, count):
        region, start = Pointer(), Pointer()
        check(HERE.hydrant_region_alloc(self.endpoint, Number(count), ctypes.byref(region), ctypes.byref(start)))
        self.lent[region.value] = (start.value, count)
        return start.value

    def card(self):
        lent = []
        for region, (start, count) in self.lent.items():
            rights = ctypes.c_uint32(READ | WRITE)
            descriptor = text(HERE.hydrant_region_describe, Pointer(region), Wide(0), Wide(count), rights, Wide(0))
            lent.append((start, count, descriptor))
        return text(HERE.hydrant_endpoint_address, self.endpoint), lent

    def meet(self, card):
        address, lent = card
        self.peer, self.remotes = Pointer(), []
        check(HERE.hydrant_connect(self.endpoint, address, Number(len(address)), ctypes.byref(self.peer)), Lost)
        for start, count, descriptor in lent:
            remote = Pointer()
            check(HERE.hydrant_remote_open(self.peer, descriptor, Number(len(descriptor)), ctypes.byref(remote)), Lost)
            self.remotes.append((start, count, remote.value))

    def forget(self):
        HERE.hydrant_peer_drop(self.peer)

    def transfer(self, is_write, rows):
        runs = np.zeros(len(rows), RUN)
        for start, count, remote in self.remotes:
            here = (rows[:, 1] >= start) & (rows[:, 1] < start + count)
            runs["remote"][here] = remote
            runs["offset"][here] = rows[here, 1] - start
        runs["local"], runs["bytes"] = rows[:, 0], rows[:, 2]
        return HydrantTransfer(WRITE if is_write else READ, runs)

    def hears_of_loss(self, patience):
        event = Event(kind=1)
        while event.kind not in (0, EVENT_LOST):
            wait = Wide(int(patience * SECOND))
            check(HERE.hydrant_endpoint_event(self.endpoint, wait, ctypes.byref(event)))
            kind = event.kind
            HERE.hydrant_event_free(ctypes.byref(event))
            event.kind = kind
        return event.kind == EVENT_LOST
