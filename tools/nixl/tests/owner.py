"""A process with an agent that lends memory, and the class by which a test uses it.

The process reads commands from its standard input and writes answers, both pickled.
"""

import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

OURS = "HYDRANT"


def agent(name, backends=(OURS,), **options):
    return nixl_agent(name, nixl_agent_config(backends=list(backends), **options))


def rows(*parts):
    """The descriptors of parts: (array, first byte, bytes)."""
    return [(array.ctypes.data + start, count, 0) for array, start, count in parts]


def register_parts(of, *parts, backends=()):
    return of.register_memory([row + ("",) for row in rows(*parts)], "DRAM", list(backends))


def register(of, array, backends=()):
    return register_parts(of, (array, 0, array.nbytes), backends=backends)


def pattern(count, seed):
    """Bytes that differ from place to place, and from seed to seed."""
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def finish(of, handle, status, patience=60):
    """Polls a transfer until it is over."""
    end = time.monotonic() + patience
    while status == "PROC":
        if time.monotonic() > end:
            raise TimeoutError("the transfer does not end")
        status = of.check_xfer_state(handle)
    return status


def carry(of, handle, message=b""):
    return finish(of, handle, of.transfer(handle, message) if message else of.transfer(handle))


def messages_of(take, sender, count, patience=20):
    """Takes messages until there are so many of a sender."""
    end, all_of = time.monotonic() + patience, []
    while len(all_of) < count and time.monotonic() < end:
        new = take()
        all_of += new.get(sender, [])
        if not new:
            time.sleep(0.0005)
    return all_of


class Owner:
    """An agent of another process."""

    def __init__(self, name="owner", backends=(OURS,), **options):
        # The words of a command that runs the process elsewhere.
        before = os.environ.get("HYDRANT_OWNER_BEFORE", "").split()
        command = [*before, sys.executable, __file__, name, ",".join(backends), repr(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr
        )
        self.name = name

    def ask(self, what, *arguments):
        pickle.dump((what, arguments), self.process.stdin)
        self.process.stdin.flush()
        kind, answer = pickle.load(self.process.stdout)
        if kind == "error":
            raise RuntimeError(answer)
        return answer

    def memory(self, count, seed=None):
        """Makes and registers memory, of zeros or of a pattern. Returns its number and its address."""
        return self.ask("memory", count, seed)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            try:
                self.ask("end")
            except (OSError, EOFError):
                pass
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.close() not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the owner ended with {self.process.returncode}")


class Commands:
    def __init__(self, name, backends, options):
        self.agent = agent(name, backends, **options)
        self.arrays = []
        self.registered = []

    def memory(self, count, seed):
        array = np.zeros(count, np.uint8) if seed is None else pattern(count, seed)
        self.arrays.append(array)
        self.registered.append(register(self.agent, array))
        return len(self.arrays) - 1, array.ctypes.data

    def many(self, count, each):
        """Registers many ranges. Returns their addresses."""
        self.many_arrays = [np.zeros(each, np.uint8) for _ in range(count)]
        register_parts(self.agent, *[(array, 0, each) for array in self.many_arrays])
        return [array.ctypes.data for array in self.many_arrays]

    def many_equal(self, content):
        return sum(array.tobytes() == content for array in self.many_arrays)

    def register_again(self, which):
        self.registered[which] = register(self.agent, self.arrays[which])

    def deregister(self, which):
        self.agent.deregister_memory(self.registered[which])

    def fill(self, which, value):
        self.arrays[which][:] = value

    def content(self, which):
        return self.arrays[which].tobytes()

    def count(self, which, value):
        return int((self.arrays[which] == value).sum())

    def metadata(self):
        return self.agent.get_agent_metadata()

    def add(self, metadata):
        return self.agent.add_remote_agent(metadata)

    def send(self, to, message):
        self.agent.send_notif(to, message)

    def send_many(self, to, count, each):
        for number in range(count):
            self.agent.send_notif(to, b"%04d" % number + b"x" * (each - 4))

    def messages(self, sender, count, patience=20):
        return messages_of(self.agent.get_new_notifs, sender, count, patience)

    def message_and_content(self, sender, which, places):
        """Waits for a message, and then looks at bytes at once."""
        message = messages_of(self.agent.get_new_notifs, sender, 1)
        return message, bytes(self.arrays[which][places])

    def processor_time(self, seconds):
        before = time.process_time()
        time.sleep(seconds)
        return time.process_time() - before


def main():
    name, backends, options = sys.argv[1], sys.argv[2].split(","), eval(sys.argv[3])
    answers = os.fdopen(os.dup(1), "wb")
    # The agent's log goes where the errors go.
    os.dup2(2, 1)
    commands = Commands(name, backends, options)
    while True:
        try:
            what, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if what == "end":
            pickle.dump(("answer", None), answers)
            answers.flush()
            return
        try:
            answer = ("answer", getattr(commands, what)(*arguments))
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
