# SPDX-License-Identifier: Apache-2.0
"""The boot unit as systemd itself reads it: `systemd-analyze verify`, with NVIDIA's services enabled too."""

import os
import shutil
import subprocess
import sys
from importlib import resources
from itertools import chain, combinations
from pathlib import Path

import pytest

from vgpuctl.agent.changes.boot_unit import of_our_unit
from vgpuctl.agent.wire.boot import UNIT_NAME
from vgpuctl.guests.boot_unit import render_boot_unit

NVIDIA = (
    "nvidia-vgpud.service",
    "nvidia-vgpu-mgr.service",
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
    "nvidia-dcgm.service",
)
LIBVIRT = ("libvirtd.service", "virtqemud.service", "virtnodedevd.service", "libvirt-guests.service")
STOP_SERVICES = sorted(chain.from_iterable(combinations(NVIDIA, size) for size in range(len(NVIDIA) + 1)))

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")


def verified(folder: Path, text: str, *, orders: dict[str, str] | None = None) -> tuple[list[str], str]:
    """Return systemd's messages about the boot unit among enabled services, and all its messages."""
    units = folder / "units"
    wants = units / "multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for name in (*NVIDIA, *LIBVIRT):
        order = (orders or {}).get(name, "")
        (units / name).write_text(f"[Unit]\nDescription=stands in\n{order}\n[Service]\nExecStart=/bin/true\n")
        (wants / name).unlink(missing_ok=True)
        (wants / name).symlink_to(f"../{name}")
    path = folder / UNIT_NAME
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path), "multi-user.target"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "SYSTEMD_UNIT_PATH": f"{units}:"},
    )
    return of_our_unit(done.stdout + done.stderr), done.stderr


@needs_systemd
def test_whatever_services_are_stopped_for_a_change_the_unit_has_its_place_at_boot(tmp_path: Path) -> None:
    for services in STOP_SERVICES:
        text = render_boot_unit(sys.executable, services, cards=2)
        assert verified(tmp_path, text) == ([], ""), services


@needs_systemd
def test_a_service_before_and_after_the_unit_is_a_cycle_that_systemd_names(tmp_path: Path) -> None:
    text = render_boot_unit(sys.executable, NVIDIA, cards=1).replace("[Service]", f"After={NVIDIA[2]}\n[Service]")
    complaints, _said = verified(tmp_path, text)
    assert any("deleted to break ordering cycle" in line for line in complaints)
    assert any(NVIDIA[2] in line for line in complaints)


@needs_systemd
def test_a_cycle_through_services_of_others_is_found_too(tmp_path: Path) -> None:
    text = render_boot_unit(sys.executable, ["nvidia-persistenced.service"], cards=1)
    orders = {"nvidia-vgpu-mgr.service": "After=nvidia-persistenced.service"}
    complaints, _said = verified(tmp_path, text, orders=orders)
    assert any("ordering cycle" in line for line in complaints)


@needs_systemd
def test_cycles_and_mistakes_in_units_of_others_are_not_ours(tmp_path: Path) -> None:
    text = render_boot_unit(sys.executable, [], cards=1)
    orders = {NVIDIA[3]: f"After={NVIDIA[4]}\nWrongKey=1", NVIDIA[4]: f"After={NVIDIA[3]}"}
    complaints, said = verified(tmp_path, text, orders=orders)
    assert complaints == [] and "ordering cycle" in said and "WrongKey" in said


@needs_systemd
@pytest.mark.parametrize("wrong", ["/usr/bin/python3.5-was-here", "python 3"])
def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path, wrong: str) -> None:
    complaints, _said = verified(tmp_path, render_boot_unit(wrong, [], cards=1))
    assert complaints and wrong.split(maxsplit=1)[0] in " ".join(complaints)


@needs_systemd
def test_every_other_unit_that_is_shipped_is_taken_too(tmp_path: Path) -> None:
    others = [one for one in resources.files("vgpuctl.templates").iterdir() if one.name.endswith(".service")]
    assert others
    for one in others:
        (tmp_path / one.name).write_text(one.read_text())
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / one.name.replace("@.", "@fleet."))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = [line for line in done.stderr.splitlines() if "is not executable" not in line]
        assert said == [], said


def test_the_time_limit_grows_with_the_cards_and_libvirt_always_waits() -> None:
    one, eight = (render_boot_unit("/usr/bin/python3", [], cards=cards).splitlines() for cards in (1, 8))
    limits = [int(line.partition("=")[2]) for text in (one, eight) for line in text if "TimeoutStartSec" in line]
    assert limits[1] - limits[0] == 7 * (limits[0] - 500)
    assert {f"Before={name}" for name in LIBVIRT} <= set(one)
