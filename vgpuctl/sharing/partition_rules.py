# SPDX-License-Identifier: Apache-2.0
"""Which shares need a partition of the NVSwitch fabric, and why a GPU cannot give one that would compute."""

from collections.abc import Iterable

from vgpuctl import catalog
from vgpuctl.agent.wire.fabric import FabricPartition, UsedPartition
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.model.layout import FabricMode
from vgpuctl.model.lease import Share
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.fabric import OnFabric, on_fabric, partition_of, why_unknown, why_untold
from vgpuctl.sharing.gpu_state import GpuState, max_instances_of
from vgpuctl.sharing.kind import Takes
from vgpuctl.sharing.kinds import kind_of, takes_card
from vgpuctl.sharing.offer import Refusal, ShareRequest


def needs_partition(share: Share) -> bool:
    """True if a share of a GPU on the fabric computes only in an active partition."""
    takes = kind_of(share.sharing).takes
    return takes is Takes.CARD or (takes is Takes.VGPU and not catalog.is_mig_backed(share.profile))


def used_partition(shares: Iterable[Share], facts: HostFacts, vm_uuid: str) -> UsedPartition | None:
    """The partition that a VM with these shares needs; None for one that needs none.

    In FABRIC_MODE 0 there are none: a VM with all GPUs has the NVSwitches too, and a Fabric Manager of its own.
    """
    needing = [] if _has_none(facts) else _needing(shares, facts)
    if not needing:
        return None
    vfs = tuple(one.function for one in needing if one.function != one.gpu)
    return UsedPartition(tuple(one.gpu for one in needing), vfs, vm_uuid)


def told_partition(shares: Iterable[Share], facts: HostFacts | None) -> tuple[FabricPartition | None, str | None]:
    """The partition that the shares of one VM are, as Fabric Manager lists it, and why none is known.

    Both are None where they need none, or nothing is known of the host.
    """
    used = None if facts is None else used_partition(shares, facts, "")
    if facts is None or used is None:
        return None, None
    found = partition_of(used.gpus, facts)
    if found is None:
        return None, why_untold(facts) or "Fabric Manager lists none of exactly its GPUs"
    return found, None


def _has_none(facts: HostFacts) -> bool:
    """True if the host is known to have no partitions; what could not be read may have some, and the agent asks."""
    manager = facts.fabric_manager
    if manager is None:
        return why_unknown(facts) is None
    return manager.mode in (None, FabricMode.BARE.number) and manager.partitions is None


def _needing(shares: Iterable[Share], facts: HostFacts) -> list[Share]:
    on_it = {gpu.address for gpu in facts.gpus if on_fabric(gpu, facts) is not None}
    return sorted((one for one in shares if one.gpu in on_it and needs_partition(one)), key=lambda one: one.gpu)


def check_partition(shares: Iterable[Share], facts: HostFacts) -> str | None:
    """Say why these shares of one VM would not compute on the host as it is now; None when nothing speaks against it.

    Not for a VM that was adopted: in FABRIC_MODE 0 it may have the NVSwitches too. facts: read just now. Whether the
    partition is active for somebody is not looked at: the agent asks for that, and it waits for a Fabric Manager that
    is starting.
    """
    needing, manager, unknown = _needing(shares, facts), facts.fabric_manager, why_unknown(facts)
    if needing and unknown is not None:
        return f"nobody knows what Fabric Manager has active: {unknown}"
    if needing and manager is not None and _has_none(facts):
        return (
            f"FABRIC_MODE of the host's Fabric Manager is {manager.mode}, in which its guest finds no GPU that computes"
        )
    used = used_partition(needing, facts, "")
    if used is None:
        return None
    partition = partition_of(used.gpus, facts)
    if manager is not None and manager.is_starting:
        return None
    if manager is not None and manager.partitions is None:
        return f"Fabric Manager tells no partitions: {manager.problem or f'FABRIC_MODE is {manager.mode}'}"
    if partition is None:
        return f"the GPUs {', '.join(used.gpus)} are no partition of the NVSwitch fabric"
    failed = [gpu.module for gpu in partition.gpus if gpu.links < gpu.most_links]
    if failed:
        return f"its partition {partition.number} has GPUs that have lost NVLinks: {named_modules(failed, facts)}"
    return None


def named_modules(modules: Iterable[int], facts: HostFacts) -> str:
    """GPUs by their numbers on the baseboard, and their addresses: `module 3 (0000:45:00.0)`."""
    addresses = {gpu.topology.module: gpu.address for gpu in facts.gpus if gpu.topology is not None}
    return ", ".join(f"module {one} ({addresses.get(one, 'address not known')})" for one in sorted(modules))


def refuse_partition(share_request: ShareRequest, share: Share, state: GpuState) -> Refusal | None:
    """Say why no partition would serve a share, None where one may, or the share needs none."""
    fabric = state.fabric
    if fabric is None or not needs_partition(share):
        return _refuse_without_fabric(share_request)
    return (
        _refuse_unread(fabric)
        or _refuse_mode(fabric, share, state)
        or _refuse_unknown(fabric, state)
        or _refuse_part(share, state)
        or _refuse_number(share_request, fabric, state)
        or _refuse_sizes(share_request.together, fabric, state)
        or _refuse_active(fabric, state)
    )


