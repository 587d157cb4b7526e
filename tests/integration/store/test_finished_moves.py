# SPDX-License-Identifier: Apache-2.0
"""A move that was cut short is finished by what the store has then, not by the row that a command has read before."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from vgpuctl.model.vm import MUST_RESTART, Vm, VmRequest, VmState, moves_live_to
from vgpuctl.store.store import Store
from vgpuctl.usecases.vm.move_vm import cut_short, finish_move, settled

SEEN = Vm("web", VmRequest("web", "acme"), "gpu1", VmState.RUNNING, problem=moves_live_to("gpu2"))


@pytest.fixture
def services(store: Store) -> Any:
    """Services of another run that finished the move after SEEN was read. They have no way to any host."""
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(replace(SEEN, host="gpu2", problem=None))
    return SimpleNamespace(store=store)


def test_a_move_that_another_run_has_finished_is_not_finished_again(services: Any) -> None:
    assert cut_short(services, [SEEN]) == []
    assert finish_move(services, SEEN) == "it is on gpu2"
    now, was_cut_short = settled(services, SEEN)
    assert (now.host, now.problem, was_cut_short) == ("gpu2", None, False)


def test_a_vm_that_must_be_restarted_stays_so_until_it_is_started_anew(store: Store) -> None:
    created, problem = replace(SEEN, problem=None), f"QEMU has reset its vGPU, and it {MUST_RESTART}: why"

    def problem_after(*, has_started: bool = False) -> str | None:
        with store.transaction() as session:
            session.set_vm_state(created.uuid, VmState.RUNNING, has_started=has_started)
            found = session.vm_of(created.uuid)
            assert found is not None
            return found.problem

    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_vm(created)
        session.set_vm_state(created.uuid, VmState.RUNNING, problem)
    assert problem_after() == problem
    assert problem_after(has_started=True) is None
    with store.transaction() as session:
        session.set_vm_state(created.uuid, VmState.RUNNING, problem)
        session.set_vm_state(created.uuid, VmState.STOPPED)
    assert problem_after() is None
