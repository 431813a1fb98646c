"""An agent with UCX and Hydrant: each transfer goes by the backend that is named for it."""

import os
import sys
import traceback

from owner import OURS, Owner, agent, carry, pattern, register, rows

BOTH = (OURS, "UCX")


def main():
    user = agent("user", BOTH)
    if "UCX" not in user.backends:
        return 77
    with Owner(backends=BOTH) as owner:
        which, there = owner.memory(1 << 20)
        own = pattern(1 << 20, 1)
        register(user, own)
        user.add_remote_agent(owner.ask("metadata"))
        for turn in range(6):
            backend = BOTH[turn % 2]
            own[:] = turn + 1
            handle = user.initialize_xfer(
                "WRITE",
                user.get_xfer_descs(rows((own, 0, 1 << 20)), "DRAM"),
                user.get_xfer_descs([(there, 1 << 20, 0)], "DRAM"),
                "owner",
                b"by " + backend.encode(),
                [backend],
            )
            assert user.query_xfer_backend(handle) == backend
            assert carry(user, handle) == "DONE"
            assert owner.ask("messages", "user", 1) == [b"by " + backend.encode()]
            assert owner.ask("count", which, turn + 1) == 1 << 20
            handle.release()
        # `send_notif` of NIXL 1.5.1 passes a backend that is no list, and fails.
        user.agent.genNotif("owner", b"named", [user.backends[OURS]])
        assert owner.ask("messages", "user", 1) == [b"named"]
        owner.kill()
    return 0


if __name__ == "__main__":
    status = 1
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    # UCX crashes at the usual end of a process.
    os._exit(status)
