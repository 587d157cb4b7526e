# SPDX-License-Identifier: Apache-2.0
"""plan-upgrade: plan the upgrade of hosts to another driver or kernel."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import print_line, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl.planner.upgrade import UpgradePlan, UpgradeStep, UpgradeTarget

if TYPE_CHECKING:
    from vgpuctl.planner.upgrade import UpgradePlan


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
    --guest-driver names others, or overrides them.
    SEEN is when the host last answered.
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
        ["BATCH", "HOST", "GPUS", "DRIVER", "KERNEL", "RUNNING", "REMARK", "SEEN"],
        [
            (
                host.batch,
                host.name,
                ", ".join(host.boards),
                host.driver,
                host.kernel,
                host.running,
                "first of its kind: go on when it is proven" if host.is_first else None,
                seen.get(host.name),
            )
            for host in plan.hosts
        ],
        empty="no host to upgrade",
    )
    for host in plan.hosts:
        _print_host(host)
    if plan.branches:
        print_line(f"Guest drivers with host driver {plan.target.driver}:")
        for one in plan.branches:
            print_line(f"  {one.branch}: {one.verdict} ({one.reason})")


def _print_host(host: UpgradeStep) -> None:
    if not host.vms and not host.changes:
        return
    print_line(f"{host.name}:")
    for vm in host.vms:
        to = f" to {vm.to}" if vm.to else f" ({vm.reason})" if vm.reason else ""
        guest = ""
        if vm.guest is not None:
            guest = f"; guest driver {vm.guest_driver or 'unknown'}: {vm.guest.verdict} ({vm.guest.reason})"
        print_line(f"  {vm.name}: {vm.verdict}{to}{guest}")
    for change in host.changes:
        print_line(f"  {change.gpu or 'host'}: {change.found}")
        print_line(f"      to do: {change.todo}")
