"""What all measurements share: sizes, the clock, and the lines of the output."""

import json
import time

# The sizes of transfers, and of a batch of many descriptors.
SIZES = [("4 KiB", 4096), ("64 KiB", 65536), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)]
ROWS, EACH, STRIDE = 10_000, 4096, 8192
LENT = ROWS * STRIDE
# The ports at which the agents of engines listen that have no choice of their own.
OWN_PORT, PEER_PORT = 7301, 7302


def clock():
    """Nanoseconds."""
    return time.perf_counter_ns()


def say(of, case, *values, note=None):
    """Prints the figures of a case, whose name is one of cases.rs: nanoseconds, bytes, or a note in their stead. `of` has the
    side and the place."""
    line = {"side": of.side, "place": of.place, "case": case}
    line |= {"note": note} if note else {"values": [round(value) for value in values]}
    print(json.dumps(line), flush=True)
