# SPDX-License-Identifier: Apache-2.0
"""check-hosts on simulated hosts: drift, failures provoked on the machines themselves, and a reboot."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl.planner.doctor import CHECKS
from vgpuctl_lab.simulated.machine import rules, usage
from vgpuctl_lab.simulated.machine.drivers import Drivers
from vgpuctl_lab.simulated.machine.state import MachineFolder

FIRST, SECOND, THIRD, FOURTH = (f"0000:{bus}:00.0" for bus in ("41", "43", "45", "47"))
LINES = {
    "sriov-resources": "pci 0000:41:00.0: not enough MMIO resources for SR-IOV",
    "gpu-in-use": "NVRM: Could not acquire UnbindLock",
    "mig-without-instance": "NVRM: Failed to add vgpu create request: 0x40",
    "no-reset": "vfio-pci 0000:41:00.0: not ready 1023ms after FLR; waiting",
    "access-denied": 'audit: apparmor="DENIED" operation="open" profile="libvirt-x" name="/dev/vfio/5"',
    "memory-lock": "vfio_pin_pages_remote: RLIMIT_MEMLOCK (65536) exceeded",
    "stop-race": "NVRM: Failed to add vgpu delete request: 0x66",
    "fabric": "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 12028, Fatal, Link 32 egress non-posted error",
    "iommu-off": "NVRM: Aborting probe for VF 0000:41:00.4 since IOMMU is not present on the system.",
    "kernel-module": "NVRM: API mismatch: the client has the version 580.105.06, but this kernel module has another",
    "secure-boot": "Loading of module with unavailable key is rejected",
}

FORGED = (
    "2026-11-23 00:00:00.000+0000: starting up libvirt version: 9.0.0",
    "NVRM: requires use of the NVIDIA open kernel modules",
    "error: vmiop_log: failed",
    "qemu-system-x86_64: forged: error getting device from group 14",
)

ON_SIM_002 = {
    ("foreign-driver", FIRST),
    ("wrong-driver", SECOND),
    ("size-conflict", THIRD),
    ("stale-vgpu", THIRD),
    ("driver-without-vgpu", FOURTH),
    ("memory-map", "0000:4d:00.0"),
    ("group-not-isolated", "0000:49:00.0"),
    ("ecc-and-type", "0000:4b:00.0"),
    ("mixed-generations", "host"),
    ("group-open", "host"),
}
ON_SIM_003 = {
    ("mode-pending", FIRST),
    ("mig-without-instance", SECOND),
    ("mixed-size-lost", THIRD),
    ("gpu-in-use", FOURTH),
    ("vgpu-manager", "host"),
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """sim-001 for drift; sim-002 and sim-003 with what can fail, among them an old and a new board."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("checks")
    sick = "a40*2+a40/mdev-vf+a40/passthrough+rtx-3090+tesla-m60+rtx-pro-6000-blackwell-server"
    fleet = layout_fleet(home, 3, f"a40,{sick},h100-pcie*2+l40s+t4")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def findings(layouts: LayoutFleet, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and what --json says of each host."""
    import json

    done = layouts.operator.run("check-hosts", *options, "--json")
    return done.code, {one["host"]: one for one in json.loads(done.out)}


def test_drift_is_exit_code_1_and_gone_after_apply(layouts: LayoutFleet) -> None:
    layouts.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu", "shares": {"A40-8Q": 1}}]})
    shown = layouts.operator.run("check-hosts", "--limit", "sim-001", "--diff")
    assert shown.code == 1 and "sim-001: 3 differences" in shown.out
    assert f"  {FIRST}: virtual-functions\n    - 0\n    + 32" in shown.out
    listed = layouts.operator.json("list-hosts")
    assert [one["layout"] for one in listed] == ["3 differences", None, None]
    layouts.operator.does("apply-hosts", "--limit", "sim-001")
    assert layouts.operator.does("check-hosts", "--limit", "sim-001").out.startswith("sim-001: as declared, healthy")
    code, hosts = findings(layouts, "--limit", "sim-001", "--after-reboot")
    assert code == 1 and [one["subject"] for one in hosts["sim-001"]["since_reboot"]] == ["boot"]
    lab.simulated.reboot("sim-001", folder=layouts.folder)
    layouts.machine("sim-001").reboot()
    code, hosts = findings(layouts, "--limit", "sim-001", "--after-reboot")
    lost = {one["subject"]: (one["declared"], one["found"]) for one in hosts["sim-001"]["since_reboot"]}
    assert code == 1 and lost["vfs"] == ("32", "0") and lost["vgpus"][1] == "none"


def test_failures_provoked_on_the_machine_are_found(layouts: LayoutFleet) -> None:
    layouts.declare(
        sim_002={
            "gpus": [
                {"match": {"board": "A40"}, "kind": "vgpu", "types": ["A40-8Q"]},
                {"match": {"address": "0000:49:00.0"}, "kind": "passthrough", "driver": "vfio-pci"},
                {"match": {"board": "M60"}, "kind": "vgpu", "types": ["M60-1B", "M60-1Q"]},
            ]
        }
    )
    provoke(layouts.machine("sim-002"))
    code, hosts = findings(layouts, "--limit", "sim-002")
    found = {(one["check"], one["subject"]) for one in hosts["sim-002"]["findings"]}
    assert code == 1
    assert found >= ON_SIM_002, ON_SIM_002 - found
    said = {(one["check"], one["read"]) for one in hosts["sim-002"]["findings"]}
    assert {(check, f"kernel: {line}") for check, line in LINES.items()} <= said


def provoke(machine: MachineFolder) -> None:
    """Let everything go wrong that a simulated machine can show."""
    card = next(card for card in machine.shape.cards if card.address == THIRD)
    with machine.change() as state:
        state.drivers[FIRST] = "nouveau"
        state.drivers[SECOND] = "pci-pf-stub"
        state.drivers["0000:49:00.0"] = "vfio-pci"
        Drivers(machine, state).set_vfs(card, 32)
        small = next(one for one in card.types if one.full_name.endswith("A40-4Q"))
        rules.add(state, card, state.vfs_of(card)[0], small, "00000000-0000-4000-8000-00000000000a")
    for line in LINES.values():
        machine.log(line)
    disk = {
        "proc/cpuinfo": "address sizes\t: 39 bits physical, 48 bits virtual\n",
        "etc/libvirt/qemu/web-1.xml": "<domain type='kvm'><name>web-1</name><devices><serial type='pty'>"
        "<log file='/var/log/libvirt/qemu/web-1-serial.log'/></serial></devices></domain>",
        "var/log/libvirt/qemu/web-1.log": "2026-11-23 00:00:00.000+0000: starting up libvirt version: 9.0.0\n"
        "2026-11-23T00:00:01.000000Z qemu-system-x86_64: -device vfio-pci,host=0000:41:00.4: "
        "vfio 0000:41:00.4: error getting device from group 14: Input/output error\n",
        # A tenant's output in the guest does not count as evidence.
        "var/log/libvirt/qemu/web-1-serial.log": "".join(f"{line}\n" for line in FORGED),
    }
    for path, text in disk.items():
        place = machine.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def test_failures_of_modes_and_services_are_found(layouts: LayoutFleet) -> None:
    mig = {"kind": "mig-vgpu", "geometry": {"2g.20gb": 1}}
    layouts.declare(
        sim_003={
            "gpus": [
                {"match": {"address": FIRST}, **mig},
                {"match": {"address": SECOND}, **mig},
                {"match": {"board": "L40S"}, "kind": "vgpu", "size_mode": "mixed-size"},
                {"match": {"board": "T4"}, "kind": "vgpu"},
            ]
        }
    )
    machine = layouts.machine("sim-003")
    with machine.change() as state:
        state.mig_modes[FIRST] = (False, True)
        state.mig_modes[SECOND] = (True, True)
        card = next(one for one in machine.shape.cards if one.address == THIRD)
        Drivers(machine, state).set_vfs(card, card.total_vfs)
        usage.start_service(machine.shape, state, "nvidia-dcgm.service")
        usage.stop_service(state, "nvidia-vgpu-mgr.service")
    code, hosts = findings(layouts, "--limit", "sim-003")
    found = {(one["check"], one["subject"]) for one in hosts["sim-003"]["findings"]}
    assert code == 1 and found >= ON_SIM_003, ON_SIM_003 - found


def test_every_failure_mode_is_provoked_here() -> None:
    provoked = {check for check, _ in ON_SIM_002 | ON_SIM_003} | set(LINES)
    assert provoked == {check.id for check in CHECKS if check.row}


def test_a_kernel_without_the_module_is_found(layouts: LayoutFleet) -> None:
    machine, kernel = layouts.machine("sim-001"), layouts.operator.json("inspect-host", "sim-001")["kernel"]
    listed = machine.root / "lib/modules" / kernel / "modules.dep"
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("kernel/drivers/vfio/vfio.ko:\n")
    with machine.change() as state:
        state.drivers[FIRST] = None
    code, hosts = findings(layouts, "--limit", "sim-001")
    read = [one["read"] for one in hosts["sim-001"]["findings"] if one["check"] == "kernel-module"]
    assert code == 1 and read == [f"/lib/modules/{kernel}/modules.dep lists no nvidia.ko"]
    listed.write_text("kernel/drivers/vfio/vfio.ko:\nupdates/dkms/nvidia.ko:\n")
    code, hosts = findings(layouts, "--limit", "sim-001")
    assert "kernel-module" not in {one["check"] for one in hosts["sim-001"]["findings"]}


def test_a_host_that_does_not_answer_is_no_drift(layouts: LayoutFleet) -> None:
    inventory = layouts.operator.inventory / "hosts.yml"
    text = inventory.read_text()
    try:
        inventory.write_text(text.replace("ansible_port:", "ansible_port: 9 #", 1))
        refused = layouts.operator.is_refused("check-hosts", "--limit", "sim-001")
        code, hosts = findings(layouts)
        shown = layouts.operator.run("check-hosts").out
    finally:
        inventory.write_text(text)
    assert refused["exit_code"] == 4 and refused["reference"] == "host-unreachable"
    assert code == 10 and hosts["sim-001"]["error"]["reference"] == "host-unreachable"
    assert {name for name, one in hosts.items() if one["findings"]} == {"sim-002", "sim-003"}
    assert shown.startswith("sim-001: no connection to ")
