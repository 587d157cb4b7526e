# SPDX-License-Identifier: Apache-2.0
"""inspect-host: everything the agent found on one host."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import click

from vgpuctl.agent.wire.facts import Gpu, GpuTopology, HostFacts, NvLinks
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput, WithFields
from vgpuctl.cli.shown.output import print_line
from vgpuctl.sharing.fabric import NO_CONFIGURATION
from vgpuctl.sharing.kinds import existing_vgpus
from vgpuctl.sharing.topology import CellPart, HostTopology, Nearness

if TYPE_CHECKING:
    from vgpuctl.agent.wire.fabric import FabricPartition
    from vgpuctl.agent.wire.readings import HostReadings
    from vgpuctl.agent.wire.tuning import GpuTuning
    from vgpuctl.sharing.host_fabric import HostFabric


class JsonTopology(TypedDict):
    """How near GPUs are to each other, by address."""

    nearness: Mapping[str, Mapping[str, Nearness]]
    nvlink_domains: Sequence[Sequence[str]]
    numa_nodes: Sequence[CellPart]


class JsonInspected(TypedDict):
    """fabric: of NVSwitches, null for a host without. readings: with --readings."""

    topology: JsonTopology
    fabric: "HostFabric | None"
    readings: NotRequired["HostReadings"]


_JSON: "JsonOutput[WithFields[HostFacts, JsonInspected]]" = JsonOutput()


@click.command("inspect-host")
@click.argument("host")
@options.one_host
@click.option("--readings", "with_readings", is_flag=True, help="Also measure the host, its GPUs, vGPUs and VMs.")
@options.as_json
def command(host: str, with_readings: bool, as_json: bool, **where: Any) -> None:
    """Read a host now and show everything that was found on it.

    With --readings: also every measure (docs/telemetry.md), and for each one that is missing the reason.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.host.inspect_host import inspect_host

    with services(**where) as opened:
        inspected = inspect_host(opened, host, with_readings=with_readings)
    facts, topology = inspected.facts, inspected.topology
    if as_json:
        more: JsonInspected = {"topology": topology_as_json(topology), "fabric": inspected.fabric}
        if inspected.readings is not None:
            more["readings"] = inspected.readings
        _JSON.print(WithFields(facts, more))
        return
    _print_host(host, facts, inspected.fabric)
    print_topology(topology)
    for gpu in facts.gpus:
        print_gpu(gpu)
    if inspected.readings is not None:
        from vgpuctl.cli.host.readings_view import print_readings

        print_readings(inspected.readings)


def _print_host(name: str, facts: HostFacts, fabric: "HostFabric | None" = None) -> None:
    from vgpuctl.model.units import format_mib

    # A title, its text, and the facts that the text is of.
    rows: list[tuple[str, str, tuple[str, ...]]] = [
        (
            "host",
            f"{name} ({facts.hostname}), {facts.operating_system}, kernel {facts.kernel}",
            ("hostname", "operating_system", "kernel"),
        ),
        (
            "size",
            f"{facts.cpus} CPUs, {format_mib(facts.memory_mib)} ({format_mib(facts.memory_available_mib)} free)",
            ("cpus", "memory_mib", "memory_available_mib"),
        ),
        *[("NUMA", _node(node), ()) for node in facts.numa_nodes],
        ("IOMMU", "active" if facts.iommu_active else "not active: no device can be given to a VM", ("iommu_active",)),
        ("KVM", "usable" if facts.kvm else "not usable: guests are emulated", ("kvm",)),
        (
            "software",
            f"libvirt {facts.libvirt_version or 'missing'}, QEMU {facts.qemu_version or 'missing'}, "
            f"Python {facts.python}",
            ("libvirt_version", "qemu_version", "python"),
        ),
        (
            "NVIDIA",
            f"driver {facts.nvidia_driver or 'none'}, NVML {facts.nvml_version or facts.nvml_problem}",
            ("nvidia_driver", "nvml_version"),
        ),
        *([("SELinux", facts.selinux, ())] if facts.selinux else []),
        *[("" if number else "fabric", text, ()) for number, text in enumerate(_fabric(facts, fabric))],
        ("booted", f"{facts.kernel_command_line}", ("kernel_command_line",)),
    ]
    shown: set[str] = set()
    for title, text, names in rows:
        why = facts.why_unread(*names)
        shown.update(names)
        print_line(f"{title:9} {text if why is None else why}")
    for part in facts.unread:
        if part.name not in shown:
            print_line(f"{'not read':9} {part.problem}")


