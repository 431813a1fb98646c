"""Bytes: each arrives where it belongs, and no other changes."""

import unittest

import numpy as np
from owner import OURS, Owner, agent, carry, pattern, register, register_parts, rows


class Transfers(unittest.TestCase):
    def setUp(self):
        self.owner = Owner()
        self.addCleanup(self.owner.close)
        self.user = agent("user")

    def load(self):
        self.user.add_remote_agent(self.owner.ask("metadata"))

    def transfer(self, operation, local, remote, message=b""):
        handle = self.user.initialize_xfer(
            operation,
            self.user.get_xfer_descs(local, "DRAM"),
            self.user.get_xfer_descs(remote, "DRAM"),
            "owner",
            message,
        )
        self.assertEqual(carry(self.user, handle), "DONE")
        return handle

    def test_every_size_both_ways(self):
        sizes = [1, 8, 4096, 65536, 65537, 1 << 20, (64 << 20) - 3]
        most = max(sizes) + 64
        which, there = self.owner.memory(most)
        own, back = pattern(most, 1), np.zeros(most, np.uint8)
        register(self.user, own), register(self.user, back)
        self.load()
        for at, size in enumerate(sizes):
            self.owner.ask("fill", which, 0)
            own[:size] = pattern(size, 10 + at)
            self.transfer("WRITE", rows((own, 0, size)), [(there + 32, size, 0)])
            seen = np.frombuffer(self.owner.ask("content", which), np.uint8)
            self.assertTrue((seen[32 : 32 + size] == own[:size]).all(), size)
            self.assertFalse(seen[:32].any() or seen[32 + size :].any(), size)
            back[:] = 0
            self.transfer("READ", rows((back, 7, size)), [(there + 32, size, 0)])
            self.assertTrue((back[7 : 7 + size] == own[:size]).all(), size)
            self.assertFalse(back[:7].any() or back[7 + size :].any(), size)

    def test_ten_thousand_strided_descriptors(self):
        count, block, step = 10_000, 4096, 8192
        which, there = self.owner.memory(count * step)
        own = pattern(count * block, 3)
        back = np.zeros(count * block, np.uint8)
        register(self.user, own), register(self.user, back)
        self.load()
        # Block i goes to place (7 i) mod 10,000, so that nothing is adjacent there.
        places = [(there + (i * 7 % count) * step, block, 0) for i in range(count)]
        local = rows(*[(own, i * block, block) for i in range(count)])
        self.transfer("WRITE", local, places)
        seen = np.frombuffer(self.owner.ask("content", which), np.uint8).reshape(count, step)
        order = np.array([i * 7 % count for i in range(count)])
        self.assertTrue((seen[order, :block] == own.reshape(count, block)).all())
        self.assertFalse(seen[:, block:].any())
        self.transfer("READ", rows(*[(back, i * block, block) for i in range(count)]), places)
        self.assertTrue((back == own).all())

    def test_prepared_lists_and_indexes(self):
        which, there = self.owner.memory(1 << 20, seed=5)
        back = np.zeros(1 << 20, np.uint8)
        register(self.user, back)
        self.load()
        blocks = np.array([[there + i * 4096, 4096, 0] for i in range(256)], dtype=np.uint64)
        mine = np.array([[back.ctypes.data + i * 4096, 4096, 0] for i in range(256)], dtype=np.uint64)
        local = self.user.prep_xfer_dlist("NIXL_INIT_AGENT", mine, "DRAM")
        remote = self.user.prep_xfer_dlist("owner", blocks, "DRAM")
        chosen = [3, 4, 5, 100, 7, 255]
        handle = self.user.make_prepped_xfer("READ", local, chosen, remote, chosen[::-1])
        for _ in range(3):
            back[:] = 0
            self.assertEqual(carry(self.user, handle), "DONE")
            seen = np.frombuffer(self.owner.ask("content", which), np.uint8).reshape(256, 4096)
            for here, far in zip(chosen, chosen[::-1]):
                self.assertTrue((back.reshape(256, 4096)[here] == seen[far]).all())
            self.assertEqual(int(back.reshape(256, 4096).any(axis=1).sum()), len(chosen))

    def test_nothing_and_lists_with_nothing_in_them(self):
        which, there = self.owner.memory(100)
        own = pattern(100, 8)
        register(self.user, own)
        self.load()
        self.transfer("WRITE", rows((own, 0, 0)), [(there, 0, 0)])
        self.transfer("WRITE", rows((own, 0, 5), (own, 5, 0), (own, 50, 7)),
                      [(there, 5, 0), (there + 9, 0, 0), (there + 60, 7, 0)])
        seen = np.frombuffer(self.owner.ask("content", which), np.uint8)
        self.assertTrue((seen[:5] == own[:5]).all() and (seen[60:67] == own[50:57]).all())
        self.assertFalse(seen[5:60].any() or seen[67:].any())

    def test_ranges_twice_overlapping_and_empty(self):
        own = pattern(10_000, 9)
        twice = [register(self.user, own) for _ in range(2)]
        part = register_parts(self.user, (own, 5000, 5000))
        register_parts(self.user, (own, 0, 0))
        which, there = self.owner.memory(10_000)
        self.owner.ask("register_again", which)
        self.load()
        self.transfer("WRITE", rows((own, 0, 10_000)), [(there, 10_000, 0)])
        self.user.deregister_memory(twice[0])
        own[:] = 1
        self.transfer("WRITE", rows((own, 0, 10_000)), [(there, 10_000, 0)])
        self.assertEqual(self.owner.ask("count", which, 1), 10_000)
        self.user.deregister_memory(twice[1])
        self.transfer("WRITE", rows((own, 5000, 5000)), [(there, 5000, 0)])
        self.user.deregister_memory(part)

    def test_an_agent_transfers_to_itself(self):
        own = pattern(1 << 20, 2)
        register(self.user, own)
        wanted = own.copy()
        wanted[600_000:900_000] = own[:300_000]
        handle = self.user.initialize_xfer(
            "WRITE",
            self.user.get_xfer_descs(rows((own, 0, 300_000)), "DRAM"),
            self.user.get_xfer_descs(rows((own, 600_000, 300_000)), "DRAM"),
            "user",
            b"to myself",
        )
        self.assertEqual(carry(self.user, handle), "DONE")
        self.assertTrue((own == wanted).all())
        self.assertEqual(self.user.get_new_notifs(), {"user": [b"to myself"]})

    def test_many_ranges_more_than_an_owner_grants_at_once(self):
        """An owner grants 4,096 ranges at a time. More can be used, one transfer after the other."""
        count = 5000
        addresses = self.owner.ask("many", count, 512)
        own = pattern(512, 4)
        register(self.user, own)
        self.load()
        descriptors = [self.user.get_xfer_descs([(address, 512, 0)], "DRAM") for address in addresses]
        mine = self.user.get_xfer_descs(rows((own, 0, 512)), "DRAM")
        handles = [self.user.initialize_xfer("WRITE", mine, each, "owner") for each in descriptors]
        for handle in handles + handles[:100]:
            self.assertEqual(carry(self.user, handle), "DONE")
        self.assertEqual(self.owner.ask("many_equal", own.tobytes()), count)

    def test_only_memory_of_the_host(self):
        own = np.zeros(4096, np.uint8)
        for kind in ("VRAM", "FILE", "OBJ", "BLOCK"):
            with self.assertRaises(Exception, msg=kind):
                self.user.register_memory([(own.ctypes.data, 4096, 0, "")], kind, [OURS])

    def test_memory_that_is_not_mapped_is_an_error(self):
        which, there = self.owner.memory(4096)
        self.user.register_memory([(4096, 4096, 0, "")], "DRAM")
        self.load()
        handle = self.user.initialize_xfer(
            "WRITE",
            self.user.get_xfer_descs([(4096, 4096, 0)], "DRAM"),
            self.user.get_xfer_descs([(there, 4096, 0)], "DRAM"),
            "owner",
        )
        with self.assertRaisesRegex(Exception, "INVALID_PARAM"):
            self.user.transfer(handle)
        self.assertEqual(self.owner.ask("count", which, 0), 4096)


if __name__ == "__main__":
    unittest.main()
