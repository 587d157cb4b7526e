# SPDX-License-Identifier: Apache-2.0
"""Questions and dry runs about many VMs: sums by host in place of a line for each."""

from uuid import UUID

import pytest

from tests.unit.fleet_factory import vm
from vgpuctl.cli.forms.vm_selection import VmChoice, _list_found
from vgpuctl.cli.frame.command_line import running
from vgpuctl.model.rehearsal import Rehearsal, RehearsedStep
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.usecases.found.find_vms import VmSelection
from vgpuctl.usecases.running.each_vm import VmResult


def vms(number: int) -> list[Vm]:
    """Every third one is stopped and on the second host."""
    found = []
    for at in range(number):
        on, state = ("gpu10", VmState.STOPPED) if at % 3 == 0 else ("gpu2", VmState.RUNNING)
        found.append(Vm(str(UUID(int=at + 1)), vm(name=f"web-{at}"), on, state))
    return found


def steps_of(one: Vm) -> tuple[RehearsedStep, ...]:
    return (
        RehearsedStep(one.host, f"shut down domain {one.domain_name}"),
        RehearsedStep(one.host, f"mdev.remove 0000:41:00.{int(one.uuid[-1], 16) % 8}: {one.uuid} to none"),
    )


@pytest.mark.parametrize("number", [2, 10, 11, 200])
def test_a_question_names_few_vms_and_counts_many(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    _list_found(vms(number))
    lines = capsys.readouterr().err.splitlines()
    if number <= 10:
        assert len(lines) == number and "acme/web-1: running on gpu2" in lines
    else:
        stopped = (number + 2) // 3
        assert lines == [f"gpu2: {number - stopped} running", f"gpu10: {stopped} stopped"]


@pytest.mark.parametrize("has_steps_in_json", [True, False])
def test_a_dry_run_of_many_vms_has_one_line_for_steps_that_are_alike(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, has_steps_in_json: bool
) -> None:
    found = vms(30)
    results: list[VmResult[str]] = [VmResult(one, steps=steps_of(one), is_cut=True) for one in found]
    chosen = VmChoice(VmSelection((), "acme", True, False, None), "Stop", True, 0.0)
    monkeypatch.setattr(running(), "rehearsal", Rehearsal() if has_steps_in_json else None)
    chosen.finish(results, outcome=str)
    *lines, last = [line.removeprefix("dry run: ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "gpu2: would mdev.remove *: * to none (of 20 VMs)",
        "gpu2: would shut down domain * (of 20 VMs)",
        "gpu10: would mdev.remove *: * to none (of 10 VMs)",
        "gpu10: would shut down domain * (of 10 VMs)",
        *["-o json has the steps of each VM"] * has_steps_in_json,
    ]
    assert last.startswith("30 VMs: 30 would change, ")


def test_a_run_of_many_vms_prints_its_sum_alone(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = VmChoice(VmSelection((), "acme", True, False, None), "Stop", True, 0.0)
    chosen.finish([VmResult(one, True) for one in vms(30)], outcome=lambda _one: "stopped")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("30 VMs: 30 stopped, ")
