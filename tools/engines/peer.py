"""A process with an agent of a side that lends memory, and the class by which another process uses it.

The process reads commands from its standard input and writes answers, both pickled. A prefix of its command line, such as
`ip netns exec b`, puts it on another host.
"""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import time
import zlib

import numpy as np
import sides
from memory import on_huge_page


class Peer:
    """A peer. Its process is ready when this is made, and has no agent yet."""

    def __init__(self, side, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, sys.executable, __file__, side], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.ask("wake")

    def ask(self, what, *arguments):
        pickle.dump((what, arguments), self.process.stdin)
        self.process.stdin.flush()
        kind, answer = pickle.load(self.process.stdout)
        if kind == "error":
            raise RuntimeError(answer)
        return answer

    def kill(self):
        self.process.send_signal(signal.SIGKILL)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        # The state of a stopped process is told to its parent.
        os.waitpid(self.process.pid, os.WUNTRACED)

    def end(self):
        """Ends the process, unless it has ended."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Commands:
    def __init__(self, side):
        self.kind = sides.of(side)
        self.agent = None

    def wake(self):
        """Answers once the engine is loaded."""

    def open(self, name, address, port, is_apart, count):
        """Starts the agent, and lends bytes. Returns the card and their address."""
        self.agent = self.kind(name, address, port, is_apart)
        self.bytes = on_huge_page(count, 0)
        self.agent.lend(self.bytes.ctypes.data, count)
        return self.agent.card(), self.bytes.ctypes.data

    def allocate(self, count):
        """Lends memory of the engine's allocator, all of whose pages are there. Returns the card and its address."""
        start = self.agent.allocate(count)
        if start:
            ctypes.memset(start, 0, count)
        return self.agent.card(), start

    def fill(self, count, seed):
        self.bytes[:count] = np.random.default_rng(seed).integers(0, 256, count, np.uint8)

    def checksum(self, count):
        return zlib.crc32(self.bytes[:count])

    def checksum_of_rows(self, rows, each, stride):
        return zlib.crc32(np.ascontiguousarray(self.bytes[: rows * stride].reshape(rows, stride)[:, :each]))

    def processor_time(self, seconds):
        before = time.process_time()
        time.sleep(seconds)
        return time.process_time() - before


def main():
    answers = os.fdopen(os.dup(1), "wb")
    # The engine's log goes where the errors go.
    os.dup2(2, 1)
    commands = Commands(sys.argv[1])
    while True:
        try:
            what, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            # Some engines crash when they are unloaded.
            os._exit(0)
        try:
            answer = ("answer", getattr(commands, what)(*arguments))
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
