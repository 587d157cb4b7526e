# SPDX-License-Identifier: Apache-2.0
"""The reboot contract on the host with a real kernel: VFs, mdevs and types are back, and the controller starts the VM.

The agent restores them at boot, before libvirt is up.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.operate.test_watched_hosts import controller, soon, vm
from tests.e2e.operator import Operator
from tests.e2e.witness import Witness

pytestmark = [
    pytest.mark.kernel_lab,
    pytest.mark.long(
        "tests/e2e/layout/test_after_reboot.py::test_layout_and_shares_are_back_before_a_vm_starts",
        "tests/lab/test_lab_up.py::test_reboot_loses_devices_and_keeps_the_disk",
    ),
]

PROFILE, MDEV_VF, PLAIN = "0000:01:00.0", "0000:02:00.0", "0000:05:00.0"
LAYOUT = {
    "version": 1,
    "gpus": [
        {"match": {"address": PROFILE}, "kind": "vgpu"},
        {"match": {"address": MDEV_VF}, "kind": "vgpu", "shares": {"A40-4Q": 1}},
        {"match": {"address": PLAIN}, "kind": "vf", "count": 4},
    ],
}
_UNINSTALL = """
rm -rf /etc/vgpuctl/* /etc/systemd/system/vgpuctl-restore.service
rm -f /etc/systemd/system/multi-user.target.wants/vgpuctl-restore.service
for mdev in /sys/bus/mdev/devices/*; do [ ! -e "$mdev" ] || echo 1 >"$mdev/remove"; done
"""


@pytest.fixture
def declared(operator: Operator, kernel_host: Any) -> Iterator[Operator]:
    """The operator with a layout of the host; what was installed on it goes afterwards."""
    folder = operator.inventory.parent / "host_vars"
    folder.mkdir()
    (folder / "gpu1.yml").write_text(yaml.safe_dump({"vgpu": LAYOUT}))
    yield operator
    operator.run("delete-vm", "kept", "--tenant", "acme", "--yes", "--timeout", "0")
    (folder / "gpu1.yml").unlink()
    # The VFs stay: the tests that come next want them, and libvirt needs long for each set of them.
    code, _, errors = kernel_host.run(_UNINSTALL)
    assert code == 0, errors


def events(operator: Operator) -> list[tuple[str, str, str]]:
    found = operator.json("list-events", "--limit", "1000")
    return [(one["kind"], one["subject"], one["actor"]["command"]) for one in found]


def test_layout_and_shares_are_back_before_the_vm_starts(
    declared: Operator, kernel_host: Any, witness: Witness
) -> None:
    declared.does("apply-hosts")
    declared.does("create-tenant", "acme")
    size = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB", "--base-image", "idle")
    declared.does("create-vm", "kept", "--tenant", "acme", "--gpu", "A40-8Q", *size, "--autostart")
    before = witness.state()
    assert {"mdev", "vgpu", "domain"} <= {line.split()[0] for line in before}
    declared.run("check-hosts", "--snapshot")
    with controller(declared, ("-m", "vgpuctl")):
        soon(lambda: vm(declared)["shares"][0]["state"] == "held")
        kernel_host.reboot()
        log = witness.run("cat /run/vgpuctl-restore.log")
        assert "the layout is restored" in log
        started = ("vm-started", "acme/kept", "controller")
        soon(lambda: started in events(declared))
    assert witness.state() == before, log
    assert {"layout-not-restored", "share-not-restored"}.isdisjoint(kind for kind, *_ in events(declared))
    (found,) = declared.json("check-hosts", "--after-reboot")
    assert found["since_reboot"] == []
    assert [one["check"] for one in found["findings"] if one["severity"] == "error"] == []
    second = declared.json("apply-hosts")["hosts"][0]
    assert (second["changed"], second["writes"]) == (0, 0)
