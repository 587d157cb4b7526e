# SPDX-License-Identifier: Apache-2.0
"""Questions, dry runs, checks and plans about many VMs and hosts: sums in place of a line for each."""

from dataclasses import replace
from uuid import UUID

import pytest

from tests.unit.fleet_factory import vm
from vgpuctl.cli.forms.vm_selection import VmChoice, _list_found
from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.host.check_hosts import _print_hosts
from vgpuctl.cli.maintenance.plan_upgrade import _print as print_plan
from vgpuctl.cli.tenant import onboard
from vgpuctl.cli.vm.check_vm import _print_all
from vgpuctl.errors import HostError
from vgpuctl.hosts.fleet import HostResult
from vgpuctl.model.health import HealthCode
from vgpuctl.model.promise import PromiseCheck, PromiseFinding, PromiseRow, PromiseVerdict, Witness
from vgpuctl.model.rehearsal import Rehearsal, RehearsedStep
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.planner.doctor import Finding, Severity
from vgpuctl.planner.layout.result import HostPlan
from vgpuctl.planner.upgrade import (
    GuestCheck,
    GuestVerdict,
    HostChange,
    UpgradePlan,
    UpgradeStep,
    UpgradeTarget,
    UpgradeVm,
)
from vgpuctl.usecases.found.find_vms import VmSelection
from vgpuctl.usecases.host.check_hosts import CheckedHost
from vgpuctl.usecases.network.vpc_changes import ObjectOutcome
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
    _list_found(vms(number), {one.uuid: str(one.state) for one in vms(number)})
    lines = capsys.readouterr().err.splitlines()
    if number <= 10:
        assert len(lines) == number and "acme/web-1: running on gpu2" in lines
    else:
        stopped = (number + 2) // 3
        assert lines == [
            f"gpu2: {number - stopped} running",
            f"gpu10: {stopped} stopped",
            f"of 1 tenant: acme {number}",
        ]


def test_a_question_about_many_vms_names_at_most_five_tenants(capsys: pytest.CaptureFixture[str]) -> None:
    found = [replace(one, request=replace(one.request, tenant=f"t{min(at // 2, 6)}")) for at, one in enumerate(vms(16))]
    _list_found(found, {one.uuid: str(one.state) for one in found})
    assert capsys.readouterr().err.splitlines()[-1] == "of 7 tenants: t6 4, t0 2, t1 2, t2 2, t3 2, and 2 more"


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
        "gpu2: would mdev.remove NAME: NAME to none, for each of 20 VMs",
        "gpu2: would shut down domain NAME, for each of 20 VMs",
        "gpu10: would mdev.remove NAME: NAME to none, for each of 10 VMs",
        "gpu10: would shut down domain NAME, for each of 10 VMs",
        *["-o json has the steps of each VM"] * has_steps_in_json,
    ]
    assert last.startswith("30 VMs: 30 would change, ")


def test_a_run_of_many_vms_prints_its_sum_alone(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = VmChoice(VmSelection((), "acme", True, False, None), "Stop", True, 0.0)
    chosen.finish([VmResult(one, True) for one in vms(30)], outcome=lambda _one: "stopped")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("30 VMs: 30 stopped, ")


def _check(verdict: PromiseVerdict) -> PromiseCheck:
    kept = PromiseFinding(PromiseRow.VCPUS, "", Witness.LIBVIRT, PromiseVerdict.KEPT, "2", "2")
    other = PromiseFinding(PromiseRow.LICENCE, "A40-8Q", Witness.NVML, verdict, "licensed", "unlicensed")
    return PromiseCheck("uuid", 0.0, verdict, (), (kept, other), ("the guest was not asked",))


def test_promises_of_many_vms_are_the_rows_that_are_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [(f"acme/web-{number}", _check(PromiseVerdict.KEPT)) for number in range(40)]
    _print_all([*checks, ("acme/bad", _check(PromiseVerdict.BROKEN))])
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "the promise to the owner of acme/bad is broken",
        "broken        licence A40-8Q, by nvml: promised licensed, seen unlicensed",
        "kept in every row: 40 VMs",
    ]
    assert err == "every row of one VM: `vgpuctl check-vm acme/bad`\n"
    _print_all(checks[:1])
    assert len(capsys.readouterr().out.splitlines()) == 4, "one VM has all of it"


