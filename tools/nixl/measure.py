"""Measures NIXL over Hydrant beside NIXL over UCX, on one host or two, and prints a table.

Each backend gets processes of its own, since an idle agent over UCX takes a processor. The rounds of both take turns. Each
figure is the median of all rounds.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tests"))

import numpy as np  # noqa: E402
import two_hosts  # noqa: E402
from owner import Owner, agent, finish, register, rows  # noqa: E402

SIZES = [(8, 3000), (4096, 3000), (65536, 2000), (1 << 20, 300), (64 << 20, 9)]
STRIDED = 10_000
# Both sides begin on a huge page: a copy of small pages takes up to three times as long, by either backend.
HUGE = 2 << 20
BACKENDS = ("UCX", "HYDRANT")


def clock():
    return time.perf_counter_ns() / 1e3


def times(user, handle, count):
    """The microseconds from the post to the end, and those of the post, of each of so many transfers."""
    whole, posts = [], []
    for _ in range(count):
        begin = clock()
        status = user.transfer(handle)
        posted = clock()
        while status == "PROC":
            status = user.check_xfer_state(handle)
        whole.append(clock() - begin)
        posts.append(posted - begin)
    return whole, posts


def measure(backend):
    """One round. Returns lists of figures by name."""
    most = 64 << 20
    found = {}
    with Owner(backends=[backend]) as owner:
        user = agent("user", [backend])
        _, there = owner.memory(STRIDED * 8192 + HUGE)
        there += -there % HUGE
        whole = np.ones(max(most, STRIDED * 4096) + HUGE, np.uint8)
        own = whole[-whole.ctypes.data % HUGE :]
        register(user, own)
        user.add_remote_agent(owner.ask("metadata"))
        user.make_connection("owner")

        def handle(operation, local, remote):
            local, remote = user.get_xfer_descs(local, "DRAM"), user.get_xfer_descs(remote, "DRAM")
            return user.initialize_xfer(operation, local, remote, "owner")

        for operation in ("WRITE", "READ"):
            for size, count in SIZES:
                made = handle(operation, rows((own, 0, size)), [(there, size, 0)])
                times(user, made, 3)
                whole, posts = times(user, made, count)
                found[f"{operation.lower()} {size}"] = whole
                if size == most:
                    found[f"{operation.lower()} {size}, posting"] = posts
        local = np.array([[own.ctypes.data + i * 4096, 4096, 0] for i in range(STRIDED)], np.uint64)
        remote = np.array([[there + i * 8192, 4096, 0] for i in range(STRIDED)], np.uint64)
        for operation in ("WRITE", "READ"):
            begin = clock()
            made = handle(operation, local, remote)
            found.setdefault("strided, initialize", []).append(clock() - begin)
            times(user, made, 1)
            whole, posts = times(user, made, 7)
            found[f"strided {operation.lower()}"] = whole
            found[f"strided {operation.lower()}, posting"] = posts
        time.sleep(0.2)
        before = time.process_time()
        theirs = owner.ask("processor_time", 1.0) * 1e6
        found["idle, user"] = [(time.process_time() - before) * 1e6]
        found["idle, owner"] = [theirs]
        owner.kill()

    for name, size, is_busy in (("killed, then posted", 4096, False), ("killed in mid-transfer", 512 << 20, True)):
        for _ in range(2):
            found.setdefault(name, []).append(time_to_know(user, size, is_busy, backend))
    print(json.dumps(found), flush=True)
    # UCX crashes at the end of a process.
    os._exit(0)


def time_to_know(user, size, is_busy, backend):
    name = f"victim {time.monotonic_ns()}"
    own = np.ones(size, np.uint8)
    registered = register(user, own)
    with Owner(name, backends=[backend]) as owner:
        _, there = owner.memory(size)
        user.add_remote_agent(owner.ask("metadata"))
        local = user.get_xfer_descs(rows((own, 0, size)), "DRAM")
        remote = user.get_xfer_descs([(there, size, 0)], "DRAM")
        made = user.initialize_xfer("WRITE", local, remote, name)
        finish(user, made, user.transfer(made))
        if not is_busy:
            owner.kill()
            begin = clock()
        else:
            # UCX copies in the post, so another process kills. It tells the time.
            code = "import os,sys,time;time.sleep(0.03);os.kill(int(sys.argv[1]),9);print(time.perf_counter_ns())"
            killer = subprocess.Popen([sys.executable, "-S", "-c", code, str(owner.process.pid)], stdout=subprocess.PIPE)
            begin = None
        try:
            while begin is None:
                finish(user, made, user.transfer(made))
            finish(user, made, user.transfer(made))
        except Exception as error:
            if "DISCONNECT" not in str(error) and "BACKEND" not in str(error):
                raise
        end = clock()
        if is_busy:
            begin = int(killer.communicate()[0]) / 1e3
        owner.process.wait()
    made.release()
    user.remove_remote_agent(name)
    user.deregister_memory(registered)
    del own
    gc.collect()
    return end - begin


def shown(microseconds):
    for limit, unit, digits in ((1e3, 1, 1), (1e6, 1e3, 2)):
        if microseconds < limit:
            return f"{microseconds / unit:.{digits}f} {'µs' if unit == 1 else 'ms'}"
    return f"{microseconds / 1e6:.2f} s"


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--two-hosts", action="store_true", help="over TCP, between two network namespaces")
    options.add_argument("--round-of", choices=BACKENDS, help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.round_of:
        measure(options.round_of)
    if options.two_hosts:
        two_hosts.enter()
        os.environ["HYDRANT_OWNER_BEFORE"] = " ".join(two_hosts.THERE)
    all_of = {backend: {} for backend in BACKENDS}
    for turn in range(options.rounds):
        for backend in BACKENDS if turn % 2 == 0 else BACKENDS[::-1]:
            command = [sys.executable, os.path.abspath(__file__), "--round-of", backend]
            environment = dict(os.environ, HYDRANT_NIXL_LOG="off", NIXL_LOG_LEVEL="FATAL", UCX_LOG_LEVEL="fatal")
            ran = subprocess.run(command, stdout=subprocess.PIPE, env=environment, timeout=300)
            lines = [line for line in ran.stdout.decode().splitlines() if line.startswith("{")]
            if not lines:
                sys.exit(f"a round of {backend} ended with {ran.returncode}")
            for name, values in json.loads(lines[-1]).items():
                all_of[backend].setdefault(name, []).extend(values)
    print("| median (least) | UCX | Hydrant | ratio |\n|---|---:|---:|---:|")
    for name in all_of[BACKENDS[0]]:
        cells = []
        for backend in BACKENDS:
            values = all_of[backend][name]
            cells.append((statistics.median(values), min(values)))
        ratio = cells[1][0] / cells[0][0]
        texts = [f"{shown(middle)} ({shown(least)})" for middle, least in cells]
        print(f"| {name} | {texts[0]} | {texts[1]} | {ratio:.3g} |")
    if options.two_hosts:
        figures = two_hosts.bare(SIZES).items()
        print("\nA bare stream, acknowledged: " + ", ".join(f"{size} B in {shown(time)}" for size, time in figures))


if __name__ == "__main__":
    main()
