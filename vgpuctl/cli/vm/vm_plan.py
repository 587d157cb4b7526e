# SPDX-License-Identifier: Apache-2.0
"""The answer of `create-vm --dry-run` about one VM, for people: what, where, why, who is preempted, what is written."""

from typing import TYPE_CHECKING

from vgpuctl.cli.shown.output import plain, print_document, print_line
from vgpuctl.model.plural import counted
from vgpuctl.model.units import format_mib

if TYPE_CHECKING:
    from vgpuctl.usecases.vm.created_vm import CreatedVm, PlacementReason, Write


def print_plan(one: "CreatedVm", grace_s: int | None, *, with_steps: bool, with_xml: bool) -> None:
    """Print five lines about a VM that would be created. with_steps, with_xml: and the steps, and the domain XML."""
    from vgpuctl.usecases.vm.preemption_consent import describe_victim

    request = one.vm.request
    gpus = ", ".join(gpu.text for gpu in request.gpus) or "no GPU"
    size = f"{counted(request.vcpus, 'vCPU')}, {format_mib(request.memory_mib)}"
    shares = ", ".join(f"{lease.share.profile} on {lease.share.function}" for lease in one.leases)
    print_line(f"VM        {one.vm.printed_name}: {gpus}, {size}")
    print_line(f"host      {one.vm.host}" + (f": {shares}" if shares else ""))
    if one.why is not None:
        print_line(f"why       {_why(one.why, 'GPU' if request.gpus else 'host', one.vm.host, asked=request.host)}")
    victims = "; ".join(describe_victim(victim, grace_s) for victim in one.victims)
    print_line(f"preempts  {victims or 'no VM'}")
    print_line(f"writes    {', '.join(map(_write, one.writes))}")
    for title, steps in (("step", one.steps), ("undo", one.undo)) if with_steps else ():
        for step in steps:
            print_line(f"{title:<10}{step.op} " + " ".join(f"{key}={value}" for key, value in plain(step).items()))
    if with_xml and one.xml is not None:
        print_document(one.xml)


def _why(why: "PlacementReason", what: str, host: str, *, asked: str | None) -> str:
    if why.reservation is not None:
        return f"the shares of reservation {why.reservation}"
    refusing = f"; {counted(why.refusing, what)} refused" if why.refusing else ""
    if not why.takers:
        return f"no {what} takes it before the preemption{refusing}"
    hosts = "" if what == "host" else f" on {counted(why.hosts, 'host')}"
    only = f", --host {asked}" if asked is not None else ""
    if why.network is not None:
        only = f", network {why.network} is on {host} alone"
    return f"policy {why.policy}{only}, of {counted(why.takers, what)}{hosts} with room{refusing}"


def _write(one: "Write") -> str:
    return f"{one.kind} {one.name}" + (f" ({one.detail})" if one.detail else "")
