"""Ends: memory that is taken back, transfers that are stopped, peers that die, leave and return."""

import gc
import os
import time
import unittest

import numpy as np
from owner import Owner, agent, carry, finish, pattern, register, rows


class Ends(unittest.TestCase):
    def setUp(self):
        self.owner = Owner()
        self.addCleanup(lambda: self.owner.close())
        self.user = agent("user")

    def load(self):
        self.user.add_remote_agent(self.owner.ask("metadata"))

    def handle(self, operation, own, there, size):
        return self.user.initialize_xfer(
            operation,
            self.user.get_xfer_descs(rows((own, 0, size)), "DRAM"),
            self.user.get_xfer_descs([(there, size, 0)], "DRAM"),
            "owner",
        )

    def test_deregistered_memory_is_out_of_reach(self):
        which, there = self.owner.memory(1 << 20)
        other, there_too = self.owner.memory(4096)
        own = pattern(1 << 20, 1)
        register(self.user, own)
        self.load()
        used = self.handle("WRITE", own, there, 4096)
        unused = self.handle("WRITE", own, there, 1 << 20)
        self.assertEqual(carry(self.user, used), "DONE")
        self.owner.ask("deregister", which)
        self.owner.ask("fill", which, 0)
        new = self.handle("READ", own, there, 4096)
        before = own.copy()
        for handle in (used, unused, new):
            with self.assertRaisesRegex(Exception, "NOT_ALLOWED"):
                carry(self.user, handle)
        self.assertEqual(self.owner.ask("count", which, 0), 1 << 20)
        self.assertTrue((own == before).all())
        # What is still registered works on.
        self.assertEqual(carry(self.user, self.handle("WRITE", own, there_too, 4096)), "DONE")

    def test_memory_that_is_registered_again_needs_a_new_load(self):
        which, there = self.owner.memory(4096)
        own = pattern(4096, 1)
        register(self.user, own)
        self.load()
        old = self.handle("WRITE", own, there, 4096)
        self.assertEqual(carry(self.user, old), "DONE")
        self.owner.ask("deregister", which)
        self.owner.ask("register_again", which)
        self.owner.ask("fill", which, 0)
        with self.assertRaisesRegex(Exception, "NOT_ALLOWED"):
            self.user.transfer(old)
        self.assertEqual(self.owner.ask("count", which, 0), 4096)
        del old
        self.user.remove_remote_agent("owner")
        self.load()
        self.assertEqual(carry(self.user, self.handle("WRITE", own, there, 4096)), "DONE")
        self.assertEqual(self.owner.ask("content", which), own.tobytes())

    def test_own_memory_that_was_deregistered_is_an_error(self):
        which, there = self.owner.memory(4096)
        own = pattern(4096, 1)
        registered = register(self.user, own)
        self.load()
        handle = self.handle("WRITE", own, there, 4096)
        self.user.deregister_memory(registered)
        with self.assertRaisesRegex(Exception, "NOT_FOUND"):
            self.user.transfer(handle)
        self.assertEqual(self.owner.ask("count", which, 0), 4096)

    def test_a_released_transfer_lands_nothing_any_more(self):
        size = 256 << 20
        which, there = self.owner.memory(size)
        own = np.ones(size, np.uint8)
        register(self.user, own)
        self.load()
        stopped = 0
        for _ in range(5):
            self.owner.ask("fill", which, 0)
            handle = self.handle("WRITE", own, there, size)
            self.assertEqual(self.user.transfer(handle, b"must not come"), "PROC")
            self.user.release_xfer_handle(handle)
            landed = self.owner.ask("count", which, 1)
            if landed == size:
                continue
            stopped += 1
            time.sleep(0.3)
            self.assertEqual(self.owner.ask("count", which, 1), landed)
            self.assertEqual(self.owner.ask("messages", "user", 1, 0.05), [])
        self.assertGreater(stopped, 0)

    def test_own_memory_that_is_deregistered_in_mid_transfer(self):
        size = 256 << 20
        which, there = self.owner.memory(size, 5)
        own = np.zeros(size, np.uint8)
        registered = register(self.user, own)
        self.load()
        handle = self.handle("READ", own, there, size)
        self.assertEqual(self.user.transfer(handle), "PROC")
        self.user.deregister_memory(registered)
        own[:] = 0
        time.sleep(0.2)
        self.assertFalse(own.any())
        with self.assertRaisesRegex(Exception, "CANCELED"):
            finish(self.user, handle, "PROC")

    def test_a_peer_that_is_removed_in_mid_transfer(self):
        size = 256 << 20
        which, there = self.owner.memory(size, 5)
        own = np.zeros(size, np.uint8)
        register(self.user, own)
        self.load()
        handle = self.handle("READ", own, there, size)
        self.assertEqual(self.user.transfer(handle), "PROC")
        self.user.remove_remote_agent("owner")
        own[:] = 0
        time.sleep(0.2)
        self.assertFalse(own.any())
        handle.release()

    def killed(self, operation, size, at_once):
        which, there = self.owner.memory(size)
        own = np.ones(size, np.uint8)
        register(self.user, own)
        self.load()
        handle = self.handle(operation, own, there, size)
        self.assertEqual(carry(self.user, handle), "DONE")
        if at_once:
            self.owner.kill()
            with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
                carry(self.user, handle)
        else:
            status = self.user.transfer(handle)
            self.assertEqual(status, "PROC")
            self.owner.kill()
            began = time.monotonic()
            with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
                finish(self.user, handle, status)
            self.assertLess(time.monotonic() - began, 5)
        with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
            self.user.transfer(handle)
        with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
            self.user.send_notif("owner", b"?")
        del handle
        # It returns under its name, twice.
        for seed in (7, 8):
            self.user.remove_remote_agent("owner")
            self.owner.close()
            self.owner = Owner()
            which, there = self.owner.memory(4096, seed)
            self.load()
            self.assertEqual(carry(self.user, self.handle("READ", own, there, 4096), b"again"), "DONE")
            self.assertEqual(own[:4096].tobytes(), self.owner.ask("content", which))
            self.assertEqual(self.owner.ask("messages", "user", 1), [b"again"])

    def test_a_peer_that_was_killed_returns(self):
        self.killed("WRITE", 4096, True)

    def test_a_peer_that_is_killed_in_mid_write(self):
        self.killed("WRITE", 512 << 20, False)

    def test_a_peer_that_is_killed_in_mid_read(self):
        self.killed("READ", 512 << 20, False)

    def test_a_peer_that_leaves(self):
        which, there = self.owner.memory(4096)
        own = pattern(4096, 1)
        register(self.user, own)
        self.load()
        handle = self.handle("WRITE", own, there, 4096)
        self.assertEqual(carry(self.user, handle), "DONE")
        self.assertEqual(self.owner.close(), 0)
        with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
            self.user.transfer(handle)

    def test_a_peer_that_never_was_there(self):
        which, there = self.owner.memory(4096)
        own = pattern(4096, 1)
        register(self.user, own)
        metadata = self.owner.ask("metadata")
        self.owner.kill()
        self.user.add_remote_agent(metadata)
        handle = self.handle("WRITE", own, there, 4096)
        with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
            self.user.transfer(handle)
        with self.assertRaisesRegex(Exception, "REMOTE_DISCONNECT"):
            self.user.make_connection("owner")

    def test_forged_metadata_is_refused(self):
        self.owner.memory(4096)
        metadata = self.owner.ask("metadata")
        at = metadata.index(b"HYE1")
        for changed in (metadata[:at] + b"x" + metadata[at + 1 :], metadata[: len(metadata) // 2]):
            with self.assertRaises(Exception):
                self.user.add_remote_agent(changed)
                self.user.make_connection("owner")
            try:
                self.user.remove_remote_agent("owner")
            except Exception:
                pass
        self.load()

    def test_an_agent_that_is_destroyed_with_things_left(self):
        which, there = self.owner.memory(1 << 20)
        own = pattern(1 << 20, 1)
        for number in range(20):
            other = agent(f"other {number}")
            register(other, own)
            register(other, own)
            other.add_remote_agent(self.owner.ask("metadata"))
            other.send_notif("owner", b"here")
            self.owner.ask("add", other.get_agent_metadata())
            self.owner.ask("send", other.name, b"nobody reads this")
            del other
            gc.collect()
            self.assertEqual(self.owner.ask("messages", f"other {number}", 1), [b"here"])

    def test_peers_that_come_and_go_leave_nothing(self):
        own = pattern(4096, 1)
        register(self.user, own)

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        counts = []
        for number in range(12):
            with Owner("guest") as guest:
                which, there = guest.memory(4096)
                self.user.add_remote_agent(guest.ask("metadata"))
                handle = self.user.initialize_xfer(
                    "WRITE",
                    self.user.get_xfer_descs(rows((own, 0, 4096)), "DRAM"),
                    self.user.get_xfer_descs([(there, 4096, 0)], "DRAM"),
                    "guest",
                    b"bye",
                )
                self.assertEqual(carry(self.user, handle), "DONE")
                self.assertEqual(guest.ask("messages", "user", 1), [b"bye"])
                if number % 2:
                    guest.kill()
            handle.release()
            self.user.remove_remote_agent("guest")
            time.sleep(0.05)
            counts.append(descriptors())
        self.assertEqual(counts[1], counts[-1], counts)


if __name__ == "__main__":
    unittest.main()
