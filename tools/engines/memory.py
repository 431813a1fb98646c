"""Memory for transfers."""

import mmap

import numpy as np

# Both sides begin on a huge page: copies of small pages take up to three times as long, by any engine.
HUGE = 2 << 20
# Python's mmap does not know it.
MAP_NORESERVE = 0x4000


def on_huge_page(count, value):
    """So many bytes of this value, from the start of a huge page on."""
    whole = np.full(count + HUGE, value, np.uint8)
    return whole[-whole.ctypes.data % HUGE :][:count]


def untouched(count):
    """So many bytes of which none has a page yet. It may be more than there is. Returns the mapping and its address."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    mapping = mmap.mmap(-1, count, flags=flags)
    return mapping, np.frombuffer(mapping, np.uint8).ctypes.data


def kept():
    """The bytes of this process that are in memory or locked there, as the kernel counts them."""
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    figures = [int(lines.get(name, "0").split()[0]) for name in ("VmRSS", "VmLck", "VmPin")]
    return max(figures) * 1024
