# SPDX-License-Identifier: Apache-2.0
"""The boot unit is enabled only after systemd took it, in the host's own set of units."""

import shutil
from pathlib import Path

import pytest

from tests.agent.simulated import Machine
from vgpuctl.agent.changes.boot_unit import of_our_unit
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.facts.boot import read_installed
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.boot import BootFiles, Manifest
from vgpuctl.agent.wire.envelope import Reply, Request
from vgpuctl.guests.boot_unit import render_boot_unit
from vgpuctl_lab.simulated.machine.systemd_analyze import is_here

needs_systemd = pytest.mark.skipif(not is_here(), reason="this machine has no systemd")
CYCLE = """
{0}: Found ordering cycle on nvidia-dcgm.service/start
{0}: Found dependency on nvidia-vgpu-mgr.service/start
{0}: Job nvidia-dcgm.service/start deleted to break ordering cycle starting with {0}/start
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "gpu1", "a40")


def installed(machine: Machine, *stop_services: str, dry_run: bool = False) -> Reply:
    program = machine.files.root / "agent.pyz"
    program.write_bytes(b"the agent")
    machine.host.own_program = program.read_bytes  # type: ignore[method-assign]
    unit = render_boot_unit(shutil.which("python3") or "", stop_services, cards=1)
    return answer(machine.host, Request("boot", dry_run=dry_run, boot=BootFiles(Manifest((), ()), (), unit)))


def order(machine: Machine, name: str, text: str) -> None:
    """Change a service of the host as its owner does, by a drop-in."""
    folder = machine.files.root / f"etc/systemd/system/{name}.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "order.conf").write_text(f"[Unit]\n{text}\n")


@needs_systemd
def test_a_unit_that_systemd_would_drop_is_refused_and_nothing_is_installed(machine: Machine) -> None:
    order(machine, "nvidia-vgpu-mgr.service", "After=nvidia-dcgm.service")
    refused = installed(machine, "nvidia-dcgm.service")
    assert refused.problem is not None and refused.problem.code == "unit-refused"
    assert "ordering cycle" in refused.problem.message and "nvidia-dcgm.service" in refused.problem.message
    assert not (machine.files.root / "etc/vgpuctl").exists()
    assert not (machine.files.root / wire.UNIT_LINKS[0][1:]).is_symlink()
    assert not list((machine.files.root / "run/vgpuctl").rglob("*.service"))


@pytest.mark.parametrize("path", [wire.AGENT, wire.MANIFEST, wire.UNIT])
@pytest.mark.parametrize("mode", [0o777, 0o620])
def test_a_file_that_others_may_write_is_installed_again(path: str, mode: int, machine: Machine) -> None:
    """root runs these at the next boot."""
    assert installed(machine).changes[0].changed
    before = {one.name: one.content for one in read_installed(machine.host).files}
    file = machine.files.root / path[1:]
    wanted = file.stat().st_mode
    file.chmod(mode)
    after = {one.name: one.content for one in read_installed(machine.host).files}
    assert after == {**before, path: f"{before[path]}, writable by others"}
    reply = installed(machine)
    assert reply.problem is None, reply.problem
    assert [(one.before, one.changed) for one in reply.changes] == [("different", True)]
    assert file.stat().st_mode == wanted
    assert not installed(machine).changes[0].changed


@needs_systemd
def test_a_cycle_that_comes_later_is_found_by_the_next_run_that_changes_nothing(machine: Machine) -> None:
    for is_changed in (True, False):
        reply = installed(machine, "nvidia-dcgm.service")
        assert reply.problem is None and (reply.changes[0].changed, reply.changes[0].after) == (is_changed, "installed")
    order(machine, "nvidia-vgpu-mgr.service", "After=nvidia-dcgm.service")
    for dry_run in (True, False):
        later = installed(machine, "nvidia-dcgm.service", dry_run=dry_run)
        assert later.problem is not None and later.problem.code == "unit-refused"


def test_a_host_without_the_program_says_that_nothing_was_checked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (change,) = installed(machine).changes
    assert change.after == "installed, not verified: this host has no systemd-analyze"


def test_only_lines_about_the_unit_and_cycles_through_it_count() -> None:
    assert len(of_our_unit(CYCLE.format("a.service").replace("nvidia-vgpu-mgr.service", wire.UNIT_NAME))) == 3
    assert of_our_unit(CYCLE.format("a.service")) == []
    assert of_our_unit(f"/run/vgpuctl/verify/{wire.UNIT_NAME}:3: Unknown key name 'Wrong'") != []
    assert of_our_unit("a.service: Command /opt/x is not executable") == []
