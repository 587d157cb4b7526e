# SPDX-License-Identifier: Apache-2.0
"""The examples of commands for hosts, their layout and their maintenance."""

from collections.abc import Callable, Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.examples.scene import Run, Scene, Stage, commands_of, file, play, scene
from tests.e2e.examples.stage import SMALL, NamedFleet, named_fleet, stage, variables
from tests.e2e.libvirt_of import libvirt_of
from tests.lab.simulated_fixtures import machine
from vgpuctl_lab.simulated.machine import rules

__all__ = ["named_fleet", "stage", "variables"]

HOSTS, CARD = 3, "a40/mdev-vf"
WEB_1 = f"create-vm acme/web-1 {SMALL} --limit gpu1 --gpu A40-8Q"
DB_2 = "create-vm acme/db-2 --memory 96MiB --vcpus 1 --network none --limit gpu2 --gpu A40-8Q"
GPU = "0000:41:00.0"
MDEV = "00000000-0000-4000-8000-00000000000a"
DOMAIN = (
    "<domain type='kvm'><name>desk</name><memory unit='MiB'>96</memory><vcpu>1</vcpu>"
    "<os><type arch='x86_64' machine='q35'>hvm</type></os><devices><hostdev mode='subsystem' type='mdev' "
    f"model='vfio-pci'><source><address uuid='{MDEV}'/></source></hostdev></devices></domain>"
)
MIG_PARTED = "version: v1\nmig-configs: {plain: [{devices: all, mig-enabled: false}]}\n"
EVENTS = "list-events -o json"


def declare(host: str, gpus: str) -> Callable[[Stage], None]:
    """A preparation that declares the layout of a host, or of all by `gpu_hosts`."""
    folder = "group_vars" if host == "gpu_hosts" else "host_vars"
    return file(f"inventory/{folder}/{host}.yml", f"vgpu: {{version: 1, gpus: [{gpus}]}}\n")


SHARES = declare("gpu_hosts", "{match: all, kind: vgpu, shares: {A40-8Q: 2}}")


def cut_off(stage: Stage) -> None:
    """Let gpu2 lose its power."""
    lab.faults.begin("sim-002", "power-off", folder=stage.lab_folder)


def run_domain(stage: Stage) -> None:
    """A domain with a vGPU on gpu2, as an operator without vgpuctl makes it."""
    assert stage.lab_folder is not None
    there = machine(stage.lab_folder, "sim-002")
    (card,) = there.shape.cards
    with there.change() as state:
        eight = next(one for one in card.types if one.full_name.endswith("A40-8Q"))
        rules.add(state, card, state.vfs_of(card)[0], eight, MDEV)
    with libvirt_of(stage.operator.inventory, "gpu2") as libvirt:
        libvirt.define(DOMAIN)
        libvirt.start("desk")


def forget_vms(stage: Stage) -> None:
    """A store that does not know what is on the hosts."""
    (stage.folder / "store.db").rename(stage.folder / "known.db")
    stage.does("create-tenant acme")


