# SPDX-License-Identifier: Apache-2.0
"""Whatever ends while a running VM moves by real QEMU and real libvirt: it is never twice, lost or left over.

`make test-moves` runs it. `python -m tests.proof.moves` does the same many times on simulated hosts.
"""

from collections.abc import Callable

import pytest

from tests.moves.fleet import DOMAIN, LIVE, WEB, Fleet, is_halted, job, say
from tests.moves.hosts import MoveHost, Way, wait_for

pytestmark = pytest.mark.timeout(1800)

# The network card that leads to the other host, and nowhere else.
_LINK = "eth1"


def _slow_transfer(fleet: Fleet) -> None:
    fleet.a.fault(Way.MDEV_PF, "move-state", 128)
    fleet.a.fault(Way.MDEV_PF, "move-bandwidth", 4)


PHASES: dict[str, tuple[Callable[[Fleet], None], Callable[[Fleet], bool]]] = {
    "sending": (_slow_transfer, lambda fleet: job(fleet.a).get("data_processed", 0) > 0),
    "halted": (lambda fleet: fleet.a.fault(Way.MDEV_PF, "move-sleep", 4000), lambda fleet: is_halted(fleet, "source")),
    "sent": (lambda fleet: fleet.b.fault(Way.MDEV_PF, "move-sleep", 4000), lambda fleet: is_halted(fleet, "target")),
}
"""Of each phase of a move: how it gets long enough to be met, and how it is known."""


# While QEMU loads the state, its monitor does not answer: a libvirtd that starts then may end it (seen with 11.3).
MAY_BE_OFF = {"qemu-a", "qemu-b", "libvirtd-b"}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    "victim", ["client", "link", *(f"{what}-{end}" for what in ("libvirtd", "qemu", "agent") for end in "ab")]
)
def test_whatever_ends_one_vm_is_left(fleet: Fleet, victim: str, phase: str) -> None:
    may_be_off = victim in MAY_BE_OFF and (victim != "libvirtd-b" or phase == "sent")
    before = fleet.create(Way.MDEV_PF)
    prepare, is_reached = PHASES[phase]
    prepare(fleet)
    client = fleet.operator.start(*LIVE)
    wait_for(lambda: is_reached(fleet) or client.poll() is not None, f"the move is {phase}")
    assert client.poll() is None, client.communicate()
    if victim == "client":
        client.kill()
        told = "killed"
    else:
        end(fleet, victim)
        # Without an answer of the other side, it ends by the time-outs of SSH or of libvirt.
        told = "".join(client.communicate(timeout=900))
    client.wait()
    say(f"{victim}, {phase}: {client.returncode} {told.strip().splitlines()[-1:]}")
    assert "Traceback" not in told, told
    mend(fleet)
    fleet.operator.does("repair")

    listed = fleet.vm()
    running = [one for one in (fleet.a, fleet.b) if one.has_domain(DOMAIN) and one.domain(DOMAIN).isActive()]
    assert len(running) == 1 or (may_be_off and not running), (told, listed)
    if not running:
        assert listed["observed"] in ("shut-off", "absent"), (told, listed)
        fleet.operator.does("start-vm", *WEB)
        running = [one for one in (fleet.a, fleet.b) if one.name == fleet.vm()["vm"]["host"]]
        fleet.says(running[0], after=1)
    else:
        problem = listed["vm"]["problem"] or ""
        fleet.runs_on(running[0], before, whole="lost the state" not in problem)
    (other,) = [one for one in (fleet.a, fleet.b) if one is not running[0]]
    assert (other.has_domain(DOMAIN), other.vgpus()) == (False, [])
    fleet.has_nothing_left()


def end(fleet: Fleet, victim: str) -> None:
    """Let what the victim names end at once."""
    what, _, name = victim.partition("-")
    if what == "link":
        fleet.b.run(f"ip link set {_LINK} down")
        return
    host: MoveHost = {"a": fleet.a, "b": fleet.b}[name]
    if what == "libvirtd":
        host.kill_libvirtd()
    elif what == "qemu":
        # After the end of the move the old host has none.
        host.run(f"kill -9 $(cat /run/libvirt/qemu/{DOMAIN}.pid) || true")
    else:
        host.run("kill -9 $(pidof python3) || true")


def mend(fleet: Fleet) -> None:
    """Bring back what has ended: init does it on a real host."""
    for host in (fleet.a, fleet.b):
        host.run(f"ip link set {_LINK} up")
        host.start_libvirtd()
        host.end_faults()
