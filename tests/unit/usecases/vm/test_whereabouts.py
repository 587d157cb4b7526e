# SPDX-License-Identifier: Apache-2.0
"""Where a VM is after a move that was cut short, by what libvirt of both hosts says; and what then goes on, or ends."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from tests.unit.fleet_factory import vm as vm_request
from vgpuctl.errors import ConcurrentChange, GuestError
from vgpuctl.guests.facts.domain_facts import DomainState
from vgpuctl.usecases.domain import guest
from vgpuctl.usecases.vm import live_move_end
from vgpuctl.usecases.vm.live_move_end import Whereabouts, find_out, go_on, verify

RUNS, WAITS, OFF, CRASHED = DomainState.RUNNING, DomainState.PAUSED, DomainState.SHUT_OFF, DomainState.CRASHED
ARRIVED, SENT = libvirt.VIR_DOMAIN_PAUSED_USER, libvirt.VIR_DOMAIN_PAUSED_MIGRATION


class Host:
    """A host whose libvirt has one domain, or none."""

    def __init__(self, state: DomainState | None, reason: int = ARRIVED) -> None:
        self.name = ""
        self.hypervisor = self
        self.host = self.name
        self.connection = self
        self.calls: list[str] = []
        self.metadata: object = "ours"
        self._state, self._reason = state, reason

    def state(self, *_name: str, uuid: str = "") -> Any:
        return self._state if uuid else (libvirt.VIR_DOMAIN_PAUSED, self._reason)

    def domain(self, _uuid: str) -> Any:
        return None if self._state is None else SimpleNamespace(name="acme.web", metadata=self.metadata)

    def lookupByUUIDString(self, _uuid: str) -> "Host":  # noqa: N802 (libvirt's name)
        return self

    def resume(self, _name: str, *, uuid: str) -> None:
        assert uuid
        self.calls.append("resume")


VM: Any = SimpleNamespace(
    host="gpu1", uuid="u", domain_name="acme.web", printed_name="acme/web", request=vm_request("A40-8Q")
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_move_end, "_SETTLES_S", -1.0)
    monkeypatch.setattr(live_move_end, "is_host_fenced", lambda services, name: name in services.fenced)
    monkeypatch.setattr(guest, "remove_domain", lambda host, _vm, **_how: host.calls.append("remove"))


def services_of(here: Host, there: Host, *fenced: str) -> Any:
    hosts = {"gpu1": here, "gpu2": there}
    return SimpleNamespace(host=hosts.__getitem__, say=lambda _text: None, fenced=fenced)


@pytest.mark.parametrize(
    ("here", "there", "where", "calls"),
    [
        (Host(RUNS), Host(None), Whereabouts.SOURCE, ([], ["remove"])),
        (Host(RUNS), Host(OFF), Whereabouts.SOURCE, ([], ["remove"])),
        (Host(WAITS, SENT), Host(None), Whereabouts.HALTED, (["resume"], ["remove"])),
        (Host(None), Host(RUNS), Whereabouts.TARGET, ([], [])),
        (Host(OFF), Host(RUNS), Whereabouts.TARGET, ([], [])),
        (Host(WAITS, SENT), Host(RUNS), Whereabouts.TARGET, ([], [])),
        (Host(None), Host(WAITS), Whereabouts.ARRIVED, ([], ["resume"])),
        (Host(None), Host(WAITS, libvirt.VIR_DOMAIN_PAUSED_IOERROR), Whereabouts.TARGET, ([], [])),
        # It has moved, and has ended since: its disks there are newer.
        (Host(None), Host(OFF), Whereabouts.TARGET, ([], [])),
        (Host(None), Host(CRASHED), Whereabouts.TARGET, ([], [])),
        (Host(OFF), Host(None), Whereabouts.NOWHERE, ([], ["remove"])),
        (Host(CRASHED), Host(OFF), Whereabouts.NOWHERE, ([], ["remove"])),
        # A copy that never ran counts only where the old host has nothing.
        (Host(WAITS, SENT), Host(WAITS), Whereabouts.HALTED, (["resume"], ["remove"])),
        (Host(RUNS), Host(WAITS), Whereabouts.SOURCE, ([], ["remove"])),
        (Host(RUNS), Host(WAITS, SENT), Whereabouts.SOURCE, ([], ["remove"])),
    ],
)
def test_a_vm_goes_on_in_one_place(
    here: Host, there: Host, where: Whereabouts, calls: tuple[list[str], list[str]]
) -> None:
    services = services_of(here, there)
    assert find_out(services, VM, "gpu2") is where
    go_on(services, VM, "gpu2", where)
    assert (here.calls, there.calls) == calls


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (Host(RUNS), Host(RUNS)),
        (Host(None), Host(WAITS, SENT)),
        (Host(CRASHED), Host(WAITS)),
        (Host(None), Host(None)),
    ],
)
def test_what_two_copies_or_half_a_copy_are_is_for_people(here: Host, there: Host) -> None:
    with pytest.raises(ConcurrentChange, match="its move has not ended") as refused:
        find_out(services_of(here, there), VM, "gpu2")
    assert refused.value.hint is not None and "virsh destroy acme.web" in refused.value.hint
    assert here.calls == there.calls == []


@pytest.mark.parametrize("state", [RUNS, WAITS, OFF])
def test_a_strangers_domain_is_nothing_that_has_moved(state: DomainState) -> None:
    here, there = Host(None), Host(state)
    there.metadata = None
    with pytest.raises(ConcurrentChange, match=r"gpu2 has a domain acme\.web with the UUID of acme/web"):
        find_out(services_of(here, there), VM, "gpu2")
    assert here.calls == there.calls == []


def test_a_fenced_host_has_nothing() -> None:
    here, there = Host(RUNS), Host(WAITS)
    assert find_out(services_of(here, there, "gpu1"), VM, "gpu2") is Whereabouts.ARRIVED
    # The power of its old host went while the state was sent.
    assert find_out(services_of(here, Host(None), "gpu1"), VM, "gpu2") is Whereabouts.NOWHERE
    with pytest.raises(ConcurrentChange):
        find_out(services_of(Host(None), there, "gpu2"), VM, "gpu2")
    services = services_of(here, there, "gpu2")
    where = find_out(services, VM, "gpu2")
    go_on(services, VM, "gpu2", where)
    assert (where, there.calls) == (Whereabouts.SOURCE, [])


def test_a_vm_that_ended_on_its_new_host_has_lost_no_state_to_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is noted, and no event bars moves between the two hosts: there is no session to add one to."""
    noted: list[object] = []
    monkeypatch.setattr(live_move_end, "note_state", lambda _session, _vm, state: noted.append(state))
    there = Host(OFF)
    there.name = "gpu2"
    moved: Any = SimpleNamespace(**{**vars(VM), "host": "gpu2"})
    services = services_of(Host(None), there)
    services.store = SimpleNamespace(transaction=nullcontext)
    seen = verify(services, moved, "gpu1", (), frozenset())
    assert noted == [OFF]
    assert seen.lost == seen.unread == ()
    with pytest.raises(
        GuestError, match="acme/web came to gpu2, but it has ended there since: libvirt of gpu2"
    ) as told:
        seen.require(moved)
    assert told.value.hint is not None and "`vgpuctl start-vm acme/web` boots it" in told.value.hint
