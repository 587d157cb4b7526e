# SPDX-License-Identifier: Apache-2.0
"""The main job on a host with a real kernel: VMs of two tenants, one per sharing kind, made once for the file."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.simulated import VM, Machine
from tests.e2e.guest_console import sit_until, wait_for_words
from tests.e2e.operator import Operator, forgetful
from tests.e2e.witness import Witness
from tests.lab_fixtures import KernelHost
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.wire.envelope import Request
from vgpuctl.agent.wire.readings import HostReadings, Measured
from vgpuctl.agent.wire.sharing import CreateMdev, SetVfProfile
from vgpuctl.usecases.observed.fleet_reader import read_fleet
from vgpuctl.wiring import Settings, open_services
from vgpuctl_lab.simulated.machine.domains import HostDevice, start

pytestmark = pytest.mark.kernel_lab

# `idle.img` lists its PCI functions and halts, so that guests cost the emulated host nothing.
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "4MiB", "--base-image", "idle")
VMS = {
    "acme.web-1": ("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", *SIZE),
    "umbrella.web-1": ("create-vm", "web-1", "--tenant", "umbrella", "--gpu", "A40-24Q", *SIZE),
    "acme.desks": ("create-vm", "desks", "--tenant", "acme", "--gpu", "2*T4-2Q", *SIZE),
    "umbrella.whole": ("create-vm", "whole", "--tenant", "umbrella", "--gpu", "passthrough", *SIZE),
    "acme.plain": ("create-vm", "plain", "--tenant", "acme", "--gpu", "vf", *SIZE),
}
KINDS = {"acme.web-1": {"vf-profile", "mdev-vf"}, "umbrella.web-1": {"vf-profile", "mdev-vf"}}
KINDS |= {"acme.desks": {"mdev"}, "umbrella.whole": {"passthrough"}, "acme.plain": {"vf"}}


@pytest.fixture(scope="module")
def before(witness: Witness) -> list[str]:
    return witness.state()


@pytest.fixture(scope="module")
def created(operator: Operator, before: list[str]) -> Iterator[dict[str, Any]]:
    for tenant in ("acme", "umbrella"):
        operator.does("create-tenant", tenant)
    yield {name: operator.json(*arguments)[0] for name, arguments in VMS.items()}
    for name in VMS:
        tenant, _, vm = name.partition(".")
        operator.does("delete-vm", vm, "--tenant", tenant, "--yes", "--timeout", "0", "--if-exists")


@pytest.fixture(scope="module")
def state_then(created: dict[str, Any], witness: Witness) -> list[str]:
    """What the witness saw when all VMs had been created."""
    return witness.state()


@pytest.fixture(scope="module")
def holders_then(created: dict[str, Any], witness: Witness) -> dict[str, str]:
    """The VM whose QEMU held each IOMMU group when all VMs had been created."""
    return witness.holders()


def _leases(created: dict[str, Any], name: str) -> list[dict[str, Any]]:
    leases: list[dict[str, Any]] = created[name]["leases"]
    return leases


def _device(lease: dict[str, Any]) -> str:
    return str(lease["share"]["mdev_uuid"] or lease["share"]["function"])


def simulated_readings(folder: Path, interface: str) -> HostReadings:
    """The readings of a simulated host whose A40 serves one running VM."""
    machine = Machine(folder / "simulated", f"a40/{interface}", with_vfs=True)
    vf = machine.gpu().vfs[0].address
    type_id = machine.type_id("A40-8Q")
    if interface == "mdev-vf":
        uuid = "22222222-2222-4333-8444-555555555555"
        machine.done(CreateMdev(vf, f"nvidia-{type_id}", uuid))
        device = HostDevice(uuid=uuid)
    else:
        machine.done(SetVfProfile(vf, type_id))
        device = HostDevice(function=vf)
    disk = "<devices><disk><target dev='vda'/></disk></devices>"
    xml = f"<domain type='kvm'><name>acme.web-1</name><uuid>{VM}</uuid><memory>98304</memory>{disk}</domain>"
    start(machine.files, VM, "acme.web-1", [device], xml=xml)
    readings = answer(machine.host, Request("readings")).readings
    assert readings is not None
    return readings


def complete_readings(operator: Operator, is_complete: Callable[[HostReadings], bool]) -> HostReadings:
    """The readings of the host through its agent. A scenario's Xids come some seconds after its start."""
    with open_services(Settings([str(operator.inventory)], operator.database), print) as services:
        for _ in range(20):
            [read] = read_fleet(services, ["gpu1"])
            assert read.error is None
            assert read.readings is not None
            if is_complete(read.readings):
                return read.readings
            unread = read.readings.unread
    pytest.fail(f"no reading is complete; the last one was without: {unread}")


