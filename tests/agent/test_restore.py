# SPDX-License-Identifier: Apache-2.0
"""The agent's entry for the boot unit: manifests that cannot be used, and hosts whose cards are not ready yet."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.simulated import PF, Machine, PatientHost
from vgpuctl.agent.facts import nvidia
from vgpuctl.agent.restore import Restore, misfit
from vgpuctl.agent.wire.boot import KEPT_LIMITS, ManifestGpu
from vgpuctl_lab.simulated.machine import shape as shapes
from vgpuctl_lab.simulated.machine.host_adapter import SimulatedHost

MANIFEST = "/etc/vgpuctl/manifest.json"


def restore(
    root: Path, manifest: str | None, *options: str, uptime_s: float | None = None
) -> tuple[int, str, dict[str, object]]:
    """Run the entry on a folder as root: exit status, what the journal gets, the result that is left."""
    for folder in ("etc/vgpuctl", "proc/sys/kernel/random", "sys/bus/pci/devices", "run"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    if uptime_s is not None:
        (root / "proc/uptime").write_text(f"{uptime_s} 1.00\n")
    (root / "proc/sys/kernel/random/boot_id").write_text("0f0f0f0f-0000-4000-8000-000000000001\n")
    if manifest is not None:
        (root / MANIFEST.lstrip("/")).write_text(manifest)
    done = subprocess.run(
        [sys.executable, "-m", "vgpuctl.agent", "--root", str(root), "apply", "--manifest", MANIFEST, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    result = root / "run/vgpuctl/restored.json"
    return done.returncode, done.stderr, json.loads(result.read_text()) if result.exists() else {}


def test_a_missing_card_is_left_alone_and_said(tmp_path: Path) -> None:
    gpu = {"address": "0000:41:00.0", "vendor_id": "10de", "device_id": "2235"}
    step = {"gpu": "0000:41:00.0", "step": {"op": "sriov.set", "address": "0000:41:00.0", "count": 32}}
    code, journal, result = restore(tmp_path, json.dumps({"version": 1, "gpus": [gpu], "steps": [step]}))
    assert code == 1
    assert "<3>0000:41:00.0 is left alone: there is no PCI function 0000:41:00.0" in journal
    assert result["problems"] and result["restored_boot_id"] == "0f0f0f0f-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    "manifest",
    [None, "", "[]", '{"version": 1}', '{"version": 9, "gpus": [], "steps": []}', '{"gpus": [], "steps": [{}]}'],
)
def test_a_manifest_that_cannot_be_used_changes_nothing_and_is_said(tmp_path: Path, manifest: str | None) -> None:
    code, journal, _result = restore(tmp_path, manifest)
    assert code == 1 and "manifest.json" in journal and "Traceback" not in journal


@pytest.mark.parametrize("driver", ["550.127.06", "580.65.06", "590.44.01"])
def test_a_uuid_that_the_driver_does_not_know_yet_is_asked_of_nvml(driver: str, tmp_path: Path) -> None:
    """Up to 580 the driver prints question marks until somebody uses the GPU, later ones leave the line out."""
    card = fresh(tmp_path / "same", driver).card
    wanted = ManifestGpu(PF, "10de", card.device, f"10de:{card.subsystem.split(':')[1]}", card.uuid)
    host = SimulatedHost(str(tmp_path / "same"))
    assert nvidia.uuid_of(nvidia.read_information(host, PF)) is None
    assert misfit(host, wanted) is None
    assert nvidia.uuid_of(nvidia.read_information(host, PF)) == card.uuid
    other = SimulatedHost(str(fresh(tmp_path / "other", driver).files.folder))
    assert "the manifest has GPU-0" in (misfit(other, replace(wanted, uuid="GPU-0")) or "")


def fresh(folder: Path, driver: str) -> Machine:
    """A machine that was just started, with a driver of this version."""
    machine = Machine(folder, "a40")
    shapes.write(replace(machine.files.shape, nvidia_driver=driver), folder / "machine.json")
    return machine


def test_an_empty_manifest_is_restored(tmp_path: Path) -> None:
    code, journal, result = restore(tmp_path, '{"version": 1, "gpus": [], "steps": []}')
    assert (code, result["problems"]) == (0, []) and "the layout is restored" in journal


# udev's program of a host whose card comes up late: it is there some time after `settle` has answered.
LATE = """#!/bin/sh
echo "$*" >>$VGPUCTL_ROOT/asked
(
    sleep {seconds}
    device=$VGPUCTL_ROOT/sys/bus/pci/devices/0000:41:00.0
    mkdir -p $device.new
    cd $device.new
    echo 0x10de >vendor; echo 0x2235 >device; echo 0x030200 >class; echo 0x10de >subsystem_vendor
    echo 0x145a >subsystem_device
    mv $device.new $device
) >/dev/null 2>&1 &
"""
IDS = {"vendor_id": "10de", "device_id": "2235", "subsystem_id": "10de:145a"}
CARD = json.dumps({"version": 1, "gpus": [{"address": "0000:41:00.0", **IDS}], "steps": []})


def with_late_card(root: Path, seconds: float) -> None:
    program = root / "usr/bin/udevadm"
    program.parent.mkdir(parents=True)
    program.write_text(LATE.format(seconds=seconds))
    program.chmod(0o755)


def test_a_card_that_comes_up_after_the_unit_started_is_waited_for(tmp_path: Path) -> None:
    with_late_card(tmp_path, 1.5)
    code, journal, result = restore(tmp_path, CARD, uptime_s=20.0)
    assert (code, result["problems"]) == (0, []), journal
    assert (tmp_path / "asked").read_text() == "settle --timeout=120\n"
    assert "for hardware that came up late" in journal


def test_a_card_that_never_comes_delays_the_boot_once(tmp_path: Path) -> None:
    (tmp_path / "run/vgpuctl").mkdir(parents=True)
    first = {"restored_boot_id": "0f0f0f0f-0000-4000-8000-000000000001", "problems": ["it is not there"]}
    (tmp_path / "run/vgpuctl/restored.json").write_text(json.dumps(first))
    code, journal, _result = restore(tmp_path, CARD, "--unless-restored", uptime_s=20.0)
    assert code == 1 and "there is no PCI function" in journal and "waited" not in journal


def test_long_after_the_boot_nothing_is_waited_for(tmp_path: Path) -> None:
    with_late_card(tmp_path, 1.5)
    code, journal, result = restore(tmp_path, CARD, uptime_s=5000.0)
    assert code == 1 and "there is no PCI function" in journal and result["problems"]
    assert not (tmp_path / "asked").exists()


def test_the_unit_s_second_run_ends_at_once_where_the_first_restored_everything(tmp_path: Path) -> None:
    empty = '{"version": 1, "gpus": [], "steps": []}'
    assert "the layout is restored" in restore(tmp_path, empty, "--unless-restored")[1]
    assert restore(tmp_path, empty, "--unless-restored")[1] == ""
    assert "NOT restored" in restore(tmp_path, CARD, "--unless-restored")[1], "another manifest"
    assert "NOT restored" in restore(tmp_path, CARD, "--unless-restored")[1], "problems are left"
    assert "the layout is restored" in restore(tmp_path, empty)[1], "a run without the option restores"


def boot(machine: Machine, *steps: dict[str, object]) -> Restore:
    """Restore a machine right after its start."""
    card = machine.card
    gpu = {"address": PF, "vendor_id": card.vendor, "device_id": card.device, "subsystem_id": card.subsystem}
    place = machine.files.root / MANIFEST.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    wanted = [{"gpu": PF, "step": {"address": PF, **step}} for step in steps]
    place.write_text(json.dumps({"version": 1, "gpus": [gpu], "steps": wanted}))
    restore = Restore(machine.host)
    restore.run(MANIFEST)
    return restore


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("lock-busy", 60),
        ("pf-stub", 1),
        ("pf-unbound", 1),
        ("pf-unbound", 7),
        ("sriov-silent", 1),
        ("sriov-silent", 7),
        ("vfs-on-stub", 1),
        ("vfs-unregistered", 1),
        ("vfs-unregistered", 3),
    ],
)
def test_vfs_come_at_boot_although_the_card_is_not_ready_yet(kind: str, value: int, tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a40/vf-profile", host=PatientHost)
    machine.begin(kind, value)
    restore = boot(machine, {"op": "sriov.set", "count": machine.card.total_vfs})
    assert restore.problems == []
    gpu = machine.gpu()
    assert len(gpu.vfs) == machine.card.total_vfs and all(vf.offers_types for vf in gpu.vfs)
    assert isinstance(machine.host, PatientHost) and machine.host.waited_s <= 200


KEPT = {"address": PF, "limit_mw": 275_000, "card": "10de:2235 10de:145a"}
DAMAGED = "/etc/vgpuctl/kept-limits.json cannot be read"
# Kept limits, further steps of the manifest, the limit after the boot, and words of the unit.
LIMITS: dict[str, tuple[object, tuple[dict[str, object], ...], int, str]] = {
    "kept": ([KEPT], (), 275_000, ""),
    "none": ([], (), 300_000, ""),
    "of another card": ([{**KEPT, "card": "10de:20f1"}], (), 300_000, "the manifest has no such card there"),
    "of no card": ([{**KEPT, "address": "0000:99:00.0"}], (), 300_000, "the manifest has no such card there"),
    "declared": ([KEPT], ({"op": "gpu.set-power-limit", "limit_mw": 200_000},), 200_000, "the layout declares one"),
    "too much": ([{**KEPT, "limit_mw": 400_000}], (), 300_000, "400 W is outside what the board takes"),
    "damaged": ([{"address": PF}], (), 300_000, DAMAGED),
    "no list": (7, (), 300_000, DAMAGED),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_that_a_controller_kept_is_set_at_boot(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, steps, limit_mw, words = LIMITS[name]
    machine = Machine(tmp_path, "a40")
    place = machine.files.root / KEPT_LIMITS.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({"version": 1, "limits": kept}))
    restored = boot(machine, *steps)
    tuning = machine.gpu().tuning
    assert tuning is not None and tuning.power_limit_mw == limit_mw
    said = capsys.readouterr().err
    assert words in said and bool(restored.problems) is (name in ("too much", "damaged", "no list"))


def test_a_lock_that_never_comes_is_said_and_tried_for_two_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path, "a40/vf-profile", host=PatientHost)
    machine.begin("unbind-lock")
    restore = boot(machine, {"op": "sriov.set", "count": machine.card.total_vfs})
    [problem] = restore.problems
    assert "cannot be taken from its driver" in problem
    assert isinstance(machine.host, PatientHost) and 100 <= machine.host.waited_s <= 180
    assert "sriov.set is tried again in 10 s" in capsys.readouterr().err


def test_a_mig_mode_that_needs_a_reset_waits_until_nobody_holds_the_card(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "a100-pcie-40gb", host=PatientHost)
    machine.begin("lock-busy", 45)
    steps = ({"op": "mig.set-mode", "enabled": True}, {"op": "sriov.set", "count": machine.card.total_vfs})
    assert boot(machine, *steps).problems == []
    gpu = machine.gpu()
    assert gpu.mig is not None and gpu.mig.current and len(gpu.vfs) == machine.card.total_vfs
