# SPDX-License-Identifier: Apache-2.0
"""show-gpu: one GPU with its health, shares, readings, events and its last hour."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import Styled, print_line, say

if TYPE_CHECKING:
    from vgpuctl.agent.wire.readings import Measured
    from vgpuctl.cli.host.inspect_host import JsonTopology
    from vgpuctl.usecases.host.show_gpu import ShownGpu


class JsonOfGpu(TypedDict):
    """topology: how near it is to the host's other GPUs."""

    topology: "JsonTopology"


_JSON: "JsonOutput[WithFields[ShownGpu, JsonOfGpu]]" = JsonOutput()


@click.command("show-gpu")
@options.gpu_of_host("gpu")
@options.history
@options.prometheus
@options.one_host
@options.as_json
def command(host: str, gpu: str, history: Path | None, prometheus: str | None, as_json: bool, **where: Any) -> None:
    """Show one GPU: memory, health, restrictions, shares, readings and events. The readings are those of now and of the
    last hour.

    GPU is a PCI address, also without its domain (41:00.0) or of a VF, or a UUID. The host is read now; where it does
    not answer, the store's facts are shown with their age.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.host.show_gpu import show_gpu

    with services(history=history, prometheus=prometheus, **where) as opened:
        shown = show_gpu(opened, host, gpu)
    if as_json:
        from vgpuctl.cli.host.inspect_host import topology_as_json

        _JSON.print(WithFields(shown, {"topology": topology_as_json(shown.topology)}))
        return
    _print(shown)
    if shown.host_problem is not None:
        say(f"{host} could not be read now: {shown.host_problem}")


def _print(shown: "ShownGpu") -> None:
    from vgpuctl.cli.shown.map_output import print_map
    from vgpuctl.cli.shown.sparkline import print_last_hour
    from vgpuctl.cli.shown.terminal import terminal_width
    from vgpuctl.model.times import format_time

    print_map(shown.map, shown.seen, terminal_width())
    gpu = shown.gpu
    print_line(f"driver    {gpu.driver or 'none'}, sharing {', '.join(gpu.sharing) or 'none as it stands'}")
    print_line(f"UUID      {gpu.uuid or 'unknown'}")
    _print_topology(shown)
    if shown.host_problem is not None and not shown.health:
        print_line("health    unknown: its host could not be read now")
    elif shown.health is None:
        print_line("health    never read")
    elif not shown.health:
        print_line("health    nothing found")
    for finding in shown.health or ():
        print_line(Styled(f"health    {finding.code}: {finding.text}; {finding.remedy}", "red"))
    for one in shown.restrictions:
        where = "its host" if not one.device else one.device
        by = f", by {one.set_by}" if one.set_by else ""
        print_line(
            Styled(f"closed    {one.kind} of {where} since {format_time(one.set_at)} UTC: {one.reason}{by}", "red")
        )
    _print_readings(shown)
    _print_shares(shown)
    if shown.last_hour is not None:
        print_last_hour(shown.last_hour)
    _print_events(shown)


def _print_topology(shown: "ShownGpu") -> None:
    others = [one for one in shown.topology.gpus if one != shown.gpu.address]
    place = shown.gpu.topology
    if place is not None and place.root is not None:
        print_line(f"PCIe      {' > '.join((place.root, *place.bridges, shown.gpu.address))}")
    if shown.gpu.address not in shown.topology.gpus:
        return
    for other in others:
        near = shown.topology.nearness(shown.gpu.address, other)
        links = shown.topology.links.get((shown.gpu.address, other))
        print_line(f"near      {other}: {near.meaning}" + (f", {links} links" if links else ""))


def _print_readings(shown: "ShownGpu") -> None:
    if shown.readings is None:
        print_line(f"now       no readings: {shown.readings_problem}")
        return
    for line in _readings(shown.readings.measured):
        print_line(f"now       {line}")
    for one in shown.instances:
        for line in _readings(one.measured):
            print_line(f"  {one.id}:{one.profile} {line}")


def _readings(measured: "Measured") -> list[str]:
    """The values that somebody looks for, in a few lines; Xids by code."""
    percent = [
        f"{title} {value * 100:.0f}%"
        for title, name in (("busy", "utilization_ratio"), ("memory busy", "memory_activity_ratio"))
        if (value := measured.get(name)) is not None
    ]
    used, size = (
        measured.get("framebuffer_used_bytes"),
        _first(measured, "framebuffer_total_bytes", "framebuffer_size_bytes"),
    )
    if used is not None:
        of = "" if size is None else f" of {size / (1 << 30):.3g}"
        percent.append(f"framebuffer {used / (1 << 30):.3g}{of} GiB")
    power, limit = measured.get("power_watts"), measured.get("power_limit_watts")
    if power is not None:
        percent.append(f"{power:.0f} W" + ("" if limit is None else f" of {limit:.0f}"))
    heat = measured.get("temperature_celsius")
    if heat is not None:
        percent.append(f"{heat:.0f} C")
    lines = [", ".join(percent)] if percent else []
    slowed = [labels[0] for labels, value in measured.all("clock_event") if value and labels]
    if slowed:
        lines.append(f"clocks held back by {', '.join(slowed)}")
    xids = [f"{labels[0]} ({value:.0f} times)" for labels, value in measured.all("xid") if value and labels]
    if xids:
        lines.append(f"Xids since the boot: {', '.join(xids)}")
    errors = [f"{value:.0f} {labels[0]}" for labels, value in measured.all("ecc_errors") if value and labels]
    if errors:
        lines.append(f"ECC errors since the driver was loaded: {', '.join(errors)}")
    missing = measured.why_missing("utilization_ratio")
    return [*lines, *([] if missing is None else [f"utilization {missing}"])]


def _first(measured: "Measured", *names: str) -> float | None:
    return next((value for name in names if (value := measured.get(name)) is not None), None)


def _print_shares(shown: "ShownGpu") -> None:
    for one in shown.shares:
        used = one.measured.get("share_utilization_ratio")
        framebuffer = one.measured.get("framebuffer_used_bytes")
        parts = [f"{one.lease.tenant}/{one.lease.vm_name} {one.lease.share.profile} on {one.lease.share.function}"]
        if used is not None:
            parts.append(f"{used * 100:.0f}% of its promise")
        if framebuffer is not None:
            parts.append(f"{framebuffer / (1 << 30):.3g} GiB used")
        licence = one.measured.label("license_state")
        parts += [licence] if licence is not None else []
        print_line(f"share     {', '.join(parts)}")


def _print_events(shown: "ShownGpu") -> None:
    from vgpuctl.model.times import format_time_to_second

    for one in shown.events:
        print_line(f"event     {format_time_to_second(one.at)} {one.kind} {one.subject}: {one.detail}")
