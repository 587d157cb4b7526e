# SPDX-License-Identifier: Apache-2.0
"""Commands on one VM: its disks and snapshots, its interfaces and GPUs, its name, console and power. Proofs draw them.

A command is drawn for a VM that the store has now, so that it can succeed. libvirt's test driver, which simulated hosts
have, grows and merges no disk: such a command is drawn too, and its refusal must leave nothing.
"""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.licence.licence_tokens import token_file
from tests.e2e.operator import Operator
from tests.proof.fleet import VM_HOSTS, ProofFleet
from tests.proof.guest_checks import GuestSeen
from vgpuctl.model.disk_chain import snapshots_of
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.interfaces import interfaces_of
from vgpuctl.model.vm import Vm, VmState

Words = tuple[str, ...]
NOW = ("--timeout", "0")
POOL, EDITIONS = "desktops", {"desktops": "vws", "workers": "vcs"}
SERVER = "dls-1.example"
NETWORKS: Mapping[str, str] = {host: f"net-{number}" for number, host in enumerate(VM_HOSTS, 1)}
"""A network of the tenant acme on each host."""
MORE_GPUS: Mapping[str, Sequence[str]] = {
    "sim-001": ("A40-8Q", "A40-24Q"),
    "sim-002": ("A40-8Q", "A40-24Q"),
    "sim-003": ("T4-4Q", "T4-2Q", "passthrough:nvidia-geforce-rtx-3090"),
    "sim-004": ("H100-2-20C",),
}
"""One GPU that each host has."""
WINDOWS = ("--os", "win11", "--memory", "4GiB", "--vcpus", "2")
SMALL = ("--memory", "96MiB", "--vcpus", "1")
GUEST_KINDS = [
    *["create-snapshot", "revert-snapshot", "rename-vm", "delete-disk"] * 4,
    *["attach-disk", "detach-disk", "attach-gpu", "detach-gpu", "restart-vm", "attach-nic", "detach-nic"] * 2,
    *[
        "delete-snapshot",
        "resize-disk",
        "restart-vm --reset",
        "stop-vm --force",
        "eject-iso",
        "set-console",
        "set-licence-pool",
    ],
]
"""Those that only few VMs can have, such as stopped ones with a snapshot, are drawn more often."""
GUEST_REFUSALS: Mapping[str, set[str]] = {
    "attach-disk": {"state", "domain-rejected"},  # a snapshot, or no port of the guest is free
    "detach-disk": {"state"},
    "attach-gpu": {"state", "no-capacity", "no-licence"},  # of a gang, or one that waits in the queue
    "detach-gpu": {"state", "usage"},  # the last vGPU of a VM with parameters of vGPUs
    "attach-nic": {"state"},
    "detach-nic": {"state"},
    "create-snapshot": {"state", "domain-rejected"},
    "delete-snapshot": {"state", "domain-rejected"},
    "resize-disk": {"state", "domain-rejected", "volume-rejected"},
    "restart-vm": {"no-capacity", "no-licence"},
    "set-console": {"state", "usage"},
}
"""What each may answer. A gang keeps its GPUs, and disks with snapshots stay as they are."""


def prepare(fleet: ProofFleet, home: Path, *, seats: int) -> None:
    """Make what the commands need: networks of the tenant acme, and licence pools with tokens."""
    operator = fleet.operator
    for number, (host, network) in enumerate(NETWORKS.items(), 1):
        where = ("--cidr", f"10.{number}.0.0/24", "--host", host)
        operator.does("create-network", network, "--tenant", "acme", *where)
    token = str(token_file(home, SERVER))
    for pool, edition in EDITIONS.items():
        size = ("--edition", edition, "--seats", str(seats), "--lease", "1s")
        operator.does("create-licence-pool", pool, *size, "--token", token)


def guest_options(dice: random.Random, number: int, gpu: str, *, is_alone: bool) -> Words:
    """Further options of a drawn VM: firmware and TPM, disks, ports, a display, parameters of its vGPUs.

    is_alone: it is the only VM of its command, as the name of a data disk is unique.
    """
    chosen: list[str] = [*(WINDOWS if dice.random() < 0.15 else SMALL)]
    if "--os" not in chosen and dice.random() < 0.15:
        chosen += ["--firmware", "uefi"]
    if dice.random() < 0.7:
        chosen += ["--disk", "8MiB"]
    if dice.random() < 0.7:
        chosen += ["--hostname", "guest"]
    if is_alone and dice.random() < 0.3:
        chosen += ["--data-disk", f"data-{number},size=8MiB" + dice.choice(("", ",keep", ",bus=scsi,keep"))]
    if dice.random() < 0.3:
        chosen += ["--spare-ports", "2"]
    if dice.random() < 0.3:
        chosen += ["--display", dice.choice(("vnc", "none"))]
    if "passthrough" not in gpu and dice.random() < 0.3:
        chosen += ["--vgpu-param", "frame_rate_limiter=0"]
    return tuple(chosen)