def told(measured: Measured) -> tuple[set[str], set[tuple[str, str]]]:
    """The measures that have a value, and those that have none with the kind of reason."""
    missing = {(name, kind) for name, kind, _ in measured.missing}
    # The simulated host has no Xid.
    return {name for name, _, _ in measured.values} - {"xid"}, missing


@pytest.mark.parametrize("name", VMS)
def test_every_kind_of_sharing_gives_a_running_vm(created: dict[str, Any], name: str, state_then: list[str]) -> None:
    assert created[name]["changed"]
    assert created[name]["vm"]["state"] == "running"
    assert {lease["share"]["sharing"] for lease in _leases(created, name)} <= KINDS[name]
    assert f"domain {name} running" in state_then


def test_the_two_boards_of_one_model_offer_both_interfaces(created: dict[str, Any]) -> None:
    kinds = {_leases(created, name)[0]["share"]["sharing"] for name in ("acme.web-1", "umbrella.web-1")}
    assert kinds == {"vf-profile", "mdev-vf"}


@pytest.mark.parametrize("name", VMS)
def test_the_kernel_says_that_this_vms_qemu_holds_the_device(
    created: dict[str, Any], name: str, witness: Witness, holders_then: dict[str, str]
) -> None:
    for lease in _leases(created, name):
        assert holders_then[witness.group_of(_device(lease))] == created[name]["vm"]["uuid"]


_OTHER_BOARD = pytest.mark.long("tests/e2e/vm/test_create_vm.py::test_qemu_shows_the_guest_an_nvidia_device_per_share")


@pytest.mark.parametrize(
    ("name", "devices"),
    [("acme.web-1", 1), pytest.param("umbrella.web-1", 1, marks=_OTHER_BOARD), ("acme.desks", 2)],
)
def test_qemu_shows_the_guest_an_nvidia_device_per_share(
    created: dict[str, Any], name: str, devices: int, operator: Operator
) -> None:
    tenant, _, vm = name.partition(".")
    shown = operator.json("show-vm", vm, "--tenant", tenant)
    assert shown["domain_state"] == "running"
    nvidia = [device for device in shown["guest_devices"] if device["vendor_id"] == "10de"]
    assert len(nvidia) == devices
    assert [holders[0]["vm_uuid"] for holders in shown["holders"]] == [created[name]["vm"]["uuid"]] * devices


@pytest.mark.long(
    "tests/lab/agreement/test_same_readings.py::test_both_libraries_tell_the_agent_the_same_measures",
    "tests/e2e/host/test_host_readings.py::test_a_scenario_is_played_seen_and_stopped",
)
def test_every_measure_is_read_as_on_a_simulated_host(
    created: dict[str, Any], operator: Operator, kernel_host: KernelHost, tmp_path: Path
) -> None:
    lease = _leases(created, "acme.web-1")[0]
    simulated = simulated_readings(tmp_path, lease["share"]["sharing"])
    scenario = tmp_path / "busy.yml"
    scenario.write_text(
        "about: A busy vGPU on a warm GPU, and two Xids\ncurves:\n"
        f"- {{target: 'vgpu:{_device(lease)}', measure: utilization_ratio, points: {{0s: 75%}}}}\n"
        f"- {{target: 'vgpu:{_device(lease)}', measure: encoder_sessions, points: {{0s: 2}}}}\n"
        f"- {{target: 'gpu:{lease['share']['gpu']}', measure: temperature_celsius, points: {{0s: 71}}}}\n"
        f"- {{target: 'gpu:{lease['share']['gpu']}', measure: xid/63, points: {{0s: 0, 1s: 2}}}}\n"
    )
    play = ("lab", "--folder", str(kernel_host.folder.path), "play", "gpu1")
    assert len(operator.json(*play, str(scenario))) == len(operator.json(*play)) == 4
    readings = complete_readings(
        operator, lambda one: any(gpu.measured.get("xid", "63", "ignore") == 2 for gpu in one.gpus)
    )
    operator.does(*play, "--stop")
    assert operator.json(*play) == []
    vgpu = next(one for one in readings.vgpus if one.device == _device(lease))
    assert vgpu.vm_uuid == created["acme.web-1"]["vm"]["uuid"]
    assert vgpu.measured.get("utilization_ratio") == 0.75
    assert (vgpu.measured.get("encoder_sessions"), vgpu.measured.label("license_state")) == (2, "licensed")
    gpu = next(one for one in readings.gpus if one.address == vgpu.gpu)
    assert gpu.measured.get("temperature_celsius") == 71
    assert gpu.measured.get("xid", "63", "ignore") == 2
    vm = next(one for one in readings.vms if one.uuid == vgpu.vm_uuid)
    assert (vm.name, vm.tenant) == ("acme.web-1", "acme")
    assert (vm.measured.get("cpu_seconds") or 0) > 0
    for ours, theirs in (
        (gpu.measured, simulated.gpus[0].measured),
        (vgpu.measured, simulated.vgpus[0].measured),
        (readings.measured, simulated.measured),
    ):
        assert told(ours) == told(theirs)
    of_vm, of_simulated = told(vm.measured), told(simulated.vms[0].measured)
    assert of_vm == (of_simulated[0] | {"disk_allocated_bytes"}, of_simulated[1]), "the simulated disk is no file"
    assert len(readings.vms) == len(VMS)
    whole = next(one for one in readings.gpus if one.address == _leases(created, "umbrella.whole")[0]["share"]["gpu"])
    assert whole.driver == "vfio-pci"
    assert whole.measured.label("telemetry_support") == "none"
    assert whole.measured.get("power_watts") is None


