# SPDX-License-Identifier: Apache-2.0
"""One VM of a restored store against the domains of its host."""

import pytest

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import HostUnreachable, VgpuctlError
from vgpuctl.guests.domain.metadata import DomainMetadata
from vgpuctl.guests.facts.domain_facts import DomainFact, DomainState, HostdevFact
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.usecases.store.reconcile_store import compare_vm

MINE, OTHER = "0000:41:00.4", "0000:41:00.5"
RUNNING, OFF = DomainState.RUNNING, DomainState.SHUT_OFF


def _domain(uuid: str, state: DomainState, *devices: str, ours: bool = True) -> DomainFact:
    metadata = DomainMetadata("acme", uuid, "gpu1", "{}") if ours else None
    return DomainFact(uuid, uuid, state, metadata, tuple(HostdevFact("pci", one, None, False) for one in devices))


_FOREIGN = _domain("x", RUNNING, MINE, ours=False)


def _lease(device: str) -> Lease:
    share = Share("0000:41:00.0", Sharing.VF_PROFILE, "A40-8Q", device, "562")
    return Lease("l", "web", "acme", "web", "gpu1", 0, share, LeaseState.RUNNING)


def _found(
    state: VmState, here: list[DomainFact] | None, *, elsewhere: tuple[DomainFact, ...] = (), silent: bool = False
) -> list[tuple[str, bool]]:
    """The differences. here: None for a host without an answer."""
    vm = Vm("web", VmRequest("web", "acme"), "gpu1", state)
    failures: tuple[tuple[str, VgpuctlError], ...] = (("gpu3", HostUnreachable("no answer")),) if silent else ()
    domains = {"gpu2": elsewhere} if here is None else {"gpu1": here, "gpu2": elsewhere}
    found = compare_vm(vm, [_lease(MINE)], domains, failures, {"web", "db"})
    assert all(one.todo for one in found)
    return [(str(one.kind), one.is_open) for one in found]


@pytest.mark.parametrize(
    ("state", "here", "found"),
    [
        (VmState.RUNNING, [_domain("web", RUNNING, MINE)], []),
        (VmState.STOPPED, [_domain("web", OFF, MINE)], []),
        (VmState.RUNNING, [], [("missing-vm", True)]),
        (VmState.RUNNING, [_domain("web", RUNNING, OTHER)], [("other-shares", True)]),
        (VmState.RUNNING, [_domain("web", RUNNING, MINE, OTHER)], [("other-shares", True)]),
        (VmState.RUNNING, [_domain("web", OFF, MINE)], [("state", False)]),
        (VmState.CREATING, [_domain("web", RUNNING, MINE)], [("state", False)]),
        (VmState.DELETING, [_domain("web", OFF, MINE)], [("state", False)]),
        # Its device has gone to another VM, and its own domain still names it.
        (VmState.STOPPED, [_domain("web", OFF, MINE), _domain("late", RUNNING, MINE)], [("other-shares", True)]),
        (VmState.STOPPED, [_domain("web", OFF, MINE), _domain("late", OFF, MINE)], [("other-shares", True)]),
        (
            VmState.STOPPED,
            [_domain("web", OFF, MINE), _domain("x", RUNNING, MINE, ours=False)],
            [("other-shares", True)],
        ),
        # A domain that is off and known, or foreign, proves nothing.
        (VmState.STOPPED, [_domain("web", OFF, MINE), _domain("db", OFF, MINE)], []),
        (VmState.STOPPED, [_domain("web", OFF, MINE), _domain("x", OFF, MINE, ours=False)], []),
    ],
)
def test_what_a_host_says_of_a_vm(state: VmState, here: list[DomainFact], found: list[tuple[str, bool]]) -> None:
    assert _found(state, here) == found


def test_a_vm_on_another_host_has_moved_and_a_silent_host_proves_nothing_gone() -> None:
    assert _found(VmState.RUNNING, [], elsewhere=(_domain("web", RUNNING, OTHER),)) == [("moved-vm", True)]
    assert _found(VmState.RUNNING, [], silent=True) == [("missing-vm", True)]


@pytest.mark.parametrize(
    ("state", "here", "there", "found"),
    [
        # The host was evacuated and came back: the newer domain runs elsewhere, and the old one is still defined.
        (VmState.RUNNING, [_domain("web", OFF, MINE)], RUNNING, [("moved-vm", True)]),
        (VmState.STOPPED, [_domain("web", OFF, MINE)], RUNNING, [("moved-vm", True)]),
        (VmState.CREATING, [_domain("web", OFF, MINE)], RUNNING, [("moved-vm", True)]),
        (VmState.RUNNING, [_domain("web", RUNNING, MINE)], RUNNING, [("moved-vm", True)]),
        (VmState.RUNNING, [_domain("web", RUNNING, OTHER)], DomainState.PAUSED, [("moved-vm", True)]),
        (VmState.RUNNING, None, RUNNING, [("moved-vm", True)]),
        (VmState.STOPPED, [], OFF, [("moved-vm", True)]),
        # Nothing runs there: which of the two is the VM is for people to say.
        (VmState.RUNNING, [_domain("web", RUNNING, MINE)], OFF, [("second-domain", True)]),
        (VmState.STOPPED, [_domain("web", OFF, MINE)], OFF, [("second-domain", True)]),
        (VmState.RUNNING, [_domain("web", OFF, MINE)], OFF, [("second-domain", True), ("state", False)]),
        (VmState.STOPPED, None, OFF, [("second-domain", True)]),
    ],
)
def test_a_domain_on_another_host_is_open_whatever_the_vms_host_has(
    state: VmState, here: list[DomainFact] | None, there: DomainState, found: list[tuple[str, bool]]
) -> None:
    assert _found(state, here, elsewhere=(_domain("web", there, OTHER),)) == found
