# SPDX-License-Identifier: Apache-2.0
"""`lab fault` on an emulated host: what its kernel, its services and its network then answer (docs/lab.md).

Every fault costs an SSH session of the emulated processor, so one of each way is played; what the faults of a card do
is in test_kernel_modes.py.
"""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.lab.kernel_cards import DEVICES, UUIDS, Do, refusals
from tests.lab_fixtures import KernelHost
from vgpuctl.errors import UsageError

PROFILE, MDEV_VF, T4 = (f"0000:0{bus}:00.0" for bus in (1, 2, 3))
LOCK = f"/proc/driver/nvidia/gpus/{PROFILE}/unbindLock"
FILE = "/var/lib/vgpuctl/file"
ASKED: list[list[Any]] = [
    ["write", f"/sys/class/mdev_bus/{T4}/mdev_supported_types/nvidia-232/create", UUIDS[0]],
    ["write", LOCK, "1"],
    ["read", LOCK],
    ["write", LOCK, "0"],
    ["config", f"{DEVICES}/{MDEV_VF}/config"],
    ["program", "/bin/sh", "-c", "virsh -q -c qemu:///system uri >/dev/null 2>&1 && echo answers"],
    ["program", "/bin/sh", "-c", f"echo kept >{FILE} 2>/dev/null; cat {FILE}; rm {FILE}"],
]


@pytest.fixture
def healthy(kernel_host: KernelHost) -> Iterator[KernelHost]:
    yield kernel_host
    lab.faults.clear(kernel_host.name, folder=kernel_host.folder)


def test_faults_are_felt_listed_and_ended_in_one_go(healthy: KernelHost, do: Do) -> None:
    """[3.1], [4.2], [9.6] Faults of cards, libvirt, disk and network at once; the network's ends first."""
    name, folder = healthy.name, healthy.folder
    asked: list[tuple[str, int | None, str | None]] = [
        ("refuse", 0x40, T4),
        ("unbind-lock", None, PROFILE),
        ("fallen", None, MDEV_VF),
        ("move-state", None, T4),
        ("libvirtd", None, None),
        ("disk-full", None, None),
    ]
    for kind, value, card in asked:
        assert lab.faults.begin(name, kind, value, card=card, folder=folder)[:2] == (kind, card)
    with pytest.raises(UsageError, match="no NVIDIA GPU with SR-IOV"):
        lab.faults.begin(name, "pf-stub", card=T4, folder=folder)
    create, _, lock, _, config, libvirt, file, log, (card,) = do(*ASKED, ["log"], ["state", "card", T4])
    assert (create, lock, config, file) == ("EIO", "0", "ffffffff", [0, ""])
    assert refusals(log)[0] == "NVRM: Failed to add vgpu create request: 0x40"
    assert libvirt[0] != 0
    assert card.endswith(" state_mib=64 can_move=1")
    lab.faults.begin(name, "network", folder=folder)
    (described,) = lab.status(folder=folder)
    with socket.create_connection((described.address, described.port), timeout=10) as client:
        client.settimeout(2)
        with pytest.raises(TimeoutError):
            client.recv(1)
    kinds = ["refuse", "unbind-lock", "fallen", "move-state", "libvirtd", "network", "disk-full"]
    assert [one[0] for one in lab.faults.active(name, folder=folder)] == kinds
    lab.faults.clear(name, folder=folder)
    assert lab.faults.active(name, folder=folder) == []
    create, _, lock, _, config, libvirt, file = do(*ASKED)
    assert (create, lock, config, libvirt, file) == ("ok", "1", "de103522", [0, "answers\n"], [0, "kept\n"])
    do()