def _refuse_mode(fabric: OnFabric, share: Share, state: GpuState) -> Refusal | None:
    wanted = FabricMode.SHARED if takes_card(share) else FabricMode.VGPU
    if fabric.mode == wanted.number:
        return None
    what = "a whole GPU" if takes_card(share) else "a vGPU"
    mode = "no FABRIC_MODE" if fabric.mode is None else f"FABRIC_MODE {fabric.mode}"
    return Refusal(
        Code.FABRIC_MODE,
        f"Fabric Manager has {mode}, in which the guest of {what} finds no GPU that computes",
        f"declare `fabric: {{mode: {wanted}}}` for {state.host} and run `vgpuctl apply-hosts --disrupt`",
    )


def _refuse_unread(fabric: OnFabric) -> Refusal | None:
    if fabric.mode is not None or fabric.problem is None:
        return None
    remedy = "`vgpuctl check-hosts` names what is missing; have it read before a VM gets GPUs of the fabric"
    return Refusal(Code.FABRIC_MANAGER, f"nobody knows what Fabric Manager has active: {fabric.problem}", remedy)


def _refuse_unknown(fabric: OnFabric, state: GpuState) -> Refusal | None:
    if fabric.problem is not None:
        return Refusal(
            Code.FABRIC_MANAGER,
            f"Fabric Manager tells no partitions: {fabric.problem}",
            "have it run; `vgpuctl repair` tells one that was restarted the partitions of running VMs",
        )
    if fabric.module is None:
        return Refusal(
            Code.FABRIC_MANAGER,
            "nobody knows which GPU of the baseboard it is: NVML tells it while NVIDIA's driver has the card",
            f"bind it to NVIDIA's driver, then run `vgpuctl inspect-host {state.host}`",
        )
    return None


def _refuse_part(share: Share, state: GpuState) -> Refusal | None:
    """A partition gives a GPU's NVLinks to one VF: a second vGPU beside it would be in none."""
    if takes_card(share):
        return None
    offered = next((one for one in state.gpu.types if one.type_id == share.type_id), None)
    most = None if offered is None else max_instances_of(offered, state.board)
    if most == 1:
        return None
    return Refusal(
        Code.NO_PARTITION,
        f"{share.profile} leaves room for other vGPUs, and a partition of the fabric gives the GPU to one VM",
        "ask for the type with all of its memory, or for a MIG-backed one, which needs no partition",
    )


def _refuse_without_fabric(share_request: ShareRequest) -> Refusal | None:
    if share_request.partition is None:
        return None
    reason = f"partition {share_request.partition} is asked for, and the share needs no partition of an NVSwitch fabric"
    return Refusal(Code.NO_PARTITION, reason, "leave --partition out, or ask for whole GPUs or vGPUs of an HGX host")


def _refuse_number(share_request: ShareRequest, fabric: OnFabric, state: GpuState) -> Refusal | None:
    number = share_request.partition
    if number is None:
        return None
    manager = state.facts.fabric_manager
    sizes = {one.number: len(one.gpus) for one in (manager and manager.partitions) or ()}
    remedy = f"`vgpuctl list-partitions -l {state.host}` shows the partitions"
    if number not in sizes:
        return Refusal(Code.NO_PARTITION, f"its NVSwitch fabric has no partition {number}", remedy)
    if share_request.together not in (None, sizes[number]):
        reason = f"partition {number} has {sizes[number]} GPUs, and {share_request.together} are asked for"
        return Refusal(Code.NO_PARTITION, reason, remedy)
    if all(one.number != number for one in fabric.partitions):
        return Refusal(Code.PARTITION_TAKEN, f"it is not in partition {number}: it is module {fabric.module}", remedy)
    return None


def _refuse_sizes(together: int | None, fabric: OnFabric, state: GpuState) -> Refusal | None:
    if together is None:
        return None
    fitting = [one for one in fabric.partitions if len(one.modules) == together]
    sizes = ", ".join(map(str, fabric.sizes())) or "no"
    if not fitting:
        return Refusal(
            Code.NO_PARTITION,
            f"no partition of its NVSwitch fabric has {together} GPUs; those with this GPU have {sizes}",
            f"ask for as many GPUs as a partition has: {sizes}" if fabric.partitions else None,
        )
    if not any(one.works for one in fitting):
        failed = set().union(*(one.failed for one in fitting))
        return Refusal(
            Code.FABRIC_LINKS,
            f"each partition of {together} GPUs with it has GPUs that have lost NVLinks: "
            f"{named_modules(failed, state.facts)}",
            "reset or replace them; a partition of one GPU needs no NVLink",
        )
    return None


def _refuse_active(fabric: OnFabric, state: GpuState) -> Refusal | None:
    if fabric.active is not None and not state.lease_holders:
        return Refusal(
            Code.PARTITION_ACTIVE,
            f"partition {fabric.active} with it is active, and no VM of the store has it",
            f"`vgpuctl repair` deactivates it if vgpuctl activated it, else `fmpm -d {fabric.active}` on {state.host}",
        )
    if fabric.chosen is not None and fabric.module not in fabric.chosen:
        return Refusal(Code.PARTITION_TAKEN, "it is not in the partition that is looked at")
    return None