def drop_snapshots(operator: Operator, seen: GuestSeen) -> None:
    """Revert all snapshots, the newest first: a disk that is kept leaves no VM that has some."""
    for vm in seen.vms:
        names = snapshots_of(seen.volumes_of(vm))
        own = (vm.request.name, "--tenant", vm.request.tenant)
        if names and vm.state is VmState.RUNNING:
            operator.does("stop-vm", *own, *NOW)
        for name in reversed(names):
            operator.does("revert-snapshot", own[0], name, *own[1:], "--yes")


class GuestCommands:
    """Draws one command for a VM of the store."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def words(self, kind: str, number: int, seen: GuestSeen) -> Words | None:
        """The command of this kind, None when there is nothing that it could work on. number: for new names."""
        if kind == "set-licence-pool":
            return (kind, POOL, "--seats", str(self._dice.randint(4, 12)))
        if kind == "delete-disk":
            free = [one for one in seen.volumes if one.is_kept]
            chosen = self._dice.choice(free) if free else None
            return None if chosen is None else (kind, chosen.label, "--tenant", chosen.tenant, "--yes")
        vms = [vm for vm in seen.vms if self._fits(kind, vm, seen)]
        if not vms:
            return None
        vm = self._dice.choice(vms)
        command, *flags = kind.split()
        further = self._further(kind, number, vm, seen)
        return (command, vm.request.name, *further, *flags, "--tenant", vm.request.tenant)

    def _fits(self, kind: str, vm: Vm, seen: GuestSeen) -> bool:
        volumes = seen.volumes_of(vm)
        if kind in ("attach-gpu", "detach-gpu", "rename-vm") and vm.uuid in seen.nodes:
            return False  # a node keeps its name, and the GPUs of its pool
        if kind in ("detach-disk",):
            return bool(vm.request.data_disks)
        if kind in ("rename-vm", "create-snapshot"):
            has_disk = vm.request.disk is not None or bool(vm.request.data_disks)
            return vm.state is VmState.STOPPED and (has_disk or kind == "rename-vm")
        if kind in ("revert-snapshot", "delete-snapshot"):
            wanted = VmState.STOPPED if kind == "revert-snapshot" else VmState.RUNNING
            return vm.state is wanted and bool(snapshots_of(volumes))
        if kind == "resize-disk":
            return vm.request.disk is not None
        if kind in ("restart-vm", "restart-vm --reset", "stop-vm --force"):
            return vm.state is VmState.RUNNING
        if kind == "attach-nic":
            return vm.request.tenant == "acme" and vm.host in NETWORKS
        if kind == "detach-nic":
            return bool(interfaces_of(vm.request))
        if kind in ("detach-gpu", "set-console"):
            return bool(vm.request.gpus)
        return True

    def _further(self, kind: str, number: int, vm: Vm, seen: GuestSeen) -> Words:
        dice, request = self._dice, vm.request
        if kind == "attach-disk":
            free = [one for one in seen.volumes if one.is_kept and (one.tenant, one.host) == (request.tenant, vm.host)]
            if free and dice.random() < 0.6:
                return (dice.choice(free).label,)
            return (f"disk-{number},size=8MiB" + dice.choice(("", ",keep", ",bus=scsi")),)
        if kind == "detach-disk":
            return (dice.choice(request.data_disks).name, *NOW)
        if kind == "attach-gpu":
            return (dice.choice(MORE_GPUS[vm.host]),)
        if kind == "detach-gpu":
            return (str(dice.choice(placed_gpus(request.gpus)).position), *NOW)
        if kind == "attach-nic":
            return (NETWORKS[vm.host], *dice.choice(((), ("--another",))))
        if kind == "detach-nic":
            return self._interface(vm, seen)
        if kind == "rename-vm":
            return (f"named-{number}",)
        if kind == "create-snapshot":
            return (f"at-{number}",)
        if kind in ("revert-snapshot", "delete-snapshot"):
            return (snapshots_of(seen.volumes_of(vm))[-1], "--yes")
        if kind == "resize-disk":
            return (dice.choice(("8MiB", "16MiB")),)
        if kind == "set-console":
            return (dice.choice(("emulated", "none")),)
        return NOW if kind == "restart-vm" else ()

    def _interface(self, vm: Vm, seen: GuestSeen) -> Words:
        chosen = self._dice.choice(interfaces_of(vm.request))
        ports = [one.mac_address for one in seen.ports if (one.vm_uuid, one.position) == (vm.uuid, chosen.position)]
        return (chosen.network, *(("--mac", ports[0]) if ports else ()), "--last", *NOW)