@pytest.mark.long(
    "tests/e2e/vm/test_create_vm.py::test_the_kernel_says_that_this_vms_qemu_holds_the_device",
    "tests/e2e/vm/test_create_vm.py::test_qemu_shows_the_guest_an_nvidia_device_per_share",
)
def test_a_plain_vf_is_on_vfio_pci_and_the_guest_sees_it(
    created: dict[str, Any], operator: Operator, witness: Witness
) -> None:
    share = _leases(created, "acme.plain")[0]["share"]
    assert share["function"] != share["gpu"]
    assert witness.driver(share["function"]) == "vfio-pci"
    assert witness.driver(share["gpu"]) == "xe"
    shown = operator.json("show-vm", "plain", "--tenant", "acme")["guest_devices"]
    assert [one["device_id"] for one in shown if one["identifier"] == "ua-gpu0"] == ["56c0"]


def test_a_whole_card_goes_with_its_audio_function(created: dict[str, Any], witness: Witness) -> None:
    share = _leases(created, "umbrella.whole")[0]["share"]
    assert len(share["companions"]) == 1
    for address in (share["function"], *share["companions"]):
        assert witness.driver(address) == "vfio-pci"


_WHOLE_CARD = pytest.mark.long("tests/e2e/vm/test_create_vm.py::test_the_same_command_again_changes_nothing")


@pytest.mark.parametrize("name", ["acme.web-1", pytest.param("umbrella.whole", marks=_WHOLE_CARD)])
def test_the_same_command_again_changes_nothing(
    created: dict[str, Any], name: str, operator: Operator, witness: Witness
) -> None:
    state = witness.state()
    again = operator.does(*VMS[name])
    assert "no change" in again.err
    assert operator.json(*VMS[name])[0]["leases"] == _leases(created, name)
    assert witness.state() == state


def test_the_console_shows_what_the_guest_printed_and_can_be_left(created: dict[str, Any], operator: Operator) -> None:
    said = wait_for_words(operator, "web-1", "vgpuctl lab guest: halting")
    assert [line.split()[-2] for line in said.splitlines() if "pci" in line and " 10de:" in line] == ["10de:2235"]
    assert "vgpuctl lab guest: halting" in operator.does("console", "web-1", "--tenant", "acme", "--log").out
    sit_until(operator, "web-1", "Ctrl-]")
    assert operator.json("show-vm", "web-1", "--tenant", "acme")["domain_state"] == "running"


def test_another_size_is_refused_and_the_difference_named(created: dict[str, Any], operator: Operator) -> None:
    wanted = [*VMS["acme.web-1"], "--gpu", "A40-8Q"]
    wanted[wanted.index("96MiB")] = "128MiB"
    refused = operator.is_refused(*wanted)
    assert (refused["reference"], refused["exit_code"]) == ("vm-differs", 6)
    assert any("memory" in line and "96" in line and "128" in line for line in refused["context"])
    assert any("gpus" in line for line in refused["context"])


