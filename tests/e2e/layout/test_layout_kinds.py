# SPDX-License-Identifier: Apache-2.0
"""Layouts of every kind reach simulated hosts, cost nothing the second time, and come back after a reboot."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.lab.simulated_fixtures import need_simulated
from vgpuctl_lab.simulated.machine import usage
from vgpuctl_lab.simulated.machine.state import State

GPU = "0000:41:00.0"
OVN_CHECKS = ("ovn", "tunnel-mtu", "tunnel-down")
DCGM = "nvidia-dcgm.service"
LAYOUTS: dict[str, dict[str, Any]] = {
    "sim_001": {
        "stop_services": [DCGM],
        "hugepages": {"2MiB": 64},
        "kernel_arguments": ["iommu=pt"],
        "gpus": [
            {
                "match": "all",
                "kind": "mig-vgpu",
                "geometry": {"3g.40gb": 1, "2g.20gb": 2},
                "types": ["H100-3-40C", "H100-2-20C"],
                "shares": {"H100-2-20C": 1},
            }
        ],
    },
    "sim_002": {
        "gpus": [
            {
                "match": "all",
                "kind": "vgpu",
                "size_mode": "mixed-size",
                "scheduler": {"policy": "equal-share", "time_slice_ms": 4},
                "types": ["L40S-16Q", "L40S-8Q"],
                "shares": {"L40S-16Q": 1, "L40S-8Q": 2},
            }
        ]
    },
    "sim_003": {
        "gpus": [
            {
                "match": "all",
                "kind": "host",
                "geometry": {"1c.3g.20gb": 1, "2c.3g.20gb": 1, "1g.5gb": 2},
                "placements": {"3g.20gb": [4]},
            }
        ]
    },
    "sim_004": {
        "gpus": [
            {
                "match": "all",
                "kind": "vf",
                "count": 4,
                "vf_params": ["exec_quantum_ms=20", "preempt_timeout_us=1000", "vram_quota=2GiB"],
                "pf_params": ["exec_quantum_ms=5", "preempt_timeout_us=1000", "sched_priority=normal"],
            }
        ],
        "network": {"southbound": "ssl:192.0.2.1:6642", "tunnels": "10.84.0.0/16"},
        "uplinks": {"provider": "eno2"},
    },
    "sim_005": {
        "gpus": [
            {
                "match": "all",
                "kind": "mig-vgpu",
                "geometry": {"2g.48gb+gfx": 1, "1g.24gb+gfx": 2},
                "size_mode": "mixed-size",
                "shares": {"DC-1-4Q": 2, "DC-1-8Q": 3, "DC-2-24Q": 1},
            }
        ]
    },
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """Five hosts with one GPU each; DCGM holds the H100 of the first."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("kinds")
    fleet = layout_fleet(home, 5, "h100-pcie,l40s,a100-pcie-40gb,flex-170,rtx-pro-6000-blackwell-server")
    fleet.declare(**LAYOUTS)
    fleet.operator.does("create-certificate", "central", "vgpuctl")
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def run(layouts: LayoutFleet, *arguments: str) -> dict[str, Any]:
    done = layouts.operator.run(*arguments, "--json")
    found = json.loads(done.out)
    return {one["host"]: one for one in (found["hosts"] if isinstance(found, dict) else found)}


@pytest.mark.long(
    "tests/unit/planner/layout/test_select_steps.py::"
    "test_a_gpu_that_a_program_has_open_waits_unless_services_are_stopped_for_it",
    "tests/e2e/layout/test_layout_kinds.py::"
    "test_a_switch_of_mig_that_may_end_in_a_reset_waits_for_leave_in_check_and_run",
)
def test_a_gpu_that_a_program_has_open_is_refused_before_anything_is_changed(layouts: LayoutFleet) -> None:
    machine = layouts.machine("sim-003")
    with machine.change() as state:
        usage.start_service(machine.shape, state, "nvidia-dcgm.service")
    before = layouts.states()
    checked = layouts.operator.run("apply-hosts", "--limit", "sim-003", "--check", "--json")
    held = run(layouts, "apply-hosts", "--limit", "sim-003", "--no-boot")["sim-003"]
    assert checked.code == 4 and held["error"]["reference"] == "layout-refused" and held["writes"] == 0
    for one in (held, json.loads(checked.out)["hosts"][0]):
        (failed,) = [line for line in one["lines"] if line["outcome"] == "failed"]
        assert "nv-hostengine (pid " in failed["reason"] and "stop_services" in failed["hint"]
    assert layouts.states() == before
    with machine.change() as state:
        usage.stop_service(state, "nvidia-dcgm.service")


