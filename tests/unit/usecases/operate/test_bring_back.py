# SPDX-License-Identifier: Apache-2.0
"""The back-off between the restarts of a VM, and what a boot brings back."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.fleet_factory import host_facts
from vgpuctl.errors import CommandTimedOut, HostUnreachable, InventoryError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, has_failed
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.store.store import open_store
from vgpuctl.usecases.observed.observations import note_facts
from vgpuctl.usecases.observed.restarts import FIRST_DELAY_S, LONGEST_DELAY_S, Attempt, read_restarts
from vgpuctl.usecases.operate.bring_back import bring_back
from vgpuctl.usecases.running.services import Openers, Services

AT = 1_000_000.0


def services_of(tmp_path: Path, layout: Callable[[object, str], None]) -> Services:
    """Services with a store, whose inventory declares such layouts."""
    unused: Any = None
    inventory: Any = type("Inventory", (), {"layout": layout, "structure_warnings": ()})()
    return Services(
        Openers(
            inventory=lambda: inventory,
            store=lambda: open_store(f"sqlite:///{tmp_path}/store.db"),
            store_place=unused,
            session=unused,
        ),
        forks=1,
        say=unused,
    )


@pytest.mark.parametrize(
    ("count", "delay_s"), [(1, FIRST_DELAY_S), (2, 20.0), (4, 80.0), (9, LONGEST_DELAY_S), (10_000, LONGEST_DELAY_S)]
)
def test_the_delay_doubles_up_to_five_minutes(count: int, delay_s: float) -> None:
    attempt = Attempt(count, AT)
    assert not attempt.is_over(AT)
    assert not attempt.is_over(AT + delay_s - 0.1)
    assert attempt.is_over(AT + delay_s)


def test_a_clock_that_was_set_back_does_not_block_for_ever() -> None:
    assert Attempt(3, AT).is_over(AT - 86_400.0)


def test_a_layout_with_a_mistake_is_an_event_and_the_boot_goes_on(tmp_path: Path) -> None:
    def layout(_inventory: object, _host: str) -> None:
        raise InventoryError("host_vars/gpu1.yml:5: vgpu.gpus[0].kind of host 'gpu1' is 'nonsense'")

    with services_of(tmp_path, layout) as services:
        with services.store.transaction() as session:
            for boot in ("first", "second"):
                note_facts(session, "gpu1", replace(host_facts([]), boot_id=boot))
        assert bring_back(services, "gpu1", threading.Event()) == "second"
        with services.store.reading() as session:
            (told,) = [one for one in session.events(None) if one.kind == EventKind.LAYOUT_NOT_RESTORED]
    assert "'nonsense'" in told.detail


@pytest.mark.parametrize("error", [HostUnreachable("no connection"), CommandTimedOut("no answer")])
def test_a_cut_while_shares_are_made_again_leaves_the_boot_to_the_next_look(
    error: VgpuctlError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[VgpuctlError] = [error]

    def restore_shares(_services: Services, _vm: Vm) -> None:
        if problems:
            raise problems.pop()

    monkeypatch.setattr("vgpuctl.usecases.operate.bring_back.restore_shares", restore_shares)
    with services_of(tmp_path, lambda _inventory, _host: None) as services:
        with services.store.transaction() as session:
            session.add_tenant("acme")
            session.add_vm(Vm("uuid-of-web", VmRequest("web", "acme"), "gpu1", VmState.STOPPED))
            for boot in ("first", "second"):
                note_facts(session, "gpu1", replace(host_facts([]), boot_id=boot))
        with pytest.raises(type(error)):
            bring_back(services, "gpu1", threading.Event())
        with services.store.reading() as session:
            assert read_restarts(session, "gpu1").boot_id is None
        assert bring_back(services, "gpu1", threading.Event()) == "second"
        assert problems == []


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (DomainState.SHUT_OFF, 1, False),
        (DomainState.SHUT_OFF, 2, False),
        (DomainState.SHUT_OFF, 3, True),
        (DomainState.SHUT_OFF, 0, True),
        (DomainState.CRASHED, 0, True),
        (DomainState.RUNNING, 0, False),
    ],
)
def test_a_vm_that_nobody_ended_has_failed(state: DomainState, reason: int, expected: bool) -> None:
    assert has_failed(state, reason) is expected