@pytest.mark.long(
    "tests/e2e/host/test_host_readings.py::test_the_tables_say_what_the_facts_say",
    "tests/e2e/vm/test_several_vms.py::test_several_vms_are_changed_at_once_and_summed_up",
    "tests/unit/scheduler/test_rejections.py::test_a_gpu_that_cannot_says_why",
)
def test_lists_show_every_vm_and_what_is_left(created: dict[str, Any], operator: Operator) -> None:
    listed = operator.json("list-vms")
    assert {f"{row['vm']['request']['tenant']}.{row['vm']['request']['name']}" for row in listed} == set(VMS)
    assert [row["vm"]["request"]["name"] for row in operator.json("list-vms", "--tenant", "acme")] == [
        "desks",
        "plain",
        "web-1",
    ]
    gpus = operator.json("list-gpus", "--refresh")
    assert sum(len(gpu["leases"]) for gpu in gpus) == 6
    profiles = {(row["gpu"], row["profile"]["name"]): row["profile"] for row in operator.json("list-profiles")}
    for lease in _leases(created, "acme.web-1"):
        on_this_gpu = {name: one["creatable"] for (gpu, name), one in profiles.items() if gpu == lease["share"]["gpu"]}
        assert on_this_gpu["A40-24Q"] == 0, "the equal-size rule closes other sizes"
        assert on_this_gpu["A40-8Q"] == 5
    tenants = {row["tenant"]: row["vms"] for row in operator.json("list-tenants")}
    assert tenants == {"acme": 3, "umbrella": 2}


@pytest.mark.long(
    "tests/e2e/vm/test_attach_gpu.py::test_a_gpu_that_never_came_leaves_at_once_and_bad_asks_are_refused",
    "tests/unit/scheduler/test_rejections.py::test_a_gpu_that_cannot_says_why",
)
def test_a_full_gpu_is_refused_with_a_reason_per_gpu(created: dict[str, Any], operator: Operator) -> None:
    refused = operator.is_refused("create-vm", "more", "--tenant", "acme", "--gpu", "A40-48Q", *SIZE)
    assert (refused["reference"], refused["exit_code"]) == ("no-capacity", 5)
    text = "\n".join(refused["context"])
    for lease in (*_leases(created, "acme.web-1"), *_leases(created, "umbrella.web-1")):
        assert lease["share"]["gpu"] in text
    assert "8 GiB" in text or "8192" in text or "A40-8Q" in text, "the blocking size is named"


@pytest.mark.long("tests/e2e/host/test_failing_hosts.py::test_a_vm_that_fits_nowhere_else_names_the_host_that_failed")
def test_what_libvirt_refuses_to_start_is_taken_back(
    created: dict[str, Any], operator: Operator, witness: Witness
) -> None:
    # QEMU loads an initrd into the guest's memory before it starts, and this one is larger.
    witness.run("truncate -s 120M /run/large-initrd")
    for name, kind, path in (("linux", "kernel", "/run/lab/guest/vmlinux"), ("large", "initrd", "/run/large-initrd")):
        operator.does("register-image", name, "--path", path, "--kind", kind, "--format", "raw", "--host", "gpu1")
    state = witness.state()
    wanted = ("create-vm", "next", "--tenant", "acme", "--gpu", "A40-8Q", *SIZE, "--kernel", "linux")
    refused = operator.is_refused(*wanted, "--initrd", "large")
    assert (refused["reference"], refused["exit_code"]) == ("domain-rejected", 7)
    assert "initrd is too large" in refused["message"]
    assert witness.state() == state
    assert "acme.next" not in operator.does("list-vms").out


@pytest.mark.long(
    "tests/e2e/vm/test_dry_run_of_create.py::test_steps_and_xml_are_printed_on_demand",
    "tests/e2e/operate/test_proofs.py::test_a_few_dry_runs_end_as_their_runs",
)
def test_a_dry_run_prints_steps_and_xml_and_writes_nothing(
    created: dict[str, Any], operator: Operator, witness: Witness
) -> None:
    state, vms = witness.state(), operator.json("list-vms")
    planned = operator.json("create-vm", "next", "--tenant", "acme", "--gpu", "A40-8Q", "--dry-run", *SIZE)[0]
    assert not planned["changed"]
    assert [step["op"] for step in planned["steps"]] in (["mdev.create"], ["vf-profile.set"])
    assert len(planned["undo"]) == 1
    assert "<name>acme.next</name>" in planned["xml"]
    rendered = operator.does("render-vm", "next", "--tenant", "acme", "--gpu", "T4-2Q", *SIZE).out
    assert "<name>acme.next</name>" in rendered
    assert "type='mdev'" in rendered
    assert witness.state() == state
    assert operator.json("list-vms") == vms


