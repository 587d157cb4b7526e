# SPDX-License-Identifier: Apache-2.0
"""The Ansible collection, run by real ansible-core over simulated hosts: check mode, diff, and no second change."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.warm_start import warm_start
from tests.lab.simulated_fixtures import need_simulated

ROOT = Path(__file__).parents[3]
PLAYBOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    executable: "{{ lookup('env', 'WRAPPER') }}"
    spec: {gpus: [T4-2Q], memory: 96MiB, vcpus: 1, network: front}
  tasks:
    - &layout
      vgpuctl.vgpuctl.vgpu_layout: {executable: "{{ executable }}", limit: sim-001, boot: false}
      check_mode: true
      diff: true
    - {<<: *layout, check_mode: false, diff: false}
    - *layout
    - &vm
      vgpuctl.vgpuctl.vgpu_vm: {executable: "{{ executable }}", name: web-1, tenant: acme, spec: "{{ spec }}"}
      check_mode: true
      diff: true
    - {<<: *vm, check_mode: false, diff: false}
    - *vm
    - &stopped
      vgpuctl.vgpuctl.vgpu_vm: &stop
        {executable: "{{ executable }}", name: web-1, tenant: acme, state: stopped, timeout: 0}
      check_mode: true
      diff: true
    - {<<: *stopped, check_mode: false, diff: false}
    - *stopped
    - &started
      vgpuctl.vgpuctl.vgpu_vm: {<<: *stop, state: started, spec: "{{ spec }}"}
      check_mode: true
      diff: true
    - {<<: *started, check_mode: false, diff: false}
    - *started
    - vgpuctl.vgpuctl.vgpu_vm: {<<: *stop, state: absent}
      check_mode: true
      diff: true
    - vgpuctl.vgpuctl.vgpu_info: {executable: "{{ executable }}", gather: [vms, gpus]}
      check_mode: true
    - vgpuctl.vgpuctl.vgpu_vm: {executable: "{{ executable }}", name: web-2, tenant: nobody}
      ignore_errors: true
"""
UNDONE = """
- hosts: localhost
  gather_facts: false
  module_defaults:
    group/vgpuctl.vgpuctl.all: {inventory: "{{ ansible_inventory_sources }}"}
  tasks:
    - vgpuctl.vgpuctl.vgpu_quarantine: {host: gpu2, gpu: "0000:41:00.0", state: released, reason: new fan}
    - vgpuctl.vgpuctl.vgpu_host: {host: gpu2, state: open}
    - vgpuctl.vgpuctl.vgpu_vm: {name: web-1, tenant: acme, state: absent, timeout: 0}
    - vgpuctl.vgpuctl.vgpu_network: {name: front, tenant: acme, state: absent}
    - vgpuctl.vgpuctl.vgpu_image: {name: debian-13, state: absent}
    - vgpuctl.vgpuctl.vgpu_tenant: {name: acme, state: absent}
"""
REFUSED = """
- hosts: localhost
  gather_facts: false
  ignore_errors: true
  module_defaults:
    group/vgpuctl.vgpuctl.all: {inventory: "{{ ansible_inventory_sources }}"}
  tasks:
    - vgpuctl.vgpuctl.vgpu_tenant: {name: acme, quota: {vms: 20, shares:A40-8Q: 4}, grace: 0}
      check_mode: true
    - vgpuctl.vgpuctl.vgpu_host: {host: gpu1, gpu: "0000:41:00.0", state: cordoned, reason: fan is loud}
      check_mode: true
    - vgpuctl.vgpuctl.vgpu_network: {name: front, tenant: acme, cidr: 10.0.1.0/24, host: gpu1}
    - vgpuctl.vgpuctl.vgpu_tenant: {name: acme, host_pools: [research]}
    - vgpuctl.vgpuctl.vgpu_host: {host: gpu1, gpu: "0000:41:00.0", state: drained, reason: fan is loud}
"""


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """One host with a T4, and a tenant."""
    need_simulated()
    home: Path = tmp_path_factory.mktemp("ansible")
    fleet = layout_fleet(home, 1, "t4")
    try:
        fleet.operator.does("create-tenant", "acme")
        network = ("create-network", "front", "--tenant", "acme", "--cidr", "10.0.0.0/24", "--host", "sim-001")
        fleet.operator.does(*network)
        fleet.declare(sim_001={"gpus": [{"match": "all", "kind": "vgpu", "scheduler": {"policy": "equal-share"}}]})
        (home / "play.yml").write_text(PLAYBOOK)
        warm_start().write_command(home / "vgpuctl")
        yield fleet
    finally:
        lab.simulated.down(folder=fleet.folder)


