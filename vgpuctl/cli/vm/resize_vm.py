# SPDX-License-Identifier: Apache-2.0
"""resize-vm: other vCPUs, memory, GPUs, parameters of their shares, or other limits for a VM."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput, JsonStep
from vgpuctl.cli.shown.output import plain, print_line, say
from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.quota.vm_limits import WantedLimit
    from vgpuctl.usecases.vm.resize_plan import NewSize, PlannedResize


class JsonSize(TypedDict):
    """A VM's size, host and shares."""

    vcpus: int
    memory_mib: int
    gpus: Sequence[str]
    vgpu_params: Sequence[str]
    max_downtime_s: float | None
    limits: Sequence[str]
    host: str
    shares: Sequence[str]


class JsonResize(TypedDict):
    """A change of a VM's size. moves: to another host. storage: how its volumes get there, or `none`."""

    changed: bool
    differences: Sequence[str]
    before: Mapping[str, object]
    after: JsonSize
    moves: bool
    storage: str
    notes: Sequence[str]
    steps: Sequence[JsonStep]


NO_LIMIT = "none"
_JSON: "JsonOutput[JsonResize]" = JsonOutput()


@click.command("resize-vm")
@click.argument("name")
@options.tenant
@click.option("--vcpus", type=WholeRange(1, 512), metavar="NUMBER", help="Number of virtual CPUs.")
@click.option("--memory", metavar="SIZE", help="Memory: 512MiB, 8GiB.")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="WHAT",
    help="All GPU shares that the VM is to have, as for create-vm; `none` for no GPU. May be given several times.",
)
@click.option(
    "--vgpu-param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="All parameters of its vGPUs or VFs; `none` for those of the layout alone. May be given several times.",
)
@click.option(
    "--max-downtime",
    metavar="DURATION",
    help="The longest that a live move may halt it: 30s, 2m; `none` for no limit. It needs no restart.",
)
@click.option(
    "--cpu-limit",
    metavar="PERCENT",
    help="Most time of one CPU that each vCPU may use: 50%; `none` for no limit.",
)
@click.option(
    "--cpu-weight",
    metavar="NUMBER",
    help="Weight against other VMs where CPUs are short, 2 to 10000; `none` for the host's own.",
)
@click.option(
    "--disk-iops",
    multiple=True,
    metavar="[DISK=]NUMBER",
    help="Most operations a second of the first disk, or of a further one by its name; `none` for no limit.",
)
@click.option(
    "--disk-mbps",
    multiple=True,
    metavar="[DISK=]MB/S",
    help="Most megabytes a second of the first disk, or of a further one by its name; `none` for no limit.",
)
@click.option(
    "--bandwidth",
    multiple=True,
    metavar="[NETWORK=]MBIT/S",
    help="Limit of the first interface in each direction, or of those in a network; `none` for no limit.",
)
@click.option("--restart", "may_restart", is_flag=True, help="Shut a running VM down, and start it in its new size.")
@click.option("--move", "may_move", is_flag=True, help="Move it to another host when its own has no room.")
@options.reason("Reason, for the event.", required=False)
@options.shutdown_timeout("Seconds for the guest to shut down before it is forced off.")
@options.no_drain
@options.dry_run
@options.one_host
@options.every_refusal
@options.as_json
def command(
    name: str,
    tenant: str,
    vcpus: int | None,
    memory: str | None,
    gpus: tuple[str, ...],
    params: tuple[str, ...],
    max_downtime: str | None,
    cpu_limit: str | None,
    cpu_weight: str | None,
    disk_iops: tuple[str, ...],
    disk_mbps: tuple[str, ...],
    bandwidth: tuple[str, ...],
    may_restart: bool,
    may_move: bool,
    reason: str,
    shutdown_timeout_s: float,
    drain_s: float | None,
    dry_run: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Change the vCPUs, memory, GPU shares, their parameters, or limits of a VM.

    Options that you leave out change nothing. A VM that runs is shut down and started again, with --restart only; it
    runs on for --max-downtime, limits of its CPUs, disks and interfaces, and shares of an Intel card's time alone. It
    is placed again on its host, or on another one with --move when its own has no room. Old and new shares are held
    while it changes; when anything fails on its own host, the VM gets its old shares back and runs as it was. The same
    size again changes nothing.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.found.find_vm import find_vm
    from vgpuctl.usecases.vm.resize_vm import ResizeOptions, resize_vm

    limits = _limits(cpu_limit, cpu_weight, disk_iops, disk_mbps, bandwidth)
    size = _size(vcpus, memory, gpus, params, max_downtime, limits)
    with services(rehearses=dry_run, **where) as opened:
        vm, _leases = find_vm(opened, tenant, name)
        chosen = ResizeOptions(may_move, may_restart, shutdown_timeout_s, reason, drain_s)
        plan = resize_vm(opened, vm, size, chosen)
    if as_json:
        _JSON.print(_show(plan, dry_run=dry_run))
        return
    for note in plan.notes if dry_run else ():
        say(f"{vm.printed_name}: {note}")
    if not plan.is_change:
        say(f"{vm.printed_name}: no change")
        return
    for line in plan.differences:
        print_line(f"{'would change' if dry_run else 'changed'}: {line}")
    if dry_run:
        _print_plan(plan)


def _size(
    vcpus: int | None,
    memory: str | None,
    gpus: tuple[str, ...],
    params: tuple[str, ...],
    max_downtime: str | None,
    limits: "tuple[WantedLimit, ...]",
) -> "NewSize":
    """Raises UsageError for texts that cannot be read, and when nothing is given."""
    from vgpuctl.catalog import read_gpu_request
    from vgpuctl.model.gpu_request import NO_GPU
    from vgpuctl.model.times import parse_duration
    from vgpuctl.model.units import parse_mib
    from vgpuctl.usecases.vm.resize_plan import NewSize

    if vcpus is None and memory is None and max_downtime is None and not (gpus or params or limits):
        hint = "give --vcpus, --memory, --gpu, --vgpu-param, --max-downtime, or a limit such as --disk-iops"
        raise UsageError("nothing to change", hint=hint)
    for option, given in (("--gpu", gpus), ("--vgpu-param", params)):
        if NO_GPU in given and len(given) > 1:
            raise UsageError(f"{option} none goes with no other {option}")
    wanted = None if not gpus else tuple(read_gpu_request(one) for one in gpus if one != NO_GPU)
    written = None if not params else tuple(_param(one) for one in params if one != NO_GPU)
    limit_s = None if max_downtime is None else inf
    if max_downtime is not None and max_downtime != NO_LIMIT:
        limit_s = parse_duration(max_downtime, what="--max-downtime")
    memory_mib = None if memory is None else parse_mib(memory, what="--memory")
    return NewSize(vcpus, memory_mib, wanted, written, limit_s, limits)


def _limits(
    cpu_limit: str | None,
    cpu_weight: str | None,
    disk_iops: tuple[str, ...],
    disk_mbps: tuple[str, ...],
    bandwidth: tuple[str, ...],
) -> "tuple[WantedLimit, ...]":
    """Raises UsageError for a text that is no limit, and for a part that is named twice."""
    from vgpuctl.quota.resources import Limited, parse_limit
    from vgpuctl.quota.vm_limits import OPTIONS, WantedLimit

    given = {
        Limited.CPU_LIMIT: () if cpu_limit is None else (cpu_limit,),
        Limited.CPU_WEIGHT: () if cpu_weight is None else (cpu_weight,),
        Limited.DISK_IOPS: disk_iops,
        Limited.DISK_MBPS: disk_mbps,
        Limited.NIC_MBPS: bandwidth,
    }
    found: dict[tuple[Limited, str | None], WantedLimit] = {}
    for name, texts in given.items():
        for text in texts:
            of, equals, amount = text.rpartition("=")
            part, option = of if equals else None, OPTIONS[name]
            if part == "" or (part is not None and name in (Limited.CPU_LIMIT, Limited.CPU_WEIGHT)):
                raise UsageError(f"{option} {text[:64]!a} names no part of the VM", hint=f"write {option} {amount}")
            if (name, part) in found:
                raise UsageError(f"{option} is given twice for {part or 'the same part'}", hint="give it once")
            value = None if amount == NO_LIMIT else parse_limit(name, amount, what=option)
            found[name, part] = WantedLimit(name, part, value)
    return tuple(found.values())


def _param(text: str) -> tuple[str, str]:
    from vgpuctl.model.vgpu_params import parse_vgpu_param

    return parse_vgpu_param(text, what="--vgpu-param")


def _show(plan: "PlannedResize", *, dry_run: bool) -> JsonResize:
    from vgpuctl.model.vgpu_params import show_vgpu_param
    from vgpuctl.quota.vm_limits import show_limits
    from vgpuctl.usecases.found.vm_values import sizes_of

    vm = plan.vm
    before = sizes_of(vm, plan.before)
    after: JsonSize = {
        "vcpus": plan.request.vcpus,
        "memory_mib": plan.request.memory_mib,
        "gpus": [gpu.text for gpu in plan.request.gpus],
        "vgpu_params": list(map(show_vgpu_param, plan.request.vgpu_params)),
        "max_downtime_s": plan.request.max_downtime_s,
        "limits": show_limits(plan.request),
        "host": plan.host,
        "shares": plan.shares_after,
    }
    steps = [] if plan.here is None else plan.here.steps
    return {
        "changed": plan.is_change and not dry_run,
        "differences": plan.differences,
        "before": before,
        "after": after,
        "moves": plan.move is not None,
        "storage": "none" if plan.move is None else plan.move.storage,
        "notes": plan.notes,
        "steps": [{"op": step.op, **plain(step)} for step in steps],
    }


def _print_plan(plan: "PlannedResize") -> None:
    print_line(f"# {plan.vm.printed_name} on {plan.host}" + ("" if plan.move is None else f", from {plan.vm.host}"))
    print_line(f"# shares before: {', '.join(_words(plan.before)) or 'none'}")
    print_line(f"# shares after: {', '.join(plan.shares_after) or 'none'}")
    for step in () if plan.here is None else plan.here.steps:
        print_line(f"# step: {step.op} " + " ".join(f"{key}={value}" for key, value in plain(step).items()))


def _words(leases: Any) -> list[str]:
    from vgpuctl.usecases.share.shares import describe_share

    return [describe_share(one) for one in leases]