def test_the_existing_domain_is_rendered_as_libvirt_has_it(created: dict[str, Any], operator: Operator) -> None:
    xml = operator.does("render-vm", "web-1", "--tenant", "acme", "--existing").out
    assert created["acme.web-1"]["vm"]["uuid"] in xml
    assert "ua-gpu0" in xml


@pytest.mark.long(
    "tests/e2e/vm/test_restart_vm.py::test_force_off_keeps_the_shares_and_says_so",
    "tests/e2e/vm/test_vgpu_params.py::test_layout_and_vm_give_the_parameters_and_a_reboot_does_not_take_them",
)
def test_a_stopped_vm_keeps_its_share_and_starts_again(
    created: dict[str, Any], operator: Operator, witness: Witness
) -> None:
    vgpus, mdevs = witness.vgpus(), witness.mdevs()
    stopped = operator.json("stop-vm", "web-1", "--tenant", "acme", "--timeout", "0")
    assert stopped["changed"]
    assert (witness.vgpus(), witness.mdevs()) == (vgpus, mdevs)
    assert "domain acme.web-1 shut-off" in witness.state()
    assert operator.json("start-vm", "web-1", "--tenant", "acme")["changed"]
    holders = witness.holders()
    assert holders[witness.group_of(_device(_leases(created, "acme.web-1")[0]))] == created["acme.web-1"]["vm"]["uuid"]


@pytest.mark.long("tests/e2e/vm/test_attach_gpu.py::test_a_stopped_vm_gets_a_whole_card_and_gives_it_back")
def test_a_stopped_vm_can_release_its_shares_and_gets_new_ones(
    created: dict[str, Any], operator: Operator, witness: Witness
) -> None:
    assert len(witness.mdevs()) >= 2
    operator.does("stop-vm", "desks", "--tenant", "acme", "--hold", "release", "--timeout", "0")
    t4 = _leases(created, "acme.desks")[0]["share"]["gpu"]
    assert not [parent for parent, _type in witness.mdevs().values() if parent == t4]
    assert operator.json("list-vms", "--tenant", "acme")[0]["leases"] == []
    assert operator.json("start-vm", "desks", "--tenant", "acme")["changed"]
    assert len([parent for parent, _type in witness.mdevs().values() if parent == t4]) == 2


def test_repair_has_nothing_to_do(created: dict[str, Any], operator: Operator) -> None:
    assert operator.json("repair") == []


@pytest.mark.long(
    "tests/e2e/maintenance/test_gc.py::test_what_the_store_forgot_is_shown_and_taken_away_and_what_runs_stays"
)
def test_a_store_that_forgot_everything_takes_away_what_is_off_and_leaves_what_runs(
    created: dict[str, Any], operator: Operator, witness: Witness, tmp_path: Path
) -> None:
    running = {line for line in witness.state() if line.startswith("domain ") and line.endswith(" running")}
    held = operator.json("show-vm", "desks", "--tenant", "acme")["leases"]
    operator.does("stop-vm", "desks", "--tenant", "acme", "--timeout", "0")
    other = forgetful(operator, tmp_path, "acme", "umbrella")
    found = other.json("gc", "--yes", "--kind", "domain", "--kind", "volume", "--kind", "vgpu")
    taken = {(one["kind"], one["name"]) for one in found if one["outcome"] == "deleted"}
    vgpus = {("vgpu", _device(lease)) for lease in held}
    assert taken == {("domain", "acme.desks"), *vgpus}
    assert {one["outcome"].partition(":")[0] for one in found} == {"deleted", "left alone"}
    assert running - set(witness.state()) == {"domain acme.desks running"}
    assert not witness.mdevs().keys() & {device for _kind, device in vgpus}


def test_deleting_returns_every_device(
    created: dict[str, Any], before: list[str], operator: Operator, witness: Witness
) -> None:
    gone = operator.json("delete-vm", "--all", "--all-tenants", "--yes", "--timeout", "0")
    assert sorted(gone["deleted"]) == sorted(name.replace(".", "/") for name in VMS)
    assert witness.state() == before
    assert operator.json("list-vms") == []
    assert operator.json("list-gpus")[0]["leases"] == []
    missing = operator.is_refused("delete-vm", "web-1", "--tenant", "acme", "--yes")
    assert missing["reference"] == "not-found"
    checked = operator.json("list-events", "--kind", "share-checked")
    resets = {one["subject"]: one["evidence"]["reset"] for one in checked}
    assert (resets["umbrella/whole"], resets["acme/plain"], resets["acme/web-1"]) == ("flr", "flr", "by the driver")
    assert [one["evidence"]["findings"] for one in checked] == [[]] * len(checked)