def ansible(fleet: LayoutFleet, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of ansible's programs with the collection of this checkout."""
    home = fleet.operator.home
    environment = {
        **{name: value for name, value in fleet.operator.environment.items() if name != "PYTHONWARNINGS"},
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT),
        "ANSIBLE_HOME": str(home / "ansible"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "LC_ALL": "C.UTF-8",
        "WRAPPER": str(home / "vgpuctl"),
        "PATH": f"{home}:{fleet.operator.environment['PATH']}",
    }
    return subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def answers(out: str) -> list[dict[str, Any]]:
    """The tasks' answers in ansible's minimal output."""
    found = re.finditer(r"^localhost \| \w+!? => (?={)", out, re.MULTILINE)
    return [json.JSONDecoder().raw_decode(out, match.end())[0] for match in found]


def test_a_playbook_reaches_its_end_and_then_changes_nothing(layouts: LayoutFleet) -> None:
    done = ansible(layouts, "ansible-playbook", "play.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    *changes, info, refused = answers(done.stdout)
    assert [answer["changed"] for answer in changes] == [True, True, False] * 4 + [True]
    assert done.stdout.count("-0000:41:00.0: scheduler: best-effort\n+0000:41:00.0: scheduler: equal-share\n") == 1
    states = re.findall(r"^-state: (\w+)\n\+state: (\w+)$", done.stdout, re.MULTILINE)
    assert states == [("absent", "running"), ("running", "stopped"), ("stopped", "running"), ("running", "absent")]
    dry, created, again = changes[3:6]
    assert (dry["vm"], dry["leases"]) == (None, []) and again["vm"] == created["vm"]
    # In check mode the answer is what is there.
    assert [one["vm"]["state"] for one in changes[6:12]] == ["running", *["stopped"] * 3, *["running"] * 2]
    (vm,) = info["vgpuctl"]["vms"]
    assert (vm["vm"]["request"], vm["vm"]["state"]) == (created["vm"]["request"], "running")
    assert [one["share"] for one in vm["leases"]] == [one["share"] for one in created["leases"]]
    assert [gpu["gpu"]["address"] for gpu in info["vgpuctl"]["gpus"]] == ["0000:41:00.0"]
    assert refused["reference"] == "not-found" and "nobody" in refused["msg"]
    (vgpu,) = layouts.machine("sim-001").state().vgpus
    assert vgpu.uuid == created["leases"][0]["share"]["mdev_uuid"]


def test_tenants_vms_are_hosts_of_an_inventory(layouts: LayoutFleet) -> None:
    listed = inventory(layouts, "keyed_groups:\n- {key: 'vgpuctl_shares[0].profile', prefix: has}\n")
    hosts = [listed[group]["hosts"] for group in ("tenant_acme", "on_sim_001", "state_running", "has_T4_2Q")]
    assert hosts == [["acme.web-1"]] * 4
    variables = listed["_meta"]["hostvars"]["acme.web-1"]
    names = ("vgpuctl_host", "vgpuctl_vm", "ansible_host")
    assert [_text(variables[name]) for name in names] == ["sim-001", "web-1", "10.0.0.2"]


def test_a_vm_is_made_absent(layouts: LayoutFleet) -> None:
    words = f"name=web-1 tenant=acme state=absent timeout=0 executable={layouts.operator.home}/vgpuctl"
    done = ansible(layouts, "ansible", "localhost", "-c", "local", "-m", "vgpuctl.vgpuctl.vgpu_vm", "-a", words)
    (answer,) = answers(done.stdout)
    assert answer["changed"] and answer["vm"] is None
    assert layouts.machine("sim-001").state().vgpus == []


@pytest.fixture
def documented(tmp_path: Path) -> Iterator[LayoutFleet]:
    """The hosts of docs/ansible.md."""
    need_simulated()
    fleet = layout_fleet(tmp_path, 2, "a40")
    try:
        hosts = fleet.operator.inventory / "hosts.yml"
        renamed = hosts.read_text().replace("simulated_hosts:", "gpu_hosts:")
        hosts.write_text(re.sub(r"sim-00(\d):", r"gpu\1:", renamed))
        layout = {"gpus": [{"match": "all", "kind": "vgpu"}]}
        fleet.declare(gpu1=layout, gpu2=layout)
        warm_start().write_command(tmp_path / "vgpuctl")
        yield fleet
    finally:
        lab.simulated.down(folder=fleet.folder)


_EVERY_STAGE = pytest.mark.long(
    "tests/e2e/operate/test_ansible_collection.py::test_the_plays_of_the_page_reach_their_end_and_then_change_nothing",
    "tests/e2e/operate/test_ansible_collection.py::test_a_playbook_reaches_its_end_and_then_changes_nothing",
)


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param(("plan", "plan-undo", "refused", "undo", "undo-again"), id="done and again"),
        pytest.param((), id="every stage", marks=_EVERY_STAGE),
    ],
)
def test_the_plays_of_the_page_reach_their_end_and_then_change_nothing(
    documented: LayoutFleet, left_out: tuple[str, ...]
) -> None:
    page = (ROOT / "docs/ansible.md").read_text()
    plays = yaml.safe_load("".join(re.findall(r"^```yaml\n(- hosts:.*?)^```$", page, re.MULTILINE | re.DOTALL)))
    needs_nothing = {f"vgpuctl.vgpuctl.vgpu_{name}" for name in ("tenant", "image", "host", "quarantine")}
    alone = [
        {**play, "check_mode": True, "tasks": [task for task in play["tasks"] if needs_nothing & task.keys()]}
        for play in plays
    ]
    (undo,) = yaml.safe_load(UNDONE)
    stages = {
        "plan": alone,
        "do": plays,
        "plan-undo": [{**undo, "check_mode": True, "diff": True, "ignore_errors": True}],
        "again": plays,
        "refused": yaml.safe_load(REFUSED),
        "undo": [undo],
        "undo-again": [{**undo, "diff": True}],
    }
    for name in left_out:
        del stages[name]
    for name, stage in stages.items():
        (documented.operator.home / f"{name}.yml").write_text(yaml.safe_dump(stage, sort_keys=False))
    files = [f"{name}.yml" for name in stages]
    done = ansible(documented, "ansible-playbook", "-i", str(documented.operator.inventory), *files)
    assert done.returncode == 0, done.stdout + done.stderr
    left = iter(answers(done.stdout))
    told = {name: [next(left) for play in stage for _task in play["tasks"]] for name, stage in stages.items()}
    changed = {name: [answer.get("changed", False) for answer in stage] for name, stage in told.items()}
    expected = {
        "plan": [True] * 4,
        "do": [*[True] * 5, False, False, True, True],
        "plan-undo": [True, True, True, False, True, True],
        "again": [False] * 9,
        "refused": [True, True, False, False, False],
        "undo": [True] * 6,
        "undo-again": [False] * 6,
    }
    assert changed == {name: expected[name] for name in stages}
    assert told["do"][6]["msg"] == {"web-1": "gpu1"}
    if left_out:
        return
    states = re.findall(r"^-state: (\w+)\n\+state: (\w+)$", done.stdout, re.MULTILINE)
    assert states == [("running", "absent"), ("present", "absent"), ("present", "absent")]
    assert told["plan-undo"][3]["reference"] == "network-in-use"
    _quota, _cordon, differs, no_pool, no_gpu = told["refused"]
    assert (differs["reference"], no_pool["reference"]) == ("network-differs", "not-found")
    assert "10.0.1.0/24" in differs["msg"] and "delete it first" in differs["hint"] and differs["rc"] > 1
    assert "leave gpu out" in no_gpu["msg"]


def _text(value: Any) -> Any:
    """Text of a plugin, which ansible from 2.19 on marks as no template."""
    return value["__ansible_unsafe"] if isinstance(value, dict) else value


def inventory(fleet: LayoutFleet, text: str) -> dict[str, Any]:
    """The plugin's listing in ansible-inventory."""
    file = fleet.operator.home / "tenants.vgpuctl.yml"
    file.write_text(f"plugin: vgpuctl.vgpuctl.vms\n{text}executable: {fleet.operator.home}/vgpuctl\n")
    done = ansible(fleet, "ansible-inventory", "-i", str(file), "--list")
    assert done.returncode == 0, done.stdout + done.stderr
    listed: dict[str, Any] = json.loads(done.stdout)
    return listed
