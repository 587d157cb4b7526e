# SPDX-License-Identifier: Apache-2.0
"""map: each GPU drawn to scale with its shares and what is left."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import click

from vgpuctl.cli.forms.services import report_survey
from vgpuctl.cli.host.inspect_host import topology_as_json
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.map_output import INDENT, MOST_BAR, print_map
from vgpuctl.cli.shown.output import print_line, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.cli.host.inspect_host import JsonTopology
    from vgpuctl.model.gpu_map import GpuMap
    from vgpuctl.sharing.topology import HostTopology
    from vgpuctl.usecases.telemetry.map import MappedGpu


class JsonObserved(TypedDict):
    """free_mib: free framebuffer. seen: when its host last showed it, in words. state: null if never observed."""

    free_mib: int
    seen: str
    state: str | None
    observed_at: float | None


class JsonMap(TypedDict):
    """GPUs with their shares, and by host how near its GPUs are to each other."""

    gpus: "list[WithFields[GpuMap, JsonObserved]]"
    topologies: "Mapping[str, JsonTopology]"


_JSON: "JsonOutput[JsonMap]" = JsonOutput()


@click.command("map")
@click.option(
    "--full/--compact",
    "is_full",
    default=None,
    help="A drawing of each GPU, or one line.  [default: --full for one host]",
)
@options.many_hosts
@options.refresh
@options.as_json
def command(is_full: bool | None, refresh: bool, as_json: bool, **where: Any) -> None:
    """Draw each GPU with its shares and what is left. It is to scale, with MIG geometry and what is free, usable,
    closed or in quarantine.

    Facts come from the store's cache, with their age. Free memory is usable if some profile can still be created in it.
    Where the hardware has no places for shares, they are drawn one after another.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.cli.shown.terminal import terminal_width
    from vgpuctl.usecases.telemetry.map import read_map

    with services(**where) as opened:
        found = read_map(opened, refresh=refresh)
    gpus, seen = found.gpus, found.seen
    if as_json:
        topologies = {host: topology_as_json(one) for host, one in found.topologies.items()}
        _JSON.print({"gpus": [_object(one) for one in gpus], "topologies": topologies})
    elif not gpus:
        say("no GPU found")
    else:
        width = terminal_width()
        if not (len({one.map.host for one in gpus}) == 1 if is_full is None else is_full):
            _print_compact(gpus, width)
            _print_end(gpus, width, age_s=found.age_s)
        else:
            host = None
            for one in gpus:
                if one.map.host != host and one.map.host in found.topologies:
                    _print_topology(one.map.host, found.topologies[one.map.host], width)
                host = one.map.host
                print_map(one.map, one.seen, width)
            _print_end(gpus, width)
    report_survey(seen)


def _print_topology(host: str, topology: "HostTopology", width: int) -> None:
    """The host's GPUs by NUMA node, PCIe root and switch, and what NVLink joins; nothing for a single GPU."""
    from vgpuctl.cli.shown.terminal import wrapped
    from vgpuctl.sharing.topology import Nearness

    if len(topology.gpus) < 2:
        return
    lines = [f"{host}: {counted(len(topology.gpus), 'GPU')}"]
    for node in topology.cells:
        words = ["NUMA ?:" if node.number is None else f"NUMA {node.number}:"]
        for root in node.roots:
            words.append(root.name or "root not known")
            for switch in root.switches:
                words += switch.gpus if switch.upstream is None else [f"switch {switch.upstream} (", *switch.gpus, ")"]
        lines += wrapped(words, width, indent=INDENT)
    for domain in topology.domains:
        is_fabric = any(topology.nearness(one, other) is Nearness.FABRIC for one in domain for other in domain)
        most = max((count for (one, _), count in topology.links.items() if one in domain), default=0)
        how = "NVSwitch:" if is_fabric else f"NVLink, {counted(most, 'link')}:" if most else "NVLink:"
        lines += wrapped([how, *domain], width, indent=INDENT)
    for line in lines:
        print_line(line)


def _print_compact(gpus: "Sequence[MappedGpu]", width: int) -> None:
    from vgpuctl.cli.shown.gpu_bar import draw_bar
    from vgpuctl.cli.shown.terminal import fitted

    names = [f"{one.map.host} {one.map.gpu}" for one in gpus]
    name_width = min(max(map(len, names)), max(1, width // 3))
    tails = [_tail(one) for one in gpus]
    tail_width = min(max(map(len, tails)), max(1, width // 3))
    bar = max(1, min(width - name_width - tail_width - 2, MOST_BAR))
    for one, name, tail in zip(gpus, names, tails, strict=True):
        print_line(fitted(name, name_width), " ", *draw_bar(one.map, bar), " ", fitted(tail, tail_width).rstrip())


def _tail(one: "MappedGpu") -> str:
    """The end of a compact line: what is free, and the largest that fits, or why nothing does."""
    drawn = one.map
    if not one.is_known:
        return one.seen
    if drawn.closed is not None:
        return drawn.closed.code
    if one.state not in (None, "present"):
        return str(one.state)
    largest = drawn.largest
    free = f"{drawn.free_mib / 1024:g}G free"
    return f"{free}, {largest.count}x{largest.profile}" if largest is not None else free


def _print_end(gpus: "Sequence[MappedGpu]", width: int, *, age_s: float | None = None) -> None:
    """The sums of the fleet, and the legend. Of hosts that give no answer nothing is usable now.

    age_s: of the oldest look, where no GPU's line has its own.
    """
    from vgpuctl.cli.shown.gpu_bar import legend
    from vgpuctl.cli.shown.terminal import wrapped
    from vgpuctl.model.gpu_map import SegmentKind
    from vgpuctl.model.times import format_duration
    from vgpuctl.model.units import format_mib

    maps = [one.map for one in gpus]
    silent = sum(not one.is_known for one in gpus)
    hosts = len({one.host for one in maps})
    total, free = sum(one.memory_mib for one in maps), sum(one.free_mib for one in maps)
    usable = sum(one.map.size_of(SegmentKind.FREE) for one in gpus if one.is_known)
    text = (
        f"{counted(hosts, 'host')}, {counted(len(maps), 'GPU')}, {format_mib(total)}: {format_mib(total - free)} taken,"
        f" {format_mib(free)} free, {format_mib(usable)} of it usable now"
    )
    text += f"; {counted(silent, 'GPU')} of hosts that give no answer as last seen" if silent else ""
    text += f"; read up to {format_duration(age_s)} ago" if age_s is not None else ""
    for line in wrapped(text.split(), width):
        print_line(line)
    for part in legend(maps):
        print_line(INDENT, part)


def _object(one: "MappedGpu") -> "WithFields[GpuMap, JsonObserved]":
    """A GPU as --json has it."""
    seen: JsonObserved = {
        "free_mib": one.map.free_mib,
        "seen": one.seen,
        "state": one.state,
        "observed_at": one.observed_at,
    }
    return WithFields(one.map, seen)
