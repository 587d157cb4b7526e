# SPDX-License-Identifier: Apache-2.0
"""The gate of whole cards: no part of a card that a VM gets as a whole may be in use, shared or another's.

Placing asks it with the facts of the store, the check right before building with fresh ones; the agent answers the
same question for itself (agent/facts/whole_card.py).
"""

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.occupancy import LiveGpu, describe_holders, strangers_in_group
from vgpuctl.sharing.offer import Refusal

_FIRMWARE = "switch VT-d or AMD-Vi on in the firmware and on the kernel's command line, then reboot"


def find_obstacle(live: LiveGpu) -> Refusal | None:
    """Find the first thing that keeps a card from a VM, None when the facts show none. Leases are not looked at."""
    gpu = live.gpu
    return _held(gpu) or _shared(live) or _used(gpu) or _enabled(gpu) or _not_isolated(gpu, live.facts)


def _held(gpu: Gpu) -> Refusal | None:
    if gpu.holders:
        return Refusal(Code.CARD_IN_USE, f"it is held by {describe_holders(gpu.holders)}", "stop what holds it")
    for companion in gpu.companions:
        in_use = companion.holders or companion.users
        if in_use:
            reason = f"its function {companion.address} is in use by {describe_holders(in_use)}"
            return Refusal(Code.CARD_IN_USE, reason, "stop what uses it")
    return None


def _shared(live: LiveGpu) -> Refusal | None:
    if live.vgpus:
        return Refusal(
            Code.CARD_IN_USE,
            f"it carries {len(live.vgpus)} vGPUs that vgpuctl did not make",
            "remove them, or ask for a share of the card",
        )
    mig = live.gpu.mig
    if mig is None or not mig.current:
        return None
    if mig.instances:
        names = ", ".join(f"{one.profile} at {one.start}" for one in mig.instances)
        return Refusal(
            Code.MIG_ON,
            f"it has {len(mig.instances)} MIG instances ({names}), which giving it away would destroy",
            "destroy them and switch MIG off, or declare the card `kind: passthrough` and run `vgpuctl apply-hosts`",
        )
    return Refusal(
        Code.MIG_ON,
        "MIG is on, so the card is set up to be shared",
        "switch MIG off, or declare the card `kind: passthrough` and run `vgpuctl apply-hosts`",
    )


def _used(gpu: Gpu) -> Refusal | None:
    if gpu.users:
        return Refusal(
            Code.CARD_IN_USE,
            f"the host itself uses it: {describe_holders(gpu.users)}",
            "stop these processes, so that the driver can let go of the card",
        )
    return None


def _enabled(gpu: Gpu) -> Refusal | None:
    held = [function for function in gpu.vfs if function.holders]
    if held:
        return Refusal(Code.CARD_IN_USE, f"{len(held)} of its VFs are in use", "stop what uses them")
    if gpu.vfs:
        return Refusal(
            Code.VFS_ENABLED,
            f"{len(gpu.vfs)} VFs are enabled, so the card is set up to be shared",
            "disable its VFs, or ask for a share of the card",
        )
    return None


def _not_isolated(gpu: Gpu, facts: HostFacts) -> Refusal | None:
    if not facts.iommu_active or gpu.iommu_group is None:
        return Refusal(Code.NO_IOMMU, "it is in no IOMMU group", _FIRMWARE)
    for companion in gpu.companions:
        if companion.iommu_group is None:
            return Refusal(Code.NO_IOMMU, f"its function {companion.address} is in no IOMMU group", _FIRMWARE)
    if gpu.strangers is None and Sharing.PASSTHROUGH in gpu.sharing:
        return None
    strangers = strangers_in_group(gpu) if gpu.strangers is None else gpu.strangers
    if strangers:
        groups = sorted({gpu.iommu_group, *(one.iommu_group or 0 for one in gpu.companions)})
        return Refusal(
            Code.GROUP_NOT_ISOLATED,
            f"IOMMU group {' or '.join(map(str, groups))} of its functions also holds {', '.join(strangers)}",
            "use a slot whose upstream port has ACS",
        )
    if gpu.strangers is not None:
        return None
    return Refusal(Code.DRIVER, f"the host does not offer it for passthrough (driver {gpu.driver or 'none'})")