def _fabric(facts: HostFacts, fabric: "HostFabric | None") -> list[str]:
    """The NVSwitches, Fabric Manager, what has failed, and the partitions, a line each."""
    from vgpuctl.model.plural import counted

    if fabric is None:
        return []
    manager = facts.fabric_manager
    switches = f"{len(fabric.switches)} NVSwitches" if fabric.switches else "NVSwitch"
    lines = [f"{switches} of NVLink {fabric.nvlink_generation or 'of unknown generation'}"]
    if manager is None:
        return [*lines, f"Fabric Manager {NO_CONFIGURATION}"]
    mode = "not set" if manager.mode is None else f"{manager.mode} ({fabric.mode or 'not known'})"
    state = f"Fabric Manager is {fabric.manager or 'installed'}"
    lines[0] += f", FABRIC_MODE {mode}"
    if manager.needs_restart and manager.is_active:
        lines[0] += " (restart pending: written after Fabric Manager was started)"
    if manager.problem is not None:
        lines.append(f"{state}: {manager.problem}")
    elif manager.partitions is None:
        lines.append(f"{state}, and was not asked for partitions")
    else:
        active = sum(one.is_active for one in manager.partitions)
        told = f"{counted(len(manager.partitions), 'partition')}, {active} active"
        lines.append(f"{state} at {manager.address}: {told}")
    lines += [
        f"module {one.module}, {one.gpu or 'unknown GPU'}: {one.lost} of {one.links} NVLinks have failed"
        for one in fabric.lost_links
    ]
    lines += [
        f"{'NVSwitch' if one.is_switch else 'GPU'} {one.address}: NVLinks {', '.join(map(str, one.ports))} have failed"
        for one in manager.failed or ()
    ]
    return lines + [_partition(one) for one in manager.partitions or ()]


def _partition(partition: "FabricPartition") -> str:
    modules = ", ".join(str(gpu.module) for gpu in partition.gpus)
    short = [
        f"{gpu.links} of {gpu.most_links} NVLinks of {gpu.module}"
        for gpu in partition.gpus
        if gpu.links < gpu.most_links and len(partition.gpus) > 1
    ]
    state = f"active{f' for VM {partition.vm}' if partition.vm else ''}" if partition.is_active else "not active"
    return f"partition {partition.number}: modules {modules}, {state}" + "".join(f", {one}" for one in short)


def _node(node: NumaNode) -> str:
    from vgpuctl.model.guest_memory import format_page_size
    from vgpuctl.model.units import format_mib

    cpus = f"CPUs {node.cpus}" if node.cpus else "no CPUs, so no guest's memory"
    free = "" if node.memory_available_mib is None else f" ({format_mib(node.memory_available_mib)} free)"
    pools = (pool for pool in node.hugepages if pool.total)
    pages = "".join(f", {one.free} of {one.total} huge pages of {format_page_size(one.size_kib)} free" for one in pools)
    return f"node {node.number}: {cpus}, {format_mib(node.memory_mib)}{free}{pages}"


def print_gpu(gpu: Gpu) -> None:
    """Print what was found of one GPU."""
    from vgpuctl.model.units import format_mib
    from vgpuctl.usecases.host.list_gpus import board_name

    print_line()
    print_line(f"GPU {gpu.address}  {board_name(gpu)}  [{gpu.vendor_id}:{gpu.device_id}]")
    memory = "unknown" if gpu.memory_mib is None else format_mib(gpu.memory_mib)
    print_line(f"  memory        {memory}, UUID {gpu.uuid or 'unknown'}")
    print_line(f"  sharing       {', '.join(gpu.sharing) or 'none as it stands'}")
    print_line(f"  driver        {gpu.driver or 'none'}, NUMA node {'-' if gpu.numa_node is None else gpu.numa_node}")
    if gpu.topology is not None:
        _print_place(gpu.topology)
    if gpu.utilisation_percent is not None:
        print_line(f"  utilisation   {gpu.utilisation_percent} %")
    print_line(f"  IOMMU group   {gpu.iommu_group} with {', '.join(gpu.iommu_group_members) or 'nothing else'}")
    print_line(f"  reset         {', '.join(gpu.reset_methods) or 'no method'}")
    for companion in gpu.companions:
        print_line(
            f"  companion     {companion.address} class {companion.pci_class}, driver {companion.driver or 'none'}"
        )
    if gpu.total_vfs:
        vgpus = {vgpu.function: vgpu for vgpu in existing_vgpus(gpu)}
        used = [vf for vf in gpu.vfs if vf.address in vgpus or vf.holders]
        print_line(f"  VFs           {len(gpu.vfs)} of {gpu.total_vfs} enabled, {len(used)} in use")
        for vf in used:
            vgpu = vgpus.get(vf.address)
            what = "" if vgpu is None else vgpu.mdev_uuid or f"type {vgpu.type_id}"
            print_line(f"    {vf.address}  {what}  group {vf.iommu_group}" + _with(vf.vgpu_params) + _held(vf.holders))
    if gpu.pf_params is not None:
        print_line(f"  of the PF     {gpu.pf_params}")
    _print_mig(gpu)
    if gpu.scheduler is not None:
        time_slice = gpu.scheduler.time_slice_us
        shown = "the driver's default" if time_slice is None else f"{time_slice} µs"
        print_line(f"  scheduler     {gpu.scheduler.policy}, time slice {shown}")
    if gpu.tuning is not None:
        print_tuning(gpu.tuning)
    for mdev in gpu.mdevs:
        what = f"{mdev.uuid} {mdev.type_id} under {mdev.parent}"
        print_line(f"  mdev          {what}" + _with(mdev.vgpu_params) + _held(mdev.holders))
    for type_ in gpu.types:
        size = format_mib(type_.framebuffer_mib) if type_.framebuffer_mib else "?"
        print_line(f"  type          {type_.type_id:12} {type_.name:14} {size:>8}  creatable {type_.creatable}")
    for problem in gpu.problems:
        print_line(f"  problem       {problem}")


