"""Beside others: UCX in the same agent, threads, and forked processes."""

import multiprocessing
import os
import subprocess
import sys
import threading
import unittest

import numpy as np
from owner import Owner, agent, carry, messages_of, pattern, register, rows


class Beside(unittest.TestCase):
    def test_ucx_in_the_same_agent(self):
        """In a process of its own, as one whose agent has UCX crashes at its exit."""
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "beside_ucx.py")
        status = subprocess.run([sys.executable, program], timeout=120).returncode
        if status == 77:
            self.skipTest("NIXL_PLUGIN_DIR has no UCX")
        self.assertEqual(status, 0)

    def test_threads(self):
        """Threads share an agent without a lock of its own, as Python's agents have none."""
        threads, rounds, size = 6, 150, 100_000
        with Owner() as owner:
            user = agent("user")
            which, there = owner.memory(threads * size)
            register(user, own := np.zeros(threads * size, np.uint8))
            register(user, back := np.zeros(threads * size, np.uint8))
            user.add_remote_agent(owner.ask("metadata"))
            failures = []

            def work(number):
                def handle(operation, array):
                    return user.initialize_xfer(
                        operation,
                        user.get_xfer_descs(rows((array, number * size, size)), "DRAM"),
                        user.get_xfer_descs([(there + number * size, size, 0)], "DRAM"),
                        "owner",
                    )

                part = slice(number * size, (number + 1) * size)
                try:
                    write, read = handle("WRITE", own), handle("READ", back)
                    for turn in range(rounds):
                        own[part] = (number * 37 + turn) % 256
                        assert carry(user, write, b"%d" % number) == "DONE"
                        assert carry(user, read) == "DONE"
                        assert (back[part] == own[part]).all(), (number, turn)
                except BaseException as error:
                    failures.append(error)

            # Handles of NIXL itself are made one after the other.
            running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            [thread.start() for thread in running]
            [thread.join() for thread in running]
            self.assertEqual(failures, [])
            all_of = owner.ask("messages", "user", threads * rounds)
            self.assertEqual(len(all_of), threads * rounds)

    def test_a_forked_process(self):
        with Owner() as owner:
            user = agent("user")
            which, there = owner.memory(1 << 20)
            own = pattern(1 << 20, 1)
            registered = register(user, own)
            user.add_remote_agent(owner.ask("metadata"))
            handle = user.initialize_xfer(
                "WRITE",
                user.get_xfer_descs(rows((own, 0, 1 << 20)), "DRAM"),
                user.get_xfer_descs([(there, 1 << 20, 0)], "DRAM"),
                "owner",
            )
            self.assertEqual(carry(user, handle), "DONE")
            for busy in (False, True):
                status = user.transfer(handle, b"busy") if busy else "DONE"
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        code = self.in_child(user, handle, registered)
                    finally:
                        os._exit(code)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
                while status == "PROC":
                    status = user.check_xfer_state(handle)
                self.assertEqual(status, "DONE")
                self.assertEqual(carry(user, handle, b"still here"), "DONE")
                wanted = [b"busy", b"still here"] if busy else [b"still here"]
                self.assertEqual(owner.ask("messages", "user", len(wanted)), wanted)
                self.assertEqual(owner.ask("content", which), own.tobytes())

    @staticmethod
    def in_child(user, handle, registered):
        def refuses(call):
            try:
                call()
            except Exception:
                return True
            return False

        all_refuse = (
            refuses(lambda: user.transfer(handle))
            and refuses(lambda: user.send_notif("owner", b"?"))
            and refuses(user.get_new_notifs)
        )
        handle.release()
        user.deregister_memory(registered)
        del user
        return 0 if all_refuse else 2

    def test_an_agent_that_is_made_in_a_forked_process(self):
        user = agent("user")
        own = pattern(4096, 3)
        register(user, own)
        metadata = user.get_agent_metadata()
        context = multiprocessing.get_context("fork")
        answers = context.Queue()

        def work():
            child = agent("child")
            got = np.zeros(4096, np.uint8)
            register(child, got)
            child.add_remote_agent(metadata)
            handle = child.initialize_xfer(
                "READ",
                child.get_xfer_descs(rows((got, 0, 4096)), "DRAM"),
                child.get_xfer_descs(rows((own, 0, 4096)), "DRAM"),
                "user",
                b"read",
            )
            answers.put((carry(child, handle), got.tobytes()))

        process = context.Process(target=work)
        process.start()
        self.assertEqual(answers.get(timeout=30), ("DONE", own.tobytes()))
        process.join(30)
        self.assertEqual(process.exitcode, 0)
        self.assertEqual(messages_of(user.get_new_notifs, "child", 1), [b"read"])


if __name__ == "__main__":
    unittest.main()