def test_an_upgrade_of_many_hosts_names_the_vms_that_are_hurt(capsys: pytest.CaptureFixture[str]) -> None:
    works, breaks = GuestCheck(GuestVerdict.WORKS, "old enough"), GuestCheck(GuestVerdict.BREAKS, "too old")
    changes = tuple(HostChange(f"0000:{at}1:00.0", "MIG instances are lost", "apply") for at in range(4))

    def guest(name: str, verdict: str, check: GuestCheck) -> UpgradeVm:
        return UpgradeVm(name, True, verdict, None, None, True, guest=check)

    hosts = tuple(
        UpgradeStep(
            f"gpu{number}",
            1,
            False,
            ("A40",),
            "580.1",
            "6.8",
            tuple(guest(f"acme/web-{number}{at}", "move", works) for at in range(9)),
            changes,
        )
        for number in range(40)
    )
    hurt = replace(
        hosts[7], vms=(guest("acme/old", "move", breaks), guest("acme/stuck", "stop", works)), changes=changes[:1]
    )
    print_plan(UpgradePlan(UpgradeTarget("590.1", None), (*hosts[:7], hurt, *hosts[8:]), (), (), ()), {})
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 48 and "gpu7 acme/old: move; guest driver unknown: breaks (too old)" in lines
    assert "gpu7 acme/stuck: stop; guest driver unknown: works (old enough)" in lines
    assert "157 GPUs of 40 hosts  MIG instances are lost  apply" in lines
    assert "guest drivers: 352 works, 1 breaks" in lines and "9 move" in lines[1] and "web-" not in out
    assert err.endswith("the same with `-l gpu0`\n")
    print_plan(UpgradePlan(UpgradeTarget("590.1", None), hosts[:1], (), (), ()), {})
    assert "acme/web-08: move" in capsys.readouterr().out, "one host has all of it"


@pytest.mark.parametrize("number", [10, 11, 200])
def test_many_hosts_without_a_finding_are_counted(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    sick = Finding(HealthCode.OFF_THE_BUS, Severity.ERROR, "0000:41:00.0", "Xid 79", "reboot the host")
    checked = [CheckedHost(f"gpu{at}", HostPlan(), ()) for at in range(number)]
    checked.insert(4, CheckedHost("sick", HostPlan(), (sick,)))
    hosts = [HostResult(one.host, one) for one in checked]
    _print_hosts([*hosts, HostResult("dead", error=HostError("dead: no connection"))], diff=False)
    told = ["sick: as declared", f"  error {sick.check} at 0000:41:00.0: Xid 79", "      fix: reboot the host"]
    each = [f"gpu{at}: as declared, healthy" for at in range(number)] if number == 10 else []
    sums = [] if each else [f"{number} hosts: as declared, healthy"]
    assert capsys.readouterr().out.splitlines() == [*each[:4], *told, *each[4:], "dead: no connection", *sums]


def test_unchanged_objects_of_a_file_are_summed_up_and_a_dry_run_says_would_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    vms = [ObjectOutcome("vm", f"web-{number}", "unchanged") for number in range(30)]
    outcomes = [ObjectOutcome("tenant", "acme", "unchanged"), *vms, ObjectOutcome("vm", "new", "created")]
    for dry_run, outcome in ((False, "created"), (True, "would be created")):
        onboard._show([("acme", outcomes)], dry_run=dry_run, diff=False, as_json=False)
        told = capsys.readouterr()
        assert [line.split(maxsplit=2) for line in told.out.splitlines()[1:]] == [
            ["tenant", "acme", "unchanged"],
            ["vm", "30", "of them  unchanged"],
            ["vm", "new", outcome],
        ]
        assert f"acme: 31 unchanged, 1 {outcome}" in told.err