def print_tuning(tuning: "GpuTuning") -> None:
    """Print power limit, clocks, ECC and compute mode; a setting that could not be read says why."""
    from vgpuctl.agent.wire.tuning import GPU_CLOCKS, MEMORY_CLOCKS, clocks_in_words, watts

    if tuning.power_limit_mw is not None:
        bounds = tuning.power_limits_mw
        told = f", of {watts(bounds[0])} to {watts(bounds[1])}" if bounds else ""
        print_line(f"  power limit   {watts(tuning.power_limit_mw)}{told}")
    for name, domain in (("GPU clocks   ", GPU_CLOCKS), ("memory clocks", MEMORY_CLOCKS)):
        if runs := tuning.supported(domain):
            locked = clocks_in_words(tuning.locked(domain))
            told = f"lock {locked}" if locked == "unknown" else locked
            print_line(f"  {name} {runs[0].first} to {runs[-1].last} MHz, {told}")
    if tuning.ecc is not None:
        pending = "" if tuning.ecc == tuning.ecc_pending else f", {_enabled(tuning.ecc_pending)} pending"
        print_line(f"  ECC           {_enabled(tuning.ecc)}{pending}")
    if tuning.compute_mode is not None:
        print_line(f"  compute mode  {tuning.compute_mode}")
    for one in tuning.unread:
        print_line(f"  not read      {one.problem}")


def _enabled(is_on: bool | None) -> str:
    return "enabled" if is_on else "disabled"


def print_topology(topology: HostTopology) -> None:
    """Print how near each pair of GPUs is, as a matrix, and what its words mean; nothing for a single GPU."""
    gpus = topology.gpus
    if len(gpus) < 2:
        return
    width = max(len(near) for near in topology.used())
    print_line()
    print_line(f"{'topology':10}" + "".join(f"  {number:<{width}}" for number in range(len(gpus))).rstrip())
    for number, (address, row) in enumerate(zip(gpus, topology.matrix, strict=True)):
        cells = ("-" if near is Nearness.SAME else near.value for near in row)
        print_line(
            f"{number:>2} {address.removeprefix('0000:'):7}" + "".join(f"  {cell:{width}}" for cell in cells).rstrip()
        )
    for near in topology.used():
        print_line(f"  {near:{width}}  {near.meaning}")


def topology_as_json(topology: HostTopology) -> JsonTopology:
    """The matrix by address, as pairs have no place in JSON's keys."""
    gpus = topology.gpus
    return {
        "nearness": {one: {other: topology.nearness(one, other) for other in gpus} for one in gpus},
        "nvlink_domains": topology.domains,
        "numa_nodes": topology.cells,
    }


def _print_place(place: GpuTopology) -> None:
    if place.root is not None:
        print_line(f"  PCIe          {' > '.join((place.root, *place.bridges))}")
    if place.module is not None:
        print_line(f"  module        {place.module}")
    for links in place.nvlinks or ():
        print_line(f"  NVLink        {_links(links)}")
    if place.fabric is not None:
        fabric = place.fabric
        where = "" if fabric.cluster_uuid is None else f", cluster {fabric.cluster_uuid}, clique {fabric.clique}"
        faults = "".join(f", {fault}" for fault in fabric.faults)
        print_line(f"  fabric        {fabric.describe()}{where}{faults}")


def _links(links: NvLinks) -> str:
    numbers = ",".join(map(str, links.numbers))
    version = "" if links.version is None else f", version {links.version}"
    if not links.is_active:
        return f"{numbers} not active{version}"
    return f"{numbers} to {links.peer_kind or 'something'} {links.peer or 'of unknown address'}{version}"


def _print_mig(gpu: Gpu) -> None:
    """MIG's mode and instances; a GPU that cannot be partitioned has no line."""
    if gpu.mig is None:
        if gpu.mig_mode is not None:
            print_line(f"  MIG           {gpu.mig_mode}")
        return
    modes = ["enabled" if is_on else "disabled" for is_on in (gpu.mig.current, gpu.mig.pending)]
    pending = "" if modes[0] == modes[1] else f", {modes[1]} after a reset or reboot"
    print_line(f"  MIG           {modes[0]}{pending}, {len(gpu.mig.instances)} instances")
    for one in gpu.mig.instances:
        use = "in use" if one.in_use else "free"
        print_line(
            f"    instance {one.id}  {one.profile} at {one.start}, size {one.size}, "
            f"{one.compute_instances} compute instances, {use}" + _held(one.holders)
        )


def _with(params: str | None) -> str:
    return f", parameters {params}" if params else ""


def _held(holders: tuple[Any, ...]) -> str:
    return "".join(f", held by {holder.command} (pid {holder.pid})" for holder in holders)
