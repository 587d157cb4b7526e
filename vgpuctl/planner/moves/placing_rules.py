# SPDX-License-Identifier: Apache-2.0
"""Rules of the VM's place: what binds it to its host, and what the other host must have, running VM or not."""

from collections.abc import Callable

from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.planner.moves.case import MoveCase
from vgpuctl.planner.moves.rule import Found, MoveRule, whole

_LIVE, _COLD = MoveKind.LIVE, MoveKind.COLD
_OURS = "vgpuctl docs/moves.md"


def _has_whole_card(case: MoveCase) -> bool:
    return any(gpu.is_card for gpu in case.gpus)


def _looked(code: str, applies: Callable[[MoveCase], bool] = lambda _case: True) -> Callable[[MoveCase], Found]:
    """Tell what a look at the other host found."""
    return lambda case: case.looks.get(code) if applies(case) else ""


BOUND_RULES = (
    MoveRule(
        "unfinished", _COLD, "{found}", "wait for the command that works on it; if it was cut short: `vgpuctl repair`",
        "what has not ended of the VM", _OURS, whole(lambda case: case.vm.unfinished or ""),
    ),
    MoveRule(
        "adopted", _COLD, "its domain is adopted, and vgpuctl never writes its definition",
        "move it by hand and adopt it again", "", _OURS, whole(lambda case: case.vm.is_adopted),
    ),
    MoveRule(
        "declared-host", _COLD, "it was created for host {case.vm.declared_host}",
        "delete it and create it again without --host", "", _OURS,
        whole(lambda case: case.vm.declared_host or ""), pins=True,
    ),
    MoveRule(
        "host-network", _COLD, "its network {case.vm.network} is on {here.name} alone",
        "use a network with --backend ovn, which reaches every host", "", _OURS,
        whole(lambda case: case.vm.network or ""), pins=True,
    ),
    MoveRule(
        "disk-snapshots", _COLD, "its disks have snapshots", "delete them: `vgpuctl delete-snapshot`", "", _OURS,
        whole(lambda case: case.vm.has_disk_snapshots),
    ),
    MoveRule(
        "suspended", _COLD, "it is suspended to the disk of {here.name}", "resume it: `vgpuctl resume-vm`", "", _OURS,
        whole(lambda case: case.vm.is_suspended),
    ),
    MoveRule(
        "vm-is-off", _LIVE, "the VM does not run: there is nothing to move live", "", "", _OURS,
        whole(lambda case: not case.vm.is_running),
    ),
    MoveRule(
        "must-restart", _LIVE, "QEMU has reset its vGPU, and it must be restarted",
        "restart it: `vgpuctl restart-vm`; a cold move does that too", "", _OURS,
        whole(lambda case: case.vm.must_restart),
    ),
    MoveRule(
        "gpu-pending", _LIVE, "the attachment or detachment of {found} is pending",
        "wait until its guest lets go of it, or restart the VM; a cold move does both", "", _OURS,
        whole(lambda case: ", ".join(case.vm.pending) if case.vm.is_running else ""),
    ),
)  # fmt: skip


def _placing(
    code: str, remedy: str, witness: str, applies: Callable[[MoveCase], bool] = lambda _case: True
) -> MoveRule:
    return MoveRule(
        code, _COLD, "{found}", remedy, f"{witness} on {{there.name}}", _OURS, whole(_looked(code, applies))
    )


PLACING_RULES = (
    _placing("host-silent", "see `vgpuctl inspect-host {there.name}`", "the host's answer"),
    _placing("host-closed", "see `vgpuctl list-host-pools`", "the host's pools"),
    _placing("cordon", "open it: `vgpuctl uncordon-host {there.name}`", "cordons"),
    _placing("gpu-health", "see `vgpuctl show-gpu`", "the health of the cards"),
    _placing("reservation", "see `vgpuctl list-reservations`", "reservations"),
    _placing("quota", "see `vgpuctl show-usage`", "the tenant's quota"),
    _placing("licence", "see `vgpuctl list-licence-pools`", "licences"),
    _placing("no-equal-share", "see `vgpuctl list-gpus --free`", "free shares", lambda case: not _has_whole_card(case)),
    MoveRule(
        "no-equal-card", _COLD, "{found}", "wait until an equal card is free: see `vgpuctl list-gpus --free`",
        "free cards on {there.name}", _OURS, whole(_looked("no-equal-share", _has_whole_card)), pins=True,
    ),
    _placing("name-taken", "rename the other domain, or choose another host", "domains of the VM's name"),
    _placing("mac-taken", "see `virsh edit` of that domain", "MAC addresses"),
    _placing("network", "see `vgpuctl list-networks`", "the VM's networks"),
    _placing("disks", "see docs/volumes.md", "the VM's disks and images"),
    _placing("host-parts", "see `vgpuctl check-hosts {there.name}`", "what the guest needs of its host"),
    MoveRule(
        "move-network", _LIVE, "{found}",
        "correct `vgpu_moves` of {here.name} and {there.name} in the inventory: the same `network` (trusted or tls), "
        "and an `address` of each that no other host has",
        "the network for moves between {here.name} and {there.name}", _OURS, whole(_looked("move-network")),
    ),
    MoveRule(
        "move-certificates", _LIVE, "{found}",
        "`vgpuctl apply-hosts --limit {here.name},{there.name}` makes and renews them on hosts with the variable vgpu; "
        "your own are yours to renew",
        "QEMU's certificates on {here.name} and {there.name}", _OURS, whole(_looked("move-certificates")),
    ),
    MoveRule(
        "lost-before", _LIVE, "{found}",
        "find out why, change the driver of one of them, and try with a VM that may be restarted: "
        "`vgpuctl move-vm --trust-hosts`",
        "earlier moves from {here.name} to {there.name}", "reference moves 3.1, row 9", whole(_looked("lost-before")),
    ),
    MoveRule(
        "guest-cells", _LIVE, "{found}", "choose a host with equal NUMA nodes, or move it cold",
        "NUMA nodes of {there.name}", "RHEL 10, limits of migration", whole(_looked("guest-cells")),
    ),
    MoveRule(
        "mmio-window", _LIVE, "{found}", "choose a host whose processors have as many address bits, or move it cold",
        "the MMIO window on {there.name}", "edk2 OvmfPkg PlatformInitLib", whole(_looked("mmio-window")),
    ),
)  # fmt: skip
