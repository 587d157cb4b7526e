# SPDX-License-Identifier: Apache-2.0
"""Hosts to work on, an operator with a fresh store per test file, and a witness that asks the host itself.

`operator` works on the emulated host with a real kernel, where a command takes seconds. `fleet_operator` works on
simulated hosts, where it takes a fraction of one: for what has to be tried many times.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness, Witness
from tests.lab.simulated_fixtures import fleet
from tests.lab_fixtures import KernelHost, kernel_host, lab_folder
from vgpuctl_lab.builds import ensure_guest
from vgpuctl_lab.simulated.layout import simulated_folder

__all__ = ["fleet", "kernel_host", "lab_folder"]

_VFS_ARE_MISSING = "cat /sys/bus/pci/devices/*/sriov_numvfs | grep -qx 0"
_ENABLE_VFS = """
set -e
/usr/lib/nvidia/sriov-manage -e ALL
for card in /sys/bus/pci/devices/*; do
    [ "$(cat "$card/vendor")" = 0x8086 ] && [ -e "$card/sriov_numvfs" ] || continue
    [ "$(cat "$card/sriov_numvfs")" != 0 ] || { echo 0 >"$card/sriov_drivers_autoprobe"; echo 4 >"$card/sriov_numvfs"; }
done
"""


@pytest.fixture(scope="session")
def witness(kernel_host: Any) -> Witness:
    """Ask the emulated host without any of our code."""
    return Witness(kernel_host)


@pytest.fixture(scope="module")
def operator(kernel_host: KernelHost, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """An operator of the emulated host with a new store; the VFs are enabled as on a set-up host."""
    if kernel_host.run(_VFS_ARE_MISSING)[0] == 0:
        with kernel_host.without_libvirtd():
            code, out, err = kernel_host.run(_ENABLE_VFS)
            assert code == 0, out + err
    home: Path = tmp_path_factory.mktemp("operator")
    # Root logs in without sudo, which costs seconds under emulation; tests/integration/ssh and the demo use sudo.
    as_root = Path(kernel_host.inventory).read_text().replace('ansible_user: "operator"', 'ansible_user: "root"')
    inventory = home / "inventory.yml"
    inventory.write_text(as_root.replace("ansible_become: true", "ansible_become: false"))
    made = Operator(home, inventory, f"sqlite:///{home}/store.db")
    checksum = hashlib.sha256(ensure_guest(kernel_host.folder).read_bytes()).hexdigest()
    made.does("register-image", "idle", "--volume", "idle.img", "--format", "raw", "--checksum", f"sha256:{checksum}")
    return made


@pytest.fixture(scope="module")
def fleet_operator(fleet: lab.LabFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of four simulated hosts with a new store."""
    home: Path = tmp_path_factory.mktemp("operator")
    yield Operator(home, simulated_folder(fleet).inventory, f"sqlite:///{home}/store.db")


@pytest.fixture(scope="module")
def fleet_witness(fleet: lab.LabFolder) -> FleetWitness:
    """Ask the simulated machines' own files."""
    return FleetWitness(fleet)
