# SPDX-License-Identifier: Apache-2.0
"""map: the fleet's GPUs with their shares, at 80 columns, compact, as JSON, and of a host that does not answer."""

import re

import vgpuctl_lab as lab
from tests.e2e.operator import Operator

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


def test_the_map_shows_shares_what_is_left_and_what_is_closed(fleet_operator: Operator) -> None:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-vm", "web-1", *SIZE, "--gpu", "A40-8Q", "--host", "sim-001")
    fleet_operator.does("create-vm", "card", *SIZE, "--gpu", "passthrough", "--host", "sim-003")
    fleet_operator.does("quarantine-gpu", "sim-002", "0000:41:00.0", "--reason", "it smells")
    out = fleet_operator.does("map", "--full").out
    assert max(map(len, out.splitlines())) <= 80 and "\x1b" not in out
    blocks = {block.split(" ")[0] + block.split(" ")[1]: block for block in out.split("\n\n")}
    first = blocks["sim-0010000:41:00.0"]
    assert "\n  [web-1======]" + "." * 65 + "\n" in first
    assert "largest still creatable: 5 x A40-8Q (8 GiB)" in first and "acme/web-1 A40-8Q" in first
    closed = blocks["sim-0020000:41:00.0"]
    assert "!" * 78 in closed and "gpu-quarantine: in quarantine: it smells" in closed
    assert "sim-003: 2 GPUs\n  NUMA 0: pci0000:" in out
    assert "!!! free, but closed" in out and "[=] share of a VM" in out


def test_compact_is_one_line_for_each_gpu(fleet_operator: Operator) -> None:
    lines = fleet_operator.does("map", "--limit", "sim-001,sim-002").out.splitlines()
    (line, *_) = fleet_operator.does("map", "--compact", "--limit", "sim-001").out.splitlines()
    assert line == lines[0] and len(fleet_operator.does("map", "--limit", "sim-001").out.splitlines()) > 5
    assert lines[0].startswith("sim-001 0000:41:00.0 [web") and lines[0].endswith("40G free, 5xA40-8Q")
    assert lines[1].endswith("gpu-quarantine") and lines[2].startswith("2 hosts, 2 GPUs, 96 GiB")


def test_json_has_what_the_drawing_has(fleet_operator: Operator) -> None:
    found = fleet_operator.json("map")
    by_host = {one["host"]: one for one in found["gpus"]}
    gpu = by_host["sim-001"]
    assert [(one["kind"], one["size_mib"], one["vm"]) for one in gpu["segments"]] == [
        ("share", 8192, "web-1"),
        ("free", 40960, None),
    ]
    assert gpu["memory_mib"] == 49152 and gpu["free_mib"] == 40960 and gpu["creatable"][0]["count"] == 5
    assert gpu["state"] == "present" and gpu["observed_at"] > 0
    assert by_host["sim-002"]["closed"]["code"] == "gpu-quarantine"
    assert set(found["topologies"]) == {"sim-001", "sim-002", "sim-003", "sim-004"}


def test_a_narrow_terminal_and_a_wide_one(fleet_operator: Operator) -> None:
    for width in (1, 20, 200):
        narrow = Operator(
            fleet_operator.home, fleet_operator.inventory, fleet_operator.database, {"COLUMNS": str(width)}
        )
        lines = narrow.does("map").out.splitlines()
        assert len(lines) >= 5 and all(len(line) <= max(width, 5) for line in lines[:5])


def test_a_host_that_does_not_answer_is_drawn_from_its_cached_facts(fleet_operator: Operator) -> None:
    inventory = fleet_operator.home / "elsewhere.yml"
    inventory.write_text("all: {hosts: {sim-001: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    cut_off = Operator(fleet_operator.home, inventory, fleet_operator.database)
    assert "[web-1======]" in cut_off.does("map").out
    fresh = cut_off.run("map", "--refresh")
    assert fresh.code == 4 and "127.0.0.1" in fresh.err
    again = cut_off.does("map").out
    assert "unknown since" not in " ".join(again.split()), "an inventory that leads elsewhere says nothing of it"
    assert "[web-1======]" in again


def test_nothing_of_a_silent_host_is_usable_now(fleet_operator: Operator, fleet: lab.LabFolder) -> None:
    only = ("--limit", "sim-001,sim-002")
    before = " ".join(fleet_operator.does("map", *only).out.split())
    assert re.search(r"40 GiB of it usable now; read up to [0-9]+[sm] ago", before)
    lab.faults.begin("sim-001", "sshd", folder=fleet)
    try:
        fleet_operator.run("list-hosts", "--limit", "sim-001")
        shown = fleet_operator.does("map", *only, "--compact").out
        full = fleet_operator.does("map", *only, "--full").out
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    first = shown.splitlines()[0]
    assert first.startswith("sim-001 0000:41:00.0 [we") and "unknown since" in first and "free" not in first
    for out in (shown, full):
        assert "0 MiB of it usable now; 1 GPU of hosts that give no answer as last seen" in " ".join(out.split())
    fleet_operator.does("list-hosts", "--limit", "sim-001")


def test_without_any_gpu_it_says_so(fleet_operator: Operator) -> None:
    done = fleet_operator.run("map", "--limit", "nowhere")
    assert done.code != 0 and "nowhere" in done.err
