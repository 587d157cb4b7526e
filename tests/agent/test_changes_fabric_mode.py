# SPDX-License-Identifier: Apache-2.0
"""Fabric Manager's mode is written and read by the Fabric Manager that runs, on simulated machines: done, done again,
refused, and restored at boot."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.simulated import VM, Machine, PatientHost
from vgpuctl.agent import restore
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.fabric_manager import CONFIG, FabricManager
from vgpuctl.agent.facts import fabric
from vgpuctl.agent.wire.boot import MANIFEST, Manifest, ManifestStep, text_of
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.fabric import FabricManagerFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, RestartFabricManager, SetFabricMode
from vgpuctl_lab.card_links import fabric_config
from vgpuctl_lab.simulated.machine import faults
from vgpuctl_lab.simulated.machine.fabric_manager import CODES
from vgpuctl_lab.simulated.machine.state import Domain

BARE, SHARED, VGPU = "h100-sxm5*8", "h100-sxm5~fabric-shared*8", "h100-sxm5~fabric-vgpu*8"
UNIT = "nvidia-fabricmanager.service"
TO_SHARED = SetFabricMode(1, True)
RESTART = RestartFabricManager()


def machine_of(folder: Path, mix: str = BARE) -> Machine:
    """A machine that has run for a minute, so that no change of a file falls into the tick of its start."""
    machine = Machine(folder, mix, host=PatientHost)
    if machine.files.shape.has_fabric_manager:
        os.utime(config_of(machine), (0, 0))
        with machine.files.change() as state:
            state.fabric.started_at -= 60
            state.booted_at -= 60
    return machine


def config_of(machine: Machine) -> Path:
    return machine.files.root / CONFIG.lstrip("/")


def manager_of(machine: Machine) -> FabricManagerFacts:
    found = read_facts(machine.host).fabric_manager
    assert found is not None
    return found


def hold(machine: Machine) -> None:
    """Let a VM have the first card."""
    with machine.files.change() as state:
        state.drivers[machine.card.address] = "vfio-pci"
        state.domains[VM] = Domain("web-1", 4711, functions=[machine.card.address])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "# FABRIC_MODE=7 is a comment\nLOG_LEVEL=4\n\nFABRIC_MODE=0\nFABRIC_MODE_RESTART=0\n# end\n",
            "# FABRIC_MODE=7 is a comment\nLOG_LEVEL=4\n\nFABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n# end\n",
        ),
        (
            "FABRIC_MODE = 2 # two\nFABRIC_MODE=\n\tFABRIC_MODE_RESTART= 0",
            "FABRIC_MODE = 1 # two\nFABRIC_MODE=1\n\tFABRIC_MODE_RESTART= 1",
        ),
        ("LOG_LEVEL=4", "LOG_LEVEL=4\nFABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n"),
        ("LOG_LEVEL=4\r\nFABRIC_MODE=0\r\n", "LOG_LEVEL=4\r\nFABRIC_MODE=1\r\nFABRIC_MODE_RESTART=1\r\n"),
        ("", "FABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n"),
        ("NAME=\udcff\nSHARED_FABRIC_MODE=0\n", None),
    ],
    ids=("comments-stay", "every-one", "no-last-newline", "windows", "empty", "other-names-and-bytes"),
)
def test_only_the_two_settings_change(text: str, wanted: str | None, tmp_path: Path) -> None:
    machine = machine_of(tmp_path)
    config = config_of(machine)
    config.write_bytes(text.encode(errors="surrogateescape"))
    config.chmod(0o640)
    wanted = text + "FABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n" if wanted is None else wanted
    dry, first, second = (machine.take(TO_SHARED, dry_run=dry_run) for dry_run in (True, False, False))
    assert dry.changes == first.changes and first.problem is None
    assert [reply.changes[0].changed for reply in (first, second)] == [True, False]
    assert second.writes == first.writes
    assert config.read_bytes().decode(errors="surrogateescape") == wanted
    assert config.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in config.parent.iterdir()] == [config.name]


def test_a_host_without_fabric_manager_and_a_link_are_refused(tmp_path: Path) -> None:
    assert machine_of(tmp_path / "a40", "a40").refused(TO_SHARED).code == ProblemCode.FABRIC_MANAGER_MISSING
    machine = machine_of(tmp_path / "hgx")
    config = config_of(machine)
    config.rename(config.with_name("real.cfg"))
    config.symlink_to("real.cfg")
    assert CONFIG in machine.refused(TO_SHARED).message
    assert "FABRIC_MODE=0" in config.with_name("real.cfg").read_text()


def test_the_one_that_runs_has_the_mode_after_a_restart_alone(tmp_path: Path) -> None:
    machine = machine_of(tmp_path)
    assert (manager_of(machine).is_active, manager_of(machine).needs_restart) == (True, False)
    assert not machine.done(RESTART)
    assert machine.done(TO_SHARED)
    pending = manager_of(machine)
    assert (pending.mode, pending.keeps_partitions, pending.needs_restart) == (1, True, True)
    assert "FABRIC_MODE" in (pending.problem or "") and pending.partitions is None
    (change,) = machine.take(RESTART, dry_run=True).changes
    assert change == Change(
        RESTART.op,
        UNIT,
        "active, started before its configuration was written",
        "active, with FABRIC_MODE=1, FABRIC_MODE_RESTART=1",
        changed=True,
    )
    assert manager_of(machine).needs_restart
    assert machine.done(RESTART)
    # It was told that no partition is active, so it does not end after its minute.
    machine.host.wait(120)
    now = manager_of(machine)
    assert (now.is_active, now.needs_restart, now.problem, len(now.partitions or ())) == (True, False, None, 15)
    assert not machine.done(RESTART)


@pytest.mark.parametrize("mix", [SHARED, VGPU])
def test_it_goes_back_to_the_host(mix: str, tmp_path: Path) -> None:
    machine = machine_of(tmp_path, mix)
    assert machine.done(SetFabricMode(0, False)) and machine.done(RESTART)
    assert (manager_of(machine).mode, manager_of(machine).needs_restart) == (0, False)
    fabric = machine.gpu().topology
    assert fabric is not None and fabric.fabric is not None and fabric.fabric.is_up()


def test_it_is_not_restarted_under_a_vm_nor_under_an_active_partition(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, SHARED)
    with FabricManager(machine.host) as manager:
        manager.activate(3)
    assert machine.done(SetFabricMode(2, True))
    refused = machine.refused(RESTART, dry_run=True)
    assert refused.code == ProblemCode.FABRIC_IN_USE and "partition 3 is active (modules 1, 3)" in refused.message
    with FabricManager(machine.host) as manager:
        manager.deactivate(3)
    hold(machine)
    refused = machine.refused(RESTART)
    assert refused.code == ProblemCode.FABRIC_IN_USE
    assert f"{machine.card.address} is held by qemu" in refused.message and VM in refused.message
    assert manager_of(machine).needs_restart
    with machine.files.change() as state:
        state.domains.clear()
    assert machine.done(RESTART)


def test_one_that_does_not_run_is_started_and_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, SHARED)
    with machine.files.change() as state:
        faults.set_on_host(machine.files, state, "fabric-dead", 1)
    assert manager_of(machine).is_active is False
    assert machine.done(RESTART)
    assert len(manager_of(machine).partitions or ()) == 15
    with machine.files.change() as state:
        faults.set_on_host(machine.files, state, "fabric-version", 1)
    refused = machine.refused(RESTART)
    assert refused.code == ProblemCode.SERVICE_DID_NOT_START and "version" in str(refused.hint)


def test_one_that_starts_is_waited_for_with_a_limit(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, SHARED)
    with machine.files.change() as state:
        faults.set_on_host(machine.files, state, "fabric-starting", 60)
    assert not machine.done(RESTART)
    with machine.files.change() as state:
        faults.set_on_host(machine.files, state, "fabric-starting", 600)
    assert machine.refused(RESTART).code == ProblemCode.FABRIC_STARTING


def test_one_without_partitions_need_not_listen(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, SHARED)
    codes = machine.files.root / CODES.lstrip("/")
    codes.parent.mkdir(parents=True)
    codes.write_text("fmConnect -9\n")
    assert machine.done(SetFabricMode(0, False)) and machine.done(RESTART)
    assert machine.done(TO_SHARED)
    assert machine.refused(RESTART).code == ProblemCode.FABRIC_UNREACHABLE


def test_the_boot_brings_a_mode_back_that_an_update_has_overwritten(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, SHARED)
    manifest = machine.files.root / MANIFEST.lstrip("/")
    manifest.parent.mkdir(parents=True)
    manifest.write_bytes(text_of(to_json(Manifest((), (ManifestStep(TO_SHARED), ManifestStep(RESTART))))))
    config_of(machine).write_text(fabric_config(0))
    machine.reboot()
    assert manager_of(machine).mode == 0
    assert restore.main(machine.host, MANIFEST) == 0
    assert (manager_of(machine).mode, manager_of(machine).needs_restart) == (1, False)
    writes = machine.host.writes
    assert restore.main(machine.host, MANIFEST) == 0
    assert machine.host.writes == writes + 1, "the second run notes its result alone"
    assert len(manager_of(machine).partitions or ()) == 15


def test_a_host_that_is_busy_between_two_looks_at_its_clocks_has_no_restart_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_of(tmp_path)
    assert machine.done(TO_SHARED) and machine.done(RESTART)

    def slow(clock: Callable[[], float]) -> Callable[[], float]:
        """The clock, after which the host does something else for a while, but for the third look."""
        waits = [0.2, 0.2]

        def look() -> float:
            told = clock()
            time.sleep(waits.pop() if waits else 0)
            return told

        return look

    with monkeypatch.context() as patched:
        patched.setattr(machine.host, "now", slow(machine.host.now))
        assert fabric.read_run(machine.host) == (True, False)
    monkeypatch.setattr(machine.host, "uptime", slow(machine.host.uptime))
    time.sleep(0.05)
    config_of(machine).touch()
    assert fabric.read_run(machine.host) == (True, True)