def test_a_switch_of_mig_that_may_end_in_a_reset_waits_for_leave_in_check_and_run(layouts: LayoutFleet) -> None:
    """Somebody uses the GPU whom the host does not show: that the mode stays pending is known only once it is set."""
    machine = layouts.machine("sim-003")
    before = machine.state()
    lab.faults.begin("sim-003", "busy", folder=layouts.folder)
    try:
        for more in (("--check",), ()):
            held = run(layouts, "apply-hosts", "--limit", "sim-003", "--no-boot", *more)["sim-003"]
            assert held["error"]["reference"] == "layout-refused"
            assert ("failed", "--reset allows it") in [(line["outcome"], line["hint"]) for line in held["lines"]]
        assert machine.state().mig_modes == before.mig_modes and held["left"] == []
        refused = run(layouts, "apply-hosts", "--limit", "sim-003", "--no-boot", "--reset")["sim-003"]
    finally:
        lab.faults.clear("sim-003", folder=layouts.folder)
    said = [(line["outcome"], line["reason"]) for line in refused["lines"]]
    assert ("changed", "it waits for a reset") in said
    assert list(machine.state().mig_modes[GPU]) == [False, True]
    assert {"gpu": GPU, "subject": "pending-mig", "before": "False", "after": "True"} in refused["left"]


def test_every_kind_is_reached_proven_and_restored(layouts: LayoutFleet) -> None:
    first = run(layouts, "apply-hosts", "--reset")
    assert {name: one["error"] for name, one in first.items()} == dict.fromkeys(first, None)
    reached = [profile_counts(layouts, name) for name in first]
    on = [True, True]
    assert reached == [([4, 2, 2], 1, on), ([], 3, None), ([4, 1, 1], 0, on), ([], 0, None), ([6, 3, 3], 6, on)]
    states = [layouts.machine(name).state() for name in first]
    assert (states[0].hugepages, states[1].mixed_sizes) == ({"2048": 64}, [GPU])
    assert [one.slice_ns for one in states[1].schedulers.values()] == [4_000_000]
    assert parts(states[2]) == [(0, [1]), (1, [1]), (4, [2, 1])]
    own = json.loads((layouts.machine("sim-003").root / "etc/cdi/vgpuctl.json").read_text())
    assert [one["name"].partition(":")[0][:8] for one in own["devices"]] == ["MIG-GPU-"] * 4 + ["all"]
    second = run(layouts, "apply-hosts")
    assert [(one["changed"], one["writes"]) for one in second.values()] == [(0, 0)] * 5
    for name in first:
        lab.simulated.reboot(name, folder=layouts.folder)
    assert [profile_counts(layouts, name) for name in first] == reached, journal(layouts, "sim-001")
    assert parts(layouts.machine("sim-003").state()) == [(0, [1]), (1, [1]), (4, [2, 1])]
    checked = run(layouts, "check-hosts", "--after-reboot")
    assert {name: one["since_reboot"] for name, one in checked.items()} == {name: [] for name in checked}
    assert [one["has_drifted"] for one in checked.values()] == [False] * 5
    machine = layouts.machine("sim-003")
    with machine.change() as state:
        state.instances[-1].computes.pop()
    checked = run(layouts, "check-hosts", "--after-reboot", "--limit", "sim-003")
    (lost,) = checked["sim-003"]["since_reboot"]
    assert lost["subject"] == "instances" and "1c.3g.20gb + 2c.3g.20gb at 4" in lost["declared"]
    assert run(layouts, "apply-hosts", "--limit", "sim-003")["sim-003"]["changed"] == 1


def test_what_containers_have_goes_to_no_vm_until_apply_hosts_takes_it_from_them(layouts: LayoutFleet) -> None:
    operator, root = layouts.operator, layouts.machine("sim-003").root
    operator.does("create-tenant", "acme")
    small = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
    folder, file = root / "etc/cdi/dir.json", root / "etc/cdi/vgpuctl.json"
    try:
        layouts.declare(**{**LAYOUTS, "sim_003": {"gpus": [{"match": "all", "kind": "passthrough"}]}})
        (explained,) = operator.json("explain-vm", "any", "--gpu", "passthrough:A100", *small)
        (answer,) = [one for one in explained["answers"] if one["host"] == "sim-003"]
        assert answer["code"] == "declared-otherwise" and "/etc/cdi/vgpuctl.json has it" in answer["reason"]
        layouts.declare(**{**LAYOUTS, "sim_003": None})
        checked = run(layouts, "check-hosts", "--limit", "sim-003")["sim-003"]
        assert [one["subject"] for one in checked["findings"] if one["check"] == "container-gpus"] == ["host"]
        layouts.declare(**LAYOUTS)
        reserve = ("reserve", "later", *small[:2], "--gpu", "passthrough:A100", "--limit", "sim-003")
        refused = operator.is_refused(*reserve, "--from", "2091-01-01", "--until", "2091-01-02")
        assert "change `vgpu:` of sim-003" in refused["hint"], "no end of a VM frees it"
        folder.mkdir()
        kept = file.read_bytes()
        applied = run(layouts, "apply-hosts", "--limit", "sim-003")["sim-003"]
        assert (applied["error"], applied["changed"], file.read_bytes()) == (None, 0, kept)
        assert "/etc/cdi/dir.json cannot be read" in json.dumps(applied["lines"])
    finally:
        layouts.declare(**LAYOUTS)
        folder.rmdir()


