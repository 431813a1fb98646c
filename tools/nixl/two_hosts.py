"""Two hosts on one machine, with a link between them: network namespaces. And a bare stream between them."""

import os
import socket
import statistics
import subprocess
import sys
import time

THERE = ["ip", "netns", "exec", "there"]
INSIDE = "HYDRANT_MEASURE_INSIDE"

# This process's host has the address 10.8.0.1, the other one 10.8.0.2.
HOSTS = """set -e
# UCX finds interfaces in /sys.
mount -t sysfs sysfs /sys; mount -t tmpfs hosts /run; mkdir /run/netns; ip link set lo up; ip netns add there
ip link add here type veth peer name eth0 netns there
ip addr add 10.8.0.1/24 dev here; ip -n there addr add 10.8.0.2/24 dev eth0
ip link set here up; ip -n there link set lo up; ip -n there link set eth0 up
until ip link show here | grep -q LOWER_UP && ip -n there link show eth0 | grep -q LOWER_UP; do sleep 0.05; done
exec "$@"
"""

# Answers each message by a byte. A message is its length and its bytes.
ANSWER = """
import socket
listener = socket.create_server(("10.8.0.2", 7501))
print("listening", flush=True)
stream = listener.accept()[0]
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
buffer = memoryview(bytearray(64 << 20))
def take(count):
    done = 0
    while done < count:
        taken = stream.recv_into(buffer[done:count])
        if not taken:
            raise SystemExit
        done += taken
while True:
    take(8)
    take(int.from_bytes(buffer[:8], "little"))
    stream.sendall(b"1")
"""


def enter():
    """Runs this program again on a host that has a link to another, unless it does already."""
    if os.environ.get(INSIDE):
        return
    os.environ.update({INSIDE: "1", "HYDRANT_OFI_INTERFACE": "10.8.0.0/24", "UCX_TLS": "tcp"})
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    os.execvp(apart[0], [*apart, "sh", "-c", HOSTS, "sh", sys.executable, *sys.argv])


def bare(sizes):
    """The median microseconds until a message is acknowledged, by its size: a stream of plain sockets."""
    server = subprocess.Popen([*THERE, sys.executable, "-S", "-c", ANSWER], stdout=subprocess.PIPE)
    server.stdout.readline()
    stream = socket.create_connection(("10.8.0.2", 7501))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found = {}
    for size, count in sizes:
        message, times = bytes(size), []
        head = size.to_bytes(8, "little")
        for _ in range(count):
            begin = time.perf_counter_ns()
            if size < 1 << 20:
                stream.sendall(head + message)
            else:
                stream.sendall(head)
                stream.sendall(message)
            stream.recv(1)
            times.append((time.perf_counter_ns() - begin) / 1e3)
        found[size] = statistics.median(times)
    stream.close()
    server.wait()
    return found
