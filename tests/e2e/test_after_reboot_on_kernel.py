# SPDX-License-Identifier: Apache-2.0
"""The reboot contract on the host with a real kernel: VFs, mdevs and types are back before libvirt starts the VM."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

PROFILE, MDEV_VF = "0000:01:00.0", "0000:02:00.0"
# libvirt starts the VM after it answers; the emulated processor takes its time.
_AUTOSTART_LIMIT_S = 120
LAYOUT = {
    "version": 1,
    "gpus": [
        {"match": {"address": PROFILE}, "kind": "vgpu"},
        {"match": {"address": MDEV_VF}, "kind": "vgpu", "slices": {"A40-4Q": 1}},
    ],
}


@pytest.fixture
def declared(operator: Operator, kernel_host: Any) -> Iterator[Operator]:
    """The operator with a layout of the host; what was installed on it goes afterwards."""
    folder = operator.inventory.parent / "host_vars"
    folder.mkdir()
    (folder / "gpu1.yml").write_text(yaml.safe_dump({"vgpu": LAYOUT}))
    yield operator
    operator.run("delete-vm", "kept", "--tenant", "acme", "--yes", "--timeout", "0")
    (folder / "gpu1.yml").unlink()
    kernel_host.run("rm -rf /etc/vgpuctl/*")


def test_the_layout_is_back_before_the_vm_starts(declared: Operator, kernel_host: Any, witness: Witness) -> None:
    declared.does("apply-hosts")
    declared.does("create-tenant", "acme")
    size = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB")
    declared.does("create-vm", "kept", "--tenant", "acme", "--gpu", "A40-8Q", *size, "--autostart")
    before = witness.state()
    assert any(line.startswith("mdev ") for line in before) and any(line.startswith("vgpu ") for line in before)
    declared.run("check-hosts", "--snapshot")
    kernel_host.reboot()
    log = witness.run("cat /run/vgpuctl-restore.log")
    assert "the layout is restored" in log
    end = time.monotonic() + _AUTOSTART_LIMIT_S
    while (after := witness.state()) != before and time.monotonic() < end:
        time.sleep(1)
    assert after == before, log
    found = declared.run("check-hosts", "--after-reboot", "--json")
    assert '"since_reboot": []' in found.out, found.out
    second = declared.json("apply-hosts")["hosts"][0]
    assert (second["changed"], second["writes"]) == (0, 0)
