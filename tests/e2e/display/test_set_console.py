# SPDX-License-Identifier: Apache-2.0
"""The picture of a VM's console: chosen at creation, changed for the next start, refused where it cannot be."""

import json
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.e2e.rfb_client import connect, read_picture

ACME = ("--tenant", "acme")
SIZE = (*ACME, "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    return fleet_operator


def test_the_vgpu_becomes_the_primary_adapter_at_the_next_start(operator: Operator) -> None:
    operator.does("create-vm", "mediated", *SIZE, "--gpu", "A40-8Q", "--host", "sim-002", "--display", "vnc")
    before = operator.does("render-vm", "mediated", *ACME, "--existing").out
    assert "<model type='vga'" in before and "ramfb" not in before
    done = operator.does("set-console", "mediated", "vgpu", *ACME)
    assert "shows vgpu from its next start on" in done.err and "restart-vm acme/mediated" in done.err
    assert operator.does("render-vm", "mediated", *ACME, "--existing").out == before
    assert "no change" in operator.does("set-console", "mediated", "vgpu", *ACME).err
    operator.does("restart-vm", "mediated", *ACME, "--timeout", "0")
    after = operator.does("render-vm", "mediated", *ACME, "--existing").out
    assert "display='on' ramfb='on'" in after and "<model type='none'/>" in after
    event = operator.json("list-events", "--kind", "vm-console-set")[-1]
    assert event["before"] == {"display": "vnc", "video": "vga", "vgpu": "off"}
    assert event["after"] == {"display": "vnc", "video": "none", "vgpu": "ramfb"}


def test_a_host_that_cannot_show_it_is_refused_when_placing_and_when_setting(operator: Operator) -> None:
    placed = ("create-vm", "vendor", *SIZE, "--gpu", "A40-8Q", "--host", "sim-001")
    refused = operator.is_refused(*placed, "--vgpu-display", "ramfb")
    assert refused["reference"] == "no-capacity"
    assert "10.3.0 and newer can" in " ".join(refused["context"])
    operator.does(*placed, "--display", "vnc")
    refused = operator.is_refused("set-console", "vendor", "vgpu", *ACME)
    assert "vGPU display ramfb is not possible" in refused["message"] and refused["hint"]
    assert "no-console" in str(
        operator.json("explain-vm", "card", *SIZE, "--gpu", "passthrough", "--vgpu-display", "on")
    )


def test_a_dry_run_changes_nothing_and_a_vm_without_gpu_shows_none(operator: Operator) -> None:
    operator.does("create-vm", "plain", *SIZE)
    assert "graphics" not in operator.does("render-vm", "plain", *ACME, "--existing").out
    assert "would show emulated" in operator.does("set-console", "plain", "emulated", *ACME, "--dry-run").err
    assert operator.json("set-console", "plain", "emulated", *ACME)["changed"]
    refused = operator.is_refused("set-console", "plain", "vgpu", *ACME)
    assert "the VM has no GPU" in refused["message"]
    assert operator.is_refused("set-console", "absent", "none", *ACME)["reference"] == "not-found"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--display", "vnc", "--video", "qxl"), "qxl is for SPICE"),
        (("--display", "vnc", "--video", "bochs", "--vgpu-display", "ramfb"), "would be a second one"),
        (("--display", "none", "--video", "vga"), "needs a display"),
        (("--vgpu-display", "on", "--vgpu-param", "disable_vnc=1"), "disable_vnc=1 takes away"),
    ],
)
def test_contradictions_are_refused_before_any_host_is_asked(
    operator: Operator, flags: tuple[str, ...], said: str
) -> None:
    refused = operator.is_refused("create-vm", "odd", *SIZE, "--gpu", "A40-8Q", *flags)
    assert said in refused["message"] and refused["exit_code"] == 2


def test_a_picture_of_a_simulated_guest_comes_whole(operator: Operator, tmp_path: Path) -> None:
    operator.does("create-vm", "seen", *SIZE, "--display", "vnc")
    for name in ("once.png", "twice.png"):
        taken = operator.json("screenshot", "seen", str(tmp_path / name), *ACME)
        # libvirt's test driver sends this file, of 1120x832 pixels.
        assert (tmp_path / name).read_bytes() == Path("/usr/share/libvirt/test-screenshot.png").read_bytes()
        assert (taken["width"], taken["height"]) == (1120, 832)


def test_the_display_of_a_simulated_guest_is_seen(operator: Operator) -> None:
    process = operator.start("view", "seen", *ACME, "--json")
    assert process.stdout is not None
    opened = json.loads(process.stdout.readline())
    seen = read_picture(opened["port"])
    assert (seen.name, seen.width, seen.height) == ("simulated", 640, 480)
    assert {pixel for row in seen.rows for pixel in row} == {(96, 96, 96)}
    process.terminate()
    assert process.communicate(timeout=30)[0] == "" and process.returncode == 0


def test_a_display_that_the_host_cannot_open_is_told(operator: Operator) -> None:
    operator.does("create-vm", "spicy", *SIZE, "--display", "spice")
    refused = operator.is_refused("view", "spicy", *ACME, "--web")
    assert "has a spice display, and this needs vnc" in refused["message"]
    process = operator.start("view", "spicy", *ACME, "--json")
    assert process.stdout is not None and process.stderr is not None
    opened = json.loads(process.stdout.readline())
    with connect(opened["port"]) as client:
        assert opened["url"].startswith("spice://") and client.recv(1) == b""
    process.terminate()
    err = process.communicate(timeout=30)[1]
    assert "the display cannot be opened: cannot open the display: internal error: no graphics backend" in err
