# SPDX-License-Identifier: Apache-2.0
"""plan-upgrade: plan the upgrade of hosts to another driver or kernel."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl.model.move_verdict import NOT_LOOKED_AT
from vgpuctl.model.plural import counted
from vgpuctl.planner.upgrade import UpgradePlan, UpgradeStep, UpgradeTarget, UpgradeVm


class JsonAnswered(TypedDict):
    """seen: by host, its last answer in words."""

    seen: Mapping[str, str]


_JSON: "JsonOutput[WithFields[UpgradePlan, JsonAnswered]]" = JsonOutput()


@click.command("plan-upgrade")
@click.option("--driver", metavar="VERSION", help="NVIDIA host driver to upgrade to, for example 580.105.06.")
@click.option("--kernel", metavar="VERSION", help="Kernel to upgrade to, as `uname -r` will say it.")
@click.option(
    "--at-once", type=WholeRange(1, 500), default=4, show_default=True, help="Most hosts that are down together."
)
@click.option(
    "--guest-driver",
    "guest_drivers",
    multiple=True,
    metavar="TENANT/VM=VERSION",
    help="vGPU driver in a guest, where you know it; several times.",
)
@options.refresh
@options.many_hosts
@options.as_json
def command(
    driver: str | None,
    kernel: str | None,
    at_once: int,
    guest_drivers: tuple[str, ...],
    refresh: bool,
    as_json: bool,
    **where: Any,
) -> int:
    """Plan the upgrade of hosts to another driver or kernel. It shows their order, the VMs that must leave, the guests
    that break, and what changes.

    Nothing is changed. The first host of each kind of GPUs is upgraded alone. Exit code 1 means that the driver of a
    guest does not work with the new host driver. With --refresh the vGPUs of running VMs tell the guest drivers;
    --guest-driver names others, or overrides them. Of several hosts, VMs are counted, and named where they stop or
    their guest breaks.
    LEAVE is how running VMs would leave the host: live, cold, pinned, blocked. Of many VMs, hosts are not asked: `not
    looked at` are those against whose live move nothing is known. SEEN is when the host last answered.
    """
    from vgpuctl.cli.forms.services import report_failures, services
    from vgpuctl.usecases.maintenance.plan_upgrade import plan_upgrade

    known = dict(_guest_driver(text) for text in guest_drivers)
    with services(**where) as opened:
        report = plan_upgrade(
            opened, UpgradeTarget(driver, kernel), at_once=at_once, guest_drivers=known, refresh=refresh
        )
    plan = report.plan
    if as_json:
        _JSON.print(WithFields(plan, {"seen": report.seen}))
    else:
        _print(plan, report.seen)
    answered = {*plan.done, *plan.without_driver, *(host.name for host in plan.hosts)}
    report_failures(report.failures, answered=len(answered))
    return int(bool(plan.breaking))


def _guest_driver(text: str) -> tuple[str, str]:
    name, equals, version = text.partition("=")
    if not equals or "/" not in name:
        raise UsageError(f"--guest-driver {text!r} cannot be read", hint="write TENANT/VM=VERSION")
    return name, version


def _print(plan: UpgradePlan, seen: Mapping[str, str]) -> None:
    if plan.done:
        say(f"upgraded already: {', '.join(plan.done)}")
    if plan.without_driver:
        say(f"no NVIDIA driver runs there, none is planned: {', '.join(plan.without_driver)}")
    print_table(
        ["BATCH", "HOST", "GPUS", "DRIVER", "KERNEL", "RUNNING", "VMS", "LEAVE", "REMARK", "SEEN"],
        [
            (
                host.batch,
                host.name,
                ", ".join(host.boards),
                host.driver,
                host.kernel,
                _running(host),
                _counts([vm.verdict for vm in host.vms]),
                _counts([vm.leaves.replace("-", " ") for vm in host.vms if vm.leaves is not None]),
                "first of its kind: go on when it is proven" if host.is_first else None,
                seen.get(host.name),
            )
            for host in plan.hosts
        ],
        empty="no host to upgrade",
        drops={"REMARK": 0, "GPUS": 1, "RUNNING": 2, "SEEN": 3},
    )
    if len(plan.hosts) == 1:
        _print_host(plan.hosts[0])
    else:
        _print_sums(plan)
    if plan.branches:
        print_line(f"Guest drivers with host driver {plan.target.driver}:")
        for one in plan.branches:
            print_line(f"  {one.branch}: {one.verdict} ({one.reason})")


def _print_sums(plan: UpgradePlan) -> None:
    """Of several hosts: VMs that stop or whose guest breaks, the changes with their number, and the guests."""
    breaking = set(plan.breaking)
    for host in plan.hosts:
        for vm in host.vms:
            if vm.verdict == "stop" or vm in breaking:
                print_line(f"{host.name} {_vm_line(vm)}")
    places: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
    for host in plan.hosts:
        for change in host.changes:
            places.setdefault((change.found, change.todo), []).append((host.name, change.gpu))
    if places:
        rows = [(_where(found), change, todo) for (change, todo), found in places.items()]
        print_line()
        print_table(("WHERE", "CHANGE", "TO DO"), rows, empty="")
    guests = _counts([str(vm.guest.verdict) for host in plan.hosts for vm in host.vms if vm.guest is not None])
    if guests:
        print_line()
        print_line(f"guest drivers: {guests}")
    if busiest := max(plan.hosts, key=lambda host: len(host.vms), default=None):
        say(f"each VM and change of one host: the same with `-l {busiest.name}`")


def _running(host: UpgradeStep) -> str:
    """The VMs that were last observed running, and those of which nobody knows."""
    unknown = sum(vm.is_unknown and vm.runs for vm in host.vms)
    return f"{host.running - unknown}" + (f", {unknown} unknown" if unknown else "")


def _counts(words: Sequence[str]) -> str | None:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common()) or None


def _where(places: Sequence[tuple[str, str | None]]) -> str:
    """`130 GPUs of 40 hosts`, `2 GPUs of gpu1`, `40 hosts`."""
    hosts = list(dict.fromkeys(host for host, _gpu in places))
    which = hosts[0] if len(hosts) == 1 else counted(len(hosts), "host")
    return which if places[0][1] is None else f"{counted(len(places), 'GPU')} of {which}"


def _print_host(host: UpgradeStep) -> None:
    if not host.vms and not host.changes:
        return
    print_line(f"{host.name}:")
    for vm in host.vms:
        print_line(f"  {_vm_line(vm)}")
    for change in host.changes:
        print_line(f"  {change.gpu or 'host'}: {change.found}")
        print_line(f"      to do: {change.todo}")


def _vm_line(vm: UpgradeVm) -> str:
    to = f" to {vm.to}" if vm.to else f" ({vm.reason})" if vm.reason else ""
    if vm.leaves == NOT_LOOKED_AT:
        to += f", live or cold: its hosts were not asked about {', '.join(vm.not_looked_at)}"
    elif vm.leaves is not None:
        to += f", {vm.leaves}" + (f": {vm.not_live}" if vm.to and vm.not_live else "")
    guest = ""
    if vm.guest is not None:
        guest = f"; guest driver {vm.guest_driver or 'unknown'}: {vm.guest.verdict} ({vm.guest.reason})"
    return f"{vm.name}: {vm.verdict}{to}{guest}"