SCENES: dict[str, Scene] = {
    "show-inventory": scene(Run("gpu_hosts"), Run('"gpu2"')),
    "list-hosts": scene(Run("gpu3"), Run("gpu3")),
    "inspect-host": scene(Run("A40"), Run('"readings"')),
    "list-gpus": scene(Run("gpu3"), Run("gpu1")),
    "show-gpu": scene(Run("A40"), Run(GPU)),
    "list-profiles": scene(Run("A40-8Q"), Run("A40-8Q")),
    "list-partitions": scene(Run("gpu1, gpu2, gpu3: no NVSwitch"), Run("gpu1: no NVSwitch")),
    "check-hosts": scene(Run("gpu3"), Run("gpu1"), first=("apply-hosts",)),
    "record-host": scene(Run("gpu1.capture.json.gz"), Run("gpu1.capture.json.gz")),
    "adopt-host": scene(
        Run("desk", then={"list-vms -A -o name": "!desk"}),
        Run("desk", then={"list-vms -A -o name": "acme/desk"}),
        first=(run_domain,),
    ),
    "plan-hosts": scene(Run("3 hosts: "), Run("gpu1")),
    "apply-hosts": scene(Run("gpu1"), Run("gpu3", then={"plan-hosts": "3 hosts: "})),
    "import-layout": scene(
        Run("gpus"),
        Run("gpus"),
        first=(file("config.yaml", MIG_PARTED), SHARES, "export layout gpu1 --for mdevctl --to mdevctl.d"),
    ),
    "export layout": scene(
        Run("mig-configs", first=(declare("gpu1", "{match: all, kind: off}"),)),
        Run("mdevctl.d/", first=(declare("gpu1", "{match: all, kind: vgpu, shares: {A40-8Q: 2}}"),)),
    ),
    "export nova": scene(Run("CUSTOM_VGPU_A40_8Q"), Run("nova/gpu1.conf"), first=(SHARES,)),
    "export proxmox": scene(Run("A40"), Run("proxmox")),
    "export kubevirt": scene(Run("permittedHostDevices"), Run("A40-8Q"), first=(SHARES,)),
    "cordon-host": scene(
        Run("gpu1", then={"list-hosts --cached": "it is cordoned: new firmware"}),
        Run("gpu1", then={"list-gpus": "fan is loud"}),
    ),
    "uncordon-host": scene(
        Run("gpu1", then={"list-hosts --cached": "!new firmware"}),
        Run("gpu1", then={"list-gpus": "!fan is loud"}),
        first=("cordon-host gpu1 --reason 'new firmware'", f"cordon-host gpu1 --gpu {GPU} --reason 'fan is loud'"),
    ),
    "drain-host": scene(
        Run("web-1", then={"list-vms -A --columns vm,host -o csv": "gpu1"}),
        Run("web-1", then={"list-vms -A --columns vm,host -o csv": "!gpu1"}),
        first=(WEB_1,),
    ),
    "evacuate-host": scene(
        Run("db-2", then={"list-vms -A --columns vm,host -o csv": "gpu2"}),
        Run("db-2", then={"list-vms -A --columns vm,host -o csv": "!gpu2"}),
        first=(DB_2, cut_off),
    ),
    "forget-host": scene(
        Run("db-2", then={"list-vms -A -o name": "db-2"}),
        Run("db-2", then={"list-vms -A -o name": "!db-2"}),
        first=(DB_2, cut_off),
    ),
    "plan-upgrade": scene(Run("gpu1"), Run("gpu1"), first=(WEB_1,)),
    "quarantine-gpu": scene(Run("gpu1", then={"list-gpus": "in quarantine: smells"}), Run("gpu1")),
    "unquarantine-gpu": scene(
        Run("gpu1", then={"list-gpus": "!quarantine"}),
        Run("gpu1"),
        first=(f"quarantine-gpu gpu1 {GPU} --reason smells",),
    ),
    "gc": scene(
        Run("acme.db-2", then={"gc --dry-run": "acme.web-1"}),
        Run("acme.web-1", then={"gc --dry-run": "!acme.web-1"}),
        first=(WEB_1, DB_2, "stop-vm --all -t acme --yes --timeout 0", forget_vms),
    ),
}


@pytest.fixture(autouse=True)
def healed(named_fleet: NamedFleet, stage: Stage) -> Iterator[None]:
    """After a test every host answers, and has nothing that no store knows."""
    yield
    was_cut_off = lab.faults.clear("sim-002", folder=named_fleet.folder)
    if was_cut_off or (stage.folder / "known.db").exists():
        named_fleet.operator.does("gc", "--yes")
    if was_cut_off:  # a start without power loses the VFs
        named_fleet.operator.does("apply-hosts", "--limit", "gpu2")


_SHORTER = pytest.mark.long(
    "tests/unit/cli/test_examples.py::test_a_command_has_two_examples_that_it_takes",
    "tests/e2e/host/test_check_hosts.py::test_drift_is_exit_code_1_and_gone_after_apply",
    "tests/e2e/layout/test_apply_hosts.py::test_every_host_reaches_its_layout_and_the_second_run_writes_nothing",
    "tests/e2e/maintenance/test_drain_host.py::test_a_host_is_planned_drained_kept_empty_and_taken_back",
    "tests/e2e/maintenance/test_dead_host.py::test_a_dead_host_is_fenced_evacuated_forgotten_and_trusted_again",
    "tests/e2e/maintenance/test_gc.py::test_what_the_store_forgot_is_shown_and_taken_away_and_what_runs_stays",
    "tests/e2e/maintenance/test_plan_upgrade.py::test_a_plan_names_order_vms_and_guests_and_changes_nothing",
)
_SLOW = ("apply-hosts", "check-hosts", "drain-host", "evacuate-host", "gc", "plan-upgrade")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=_SHORTER if name in _SLOW else ())
        for name in commands_of("host", "layout", "maintenance")
    ],
)
def test_the_examples_of_a_command_do_what_they_say(stage: Stage, name: str) -> None:
    play(stage, name, SCENES[name])
