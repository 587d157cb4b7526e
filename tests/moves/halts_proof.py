# SPDX-License-Identifier: Apache-2.0
"""The estimated halt of a live move against the measured one, and whether a ceiling is ever passed, by real QEMU.

`make test-moves` runs it. The state of the vGPU goes while the VM is halted (no PRE_COPY), as with a card of which NVML
says that it does not stream; the link is capped by the kernel (tc), below what the emulated network could carry.
"""

import json
from collections.abc import Iterator
from statistics import median

import pytest

from tests.moves.fleet import LIVE, Fleet, declare_moves, say
from tests.moves.hosts import Way

pytestmark = pytest.mark.timeout(1800)

MBIT_S = (64, 128)
"""Of the link."""
STATES_MIB = (1, 16, 64, 256)
ESTIMATES_MIB = {64: (1, 16, 64), 128: STATES_MIB}
"""Sizes of the state at each bandwidth."""
CEILINGS_S = (1.2, 1.5, 2, 3, 5, 8)
_CAP = """
modprobe -q sch_tbf
tc qdisc replace dev eth1 root tbf rate {mbit_s}mbit burst 64kb latency 100ms
"""


@pytest.fixture
def way(fleet: Fleet) -> Iterator[Way]:
    """A way whose vGPUs have no PRE_COPY on both hosts."""
    hosts = (fleet.a, fleet.b)
    for host in hosts:
        host.fault(Way.MDEV_PF, "move-no-precopy", 1)
    yield Way.MDEV_PF
    for host in hosts:
        host.run("tc qdisc del dev eth1 root 2>/dev/null || true")
        declare_moves(fleet.operator.home, host)


def cap(fleet: Fleet, mbit_s: int, *, declared: int) -> None:
    """Let both hosts send so much in a second, and say another amount in the inventory."""
    for host in (fleet.a, fleet.b):
        host.run(_CAP.format(mbit_s=mbit_s))
        declare_moves(fleet.operator.home, host, bandwidth_mbps=declared)


def test_the_estimate_is_near_the_halt(fleet: Fleet, way: Way) -> None:
    before = fleet.create(way)
    ratios = []
    for mbit_s, states in ESTIMATES_MIB.items():
        cap(fleet, mbit_s, declared=mbit_s)
        for state in states:
            source, target = fleet.ends()
            source.fault(way, "move-state", state)
            estimate = fleet.verdict(target.name)["downtime_s"]
            measured = fleet.operator.json(*LIVE)["downtime_s"]
            source.fault(way, "move-state", 0)
            before = fleet.runs_on(target, before)
            ratios.append(estimate / measured)
            say(f"{state} MiB at {mbit_s} Mbit/s: {estimate:.2f} s, halted for {measured:.2f} s, {ratios[-1]:.2f}")
    say(f"estimate ÷ halt: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    assert min(ratios) >= 0.5 and max(ratios) <= 2
    fleet.has_nothing_left()


def test_a_ceiling_is_not_passed_over_a_link_that_is_slower_than_declared(fleet: Fleet, way: Way) -> None:
    """The estimate lets each move begin; QEMU is to end those that do not fit, and the VM runs on where it was."""
    before = fleet.create(way)
    kept, ended = 0, 0
    cap(fleet, 64, declared=10_000)
    for ceiling in CEILINGS_S:
        for state in STATES_MIB:
            source, target = fleet.ends()
            source.fault(way, "move-state", state)
            done = fleet.operator.run(*LIVE, "--max-downtime", f"{ceiling}s", "--json")
            source.fault(way, "move-state", 0)
            halted = f"{state} MiB, ceiling {ceiling} s: {done.code} {done.err.strip().splitlines()[-1:]}"
            assert done.code in (0, 6, 7), halted
            before = fleet.runs_on(target if done.code == 0 else source, before)
            if done.code == 0:
                measured = json.loads(done.out)["downtime_s"]
                say(f"{halted} {measured:.2f} s")
                assert measured <= ceiling, halted
                kept += 1
            else:
                say(halted)
                ended += 1
    say(f"{kept} moves within their ceiling, {ended} refused or ended")
    assert kept and ended
    fleet.has_nothing_left()
