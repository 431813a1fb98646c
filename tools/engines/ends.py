"""Peers that die, stop, return, and cannot be reached, and the time until the survivor knows of it."""

import shlex
import subprocess
import time

from figures import SIZES, clock
from sides import Lost

# The seconds after which a survivor is not told, and how that is said.
PATIENCE = 10
NOT_TOLD = f"not in {PATIENCE} s"
COUNT = SIZES[0][1]
# Cases of cases.rs.
KILLED, STOPPED, CUT = "SIGKILL", "SIGSTOP", "link down"
TOLD, FAILS = "told without traffic", "then a write fails"


def measure_deaths(of, peer, there):
    """Kills the peer and its successors. Each successor is a process of the same name. `of` is the Round."""
    if not of.user.has_events:
        of.say(f"{KILLED}, {TOLD}", note="no events")
    for is_idle in [True, False, False] if of.user.has_events else [False, False]:
        successor = of.peer()
        transfer = of.transfer(True, there, COUNT)
        transfer.run()
        begin = clock()
        peer.kill()
        if is_idle:
            say_loss(of, f"{KILLED}, {TOLD}", begin, hears(of))
        else:
            say_loss(of, f"{KILLED}, {FAILS}", begin, writes(transfer, True))
        peer.end()
        peer, (card, there) = successor, of.open(successor)
        of.say("a new process of the name, until a write", meet(of, card, there))


def measure_waits(of, peer, card, there):
    """Stops the peer. Takes the link of its successor down."""
    if of.options.link:
        measure_link(of, card, there)
        peer.end()
        peer = of.peer()
        card, there = of.open(peer)
        meet(of, card, there)
    transfer = of.transfer(True, there, COUNT)
    transfer.run()
    peer.stop()
    say_loss(of, f"{STOPPED}, {FAILS}", clock(), writes(transfer, False))


def measure_link(of, card, there):
    """Takes the link of the peer's host down, and up again."""
    if of.user.has_events:
        set_link(of, "down")
        say_loss(of, f"{CUT}, {TOLD}", clock(), hears(of))
        set_link(of, "up")
        meet(of, card, there)
    else:
        of.say(f"{CUT}, {TOLD}", note="no events")
    transfer = of.transfer(True, there, COUNT)
    transfer.run()
    set_link(of, "down")
    outcome = say_loss(of, f"{CUT}, {FAILS}", clock(), writes(transfer, False))
    set_link(of, "up")
    begin = clock()
    if outcome == NOT_TOLD:
        # The write is still under way.
        try:
            transfer.finish(PATIENCE)
        except (Lost, TimeoutError):
            outcome = Lost
    if outcome != NOT_TOLD:
        try:
            meet(of, card, there)
        except Lost:
            of.say("link up again, until a write", note=NOT_TOLD)
            return
    of.say("link up again, until a write", clock() - begin)


def set_link(of, state):
    subprocess.run([*shlex.split(of.options.link), state], check=True)


def meet(of, card, there):
    """Forgets the peer before, meets this one, and writes to it. Returns the nanoseconds."""
    begin = clock()
    of.user.forget()
    end = time.monotonic() + PATIENCE
    while True:
        try:
            of.user.meet(card)
            of.transfer(True, there, COUNT).run()
            return clock() - begin
        except Lost:
            if time.monotonic() > end:
                raise


def hears(of):
    """Waits for the event of a loss. Returns the time at which it came, or the note that none did."""
    return clock() if of.user.hears_of_loss(PATIENCE) else NOT_TOLD


def writes(transfer, again):
    """Writes, if `again` until a write fails. Returns the time at which it failed, or a note."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            transfer.post()
            transfer.finish(end - time.monotonic())
        except Lost:
            return clock()
        except TimeoutError:
            break
        if not again:
            return "it is written"
    return NOT_TOLD


def say_loss(of, case, begin, outcome):
    if isinstance(outcome, str):
        of.say(case, note=outcome)
    else:
        of.say(case, outcome - begin)
    return outcome
