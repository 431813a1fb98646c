"""The bare machine: a copy by one thread on one host, a stream of TCP between hosts."""

import ctypes
import socket
import threading

import numpy as np
from sides import Side, Transfer

READ, WRITE = 0, 1


def receive(stream, into):
    into = memoryview(into)
    while into:
        count = stream.recv_into(into)
        if count == 0:
            raise EOFError
        into = into[count:]


class Copy(Transfer):
    """Copies within this process: another process would need an engine."""

    no_post = "no post"

    def __init__(self, is_write, rows):
        count, each = len(rows), int(rows[0, 2])
        own = np.ctypeslib.as_array((ctypes.c_uint8 * (count * each)).from_address(int(rows[0, 0])))
        stride = int(rows[1, 1] - rows[0, 1]) if count > 1 else each
        far = np.ones(count * stride, np.uint8).reshape(count, stride)[:, :each]
        own = own.reshape(count, each)
        self.into, self.of = (far, own) if is_write else (own, far)

    def run(self):
        np.copyto(self.into, self.of)


class Stream(Transfer):
    """A message of as many bytes, and the byte that acknowledges it; or a request, and as many bytes."""

    no_post = "no post"

    def __init__(self, stream, is_write, rows):
        self.stream = stream
        count = int(rows[:, 2].sum())
        own = (ctypes.c_uint8 * count).from_address(int(rows[0, 0]))
        head = np.array([WRITE if is_write else READ, count], np.uint64).tobytes()
        self.own, self.is_write, self.head = memoryview(own).cast("B"), is_write, head

    def run(self):
        if self.is_write:
            # The head leaves in the segment of the first bytes.
            sent = self.stream.sendmsg([self.head, self.own]) - len(self.head)
            self.stream.sendall(self.own[sent:])
            receive(self.stream, bytearray(1))
        else:
            self.stream.sendall(self.head)
            receive(self.stream, self.own)


class Bare(Side):
    is_checked = False

    def __init__(self, name, address, port, is_apart):
        self.is_apart, self.address, self.port = is_apart, address, port
        self.stream = None
        if is_apart and name != "user":
            listener = socket.create_server((address, port))
            threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def lend(self, start, count):
        self.lent = memoryview((ctypes.c_uint8 * count).from_address(start)).cast("B")

    def card(self):
        return self.address, self.port

    def meet(self, card):
        if self.is_apart:
            self.stream = socket.create_connection(card)
            self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def transfer(self, is_write, rows):
        return Stream(self.stream, is_write, rows) if self.stream else Copy(is_write, rows)

    def serve(self, listener):
        stream, _ = listener.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = bytearray(16)
        while True:
            receive(stream, head)
            what, count = np.frombuffer(head, np.uint64)
            place = self.lent[: int(count)]
            if what == WRITE:
                receive(stream, place)
                stream.sendall(b"1")
            else:
                stream.sendall(place)
