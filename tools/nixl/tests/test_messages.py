"""Notifications: after their data, once, in order, and without the sender's help."""

import time
import unittest

import numpy as np
from owner import Owner, agent, carry, finish, messages_of, pattern, register, rows


class Messages(unittest.TestCase):
    def setUp(self):
        self.owner = Owner()
        self.addCleanup(self.owner.close)
        self.user = agent("user")

    def load(self):
        self.user.add_remote_agent(self.owner.ask("metadata"))

    def handle(self, operation, own, there, size, message=b""):
        return self.user.initialize_xfer(
            operation,
            self.user.get_xfer_descs(rows((own, 0, size)), "DRAM"),
            self.user.get_xfer_descs([(there, size, 0)], "DRAM"),
            "owner",
            message,
        )

    def test_a_notification_comes_after_its_data_and_the_sender_need_not_poll(self):
        size = 64 << 20
        which, there = self.owner.memory(size)
        own = np.zeros(size, np.uint8)
        register(self.user, own)
        self.load()
        handle = self.handle("WRITE", own, there, size)
        places = [0, size // 2, size - 1]
        for round_number in range(1, 6):
            own[:] = round_number
            status = self.user.transfer(handle, b"round %d" % round_number)
            # Nobody polls the transfer until the owner has answered.
            message, seen = self.owner.ask("message_and_content", "user", which, places)
            self.assertEqual(message, [b"round %d" % round_number])
            self.assertEqual(seen, bytes([round_number] * 3))
            self.assertEqual(self.owner.ask("count", which, round_number), size)
            self.assertEqual(finish(self.user, handle, status), "DONE")

    def test_notifications_come_once_and_in_order(self):
        which, there = self.owner.memory(4096)
        own = pattern(4096, 1)
        register(self.user, own)
        self.load()
        handle = self.handle("WRITE", own, there, 4096)
        # More than a peer may have on the way, while its program takes none.
        wanted = [b"%05d" % i + b"x" * 200 for i in range(20_000)]
        for text in wanted:
            self.assertEqual(carry(self.user, handle, text), "DONE")
        self.assertEqual(self.owner.ask("messages", "user", len(wanted)), wanted)
        self.assertEqual(self.owner.ask("messages", "user", 1, 0.2), [])

    def test_an_idle_program_is_sent_more_than_a_peer_may_have_unread(self):
        """The program of the owner asks for nothing until the sender is dead."""
        with Owner("sender") as sender:
            sender.ask("add", self.owner.ask("metadata"))
            sender.ask("send_many", "owner", 5000, 1000)
            time.sleep(2)
            sender.kill()
        texts = self.owner.ask("messages", "sender", 5000)
        self.assertEqual([int(text[:4]) for text in texts], list(range(5000)))

    def test_a_read_notifies_and_the_handle_keeps_its_message(self):
        which, there = self.owner.memory(1 << 20, 3)
        own = np.zeros(1 << 20, np.uint8)
        register(self.user, own)
        self.load()
        handle = self.handle("READ", own, there, 1 << 20, b"first")
        self.assertEqual(carry(self.user, handle), "DONE")
        self.assertEqual(carry(self.user, handle, b"second"), "DONE")
        self.assertEqual(carry(self.user, handle), "DONE")
        self.assertEqual(self.owner.ask("messages", "user", 3), [b"first", b"second", b"second"])

    def test_messages_of_their_own(self):
        self.load()
        self.owner.ask("add", self.user.get_agent_metadata())
        texts = [b"short", b"with\0zero\xff", b"y" * 250_000]
        for text in texts:
            self.user.send_notif("owner", text)
            self.owner.ask("send", "user", text)
        self.assertEqual(self.owner.ask("messages", "user", len(texts)), texts)
        self.assertEqual(messages_of(self.user.get_new_notifs, "owner", len(texts)), texts)
        with self.assertRaisesRegex(Exception, "INVALID_PARAM"):
            self.user.send_notif("owner", b"z" * 300_000)
        self.user.send_notif("user", b"to myself")
        self.assertEqual(messages_of(self.user.get_new_notifs, "user", 1), [b"to myself"])

    def test_long_names_and_names_that_are_no_text(self):
        for name in ("n" * 5000, "umläut ✓", "line\nbreak"):
            with Owner(name) as other:
                self.assertEqual(self.user.add_remote_agent(other.ask("metadata")), name.encode())
                other.ask("add", self.user.get_agent_metadata())
                self.user.send_notif(name, b"hello")
                self.assertEqual(other.ask("messages", "user", 1), [b"hello"])
                other.ask("send", "user", b"back")
                self.assertEqual(messages_of(self.user.get_new_notifs, name, 1), [b"back"])

    def test_an_idle_agent_costs_no_processor_time(self):
        self.load()
        self.user.send_notif("owner", b"connected")
        self.assertEqual(self.owner.ask("messages", "user", 1), [b"connected"])
        before = time.process_time()
        spent = self.owner.ask("processor_time", 2.0)
        here = time.process_time() - before
        # An agent that spins takes 2 seconds.
        self.assertLess(max(spent, here), 0.2)


if __name__ == "__main__":
    unittest.main()