def test_a_host_is_one_of_ovn_s_chassis_and_what_ails_it_is_found(layouts: LayoutFleet) -> None:
    machine = layouts.machine("sim-004")
    run(layouts, "apply-hosts", "--limit", "sim-004")
    state = machine.state()
    assert state.ovn.external_ids == {
        "system-id": "sim-004",
        "ovn-remote": "ssl:192.0.2.1:6642",
        "ovn-encap-type": "geneve",
        "ovn-encap-ip": "10.84.0.4",
        "ovn-bridge-mappings": "provider:br-provider",
    }
    assert (state.ovn.uses_tls, state.ovn.bridges) == (True, {"br-provider": ["eno2"], "br-int": []})
    key = machine.root / "etc/vgpuctl/ovn/key.pem"
    assert key.stat().st_mode & 0o777 == 0o600
    assert (machine.root / "etc/openvswitch/system-id.conf").read_text() == "sim-004\n"
    with machine.change() as state:
        state.ovn.external_ids["system-id"] = "somebody"
        state.ovn.connection = "not connected"
        state.ovn.tunnels = {"10.84.0.7": 0, "10.84.0.8": 1400, "10.84.0.9": 1500}
    checked = run(layouts, "check-hosts", "--limit", "sim-004")["sim-004"]
    assert checked["has_drifted"]
    assert [(one["check"], one["read"]) for one in checked["findings"] if one["check"] in OVN_CHECKS] == [
        ("ovn", "Open vSwitch's system-id is somebody, the inventory has sim-004"),
        ("ovn", "ovn-controller is not connected with ssl:192.0.2.1:6642"),
        ("tunnel-mtu", "the way to 10.84.0.8 carries 576 bytes and not 1500"),
        ("tunnel-down", "10.84.0.7 does not answer"),
    ]
    repaired = run(layouts, "apply-hosts", "--limit", "sim-004", "--diff")["sim-004"]
    assert repaired["changed"] == 1 and machine.state().ovn.external_ids["system-id"] == "sim-004"


def profile_counts(layouts: LayoutFleet, name: str) -> tuple[list[int], int, Any]:
    """Sizes of the GPU instances, number of vGPUs, MIG mode."""
    state = layouts.machine(name).state()
    sizes = sorted((one.size for one in state.instances), reverse=True)
    mode = state.mig_modes.get(GPU)
    return sizes, len(state.vgpus), list(mode) if mode else None


def parts(state: State) -> list[tuple[int, list[int]]]:
    """Where each GPU instance begins, and the sizes of its compute instances."""
    return sorted((one.start, [part.size for part in one.computes]) for one in state.instances)


def journal(layouts: LayoutFleet, name: str) -> str:
    return (layouts.machine(name).root / "var/log/journal.txt").read_text()


def test_two_hosts_with_one_name_in_ovn_are_both_told_with_both_places(layouts: LayoutFleet) -> None:
    """Also where only one of them is asked for, and apply-hosts gives neither the name."""
    network = {**LAYOUTS["sim_004"]["network"], "chassis": "node"}
    try:
        layouts.declare(sim_004={**LAYOUTS["sim_004"], "network": network}, sim_002={"network": network})
        for command in ("plan-hosts", "check-hosts"):
            done = layouts.operator.run(command, "--limit", "sim-004", "--json")
            assert done.code == (1 if command == "check-hosts" else 4)
            assert "the name in OVN node is also that of sim-002 (" in done.out
            assert "host_vars/sim-002.yml:" in done.out and "host_vars/sim-004.yml:" in done.out
        refused = run(layouts, "apply-hosts", "--limit", "sim-002", "--no-boot")["sim-002"]
        assert "sim-004" in refused["error"]["message"] + json.dumps(refused["error"]) + json.dumps(refused["lines"])
        assert not [line for line in refused["lines"] if line["outcome"] == "changed"]
    finally:
        layouts.declare(**LAYOUTS)
