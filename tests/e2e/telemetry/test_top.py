# SPDX-License-Identifier: Apache-2.0
"""top: what shares use of what was promised, once, as JSON, and live on a terminal."""

import os
import signal

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.playing import play
from tests.e2e.terminal import Terminal, on_terminal

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def busy(fleet_operator: Operator, fleet: lab.LabFolder) -> Operator:
    """Three VMs of two tenants; web-1 uses half of its GPU, db a tenth of its promise, off is stopped."""
    for tenant in ("acme", "globex"):
        fleet_operator.does("create-tenant", tenant)
    for name, tenant, host in (("web-1", "acme", "sim-001"), ("db", "globex", "sim-001"), ("off", "acme", "sim-002")):
        fleet_operator.does("create-vm", name, "--tenant", tenant, *SIZE, "--gpu", "A40-8Q", "--host", host)
    fleet_operator.does("stop-vm", "off", "--tenant", "acme", "--timeout", "0")
    shares = {one["vm"]: one for one in fleet_operator.json("top")["shares"]}
    play(
        fleet,
        "sim-001",
        f"vgpu:{shares['web-1']['device']} utilization_ratio 0 0:0.5",
        f"vgpu:{shares['web-1']['device']} framebuffer_used_bytes 0 0:{6 << 30}",
        f"vgpu:{shares['db']['device']} utilization_ratio 0 0:0.01",
    )
    return fleet_operator


def test_once_prints_shares_gpus_and_tenants_in_80_columns(busy: Operator) -> None:
    out = busy.does("top", "--once").out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80 and "\x1b" not in out
    assert lines[0].endswith("4 hosts, 3 shares")
    at = lines.index("")
    assert " ".join(lines[at + 1].split()) == "TENANT VM HOST GPU PROFILE SHARE%* UTIL FB STEAL STATE"
    rows = [line.split() for line in lines[at + 2 : at + 5]]
    assert [row[1] for row in rows] == ["web-1", "db", "off"]
    assert rows[0][5:8] == ["300%", "50%", "6/8G"] and rows[1][5] == "6%"
    assert rows[2][5:] == ["-", "-", "-/8G", "-", "VM", "off"]
    assert any(line.startswith("sim-004") for line in lines)
    assert [line.split()[:3] for line in lines if line.startswith(("acme  ", "globex  "))][-2:] == [
        ["acme", "2", "1"],
        ["globex", "1", "1"],
    ]


def test_the_order_is_that_of_a_column(busy: Operator) -> None:
    out = busy.does("top", "--once", "--by", "share", "--sort", "vm").out
    assert [line.split()[1] for line in out.splitlines()[3:]] == ["db", "off", "web-1"]


def test_json_has_the_same_figures(busy: Operator) -> None:
    found = busy.json("top")
    web = next(one for one in found["shares"] if one["vm"] == "web-1")
    assert (web["utilization"], web["framebuffer_used_bytes"]) == (0.5, 6 << 30)
    assert web["promised_used"] == pytest.approx(3.0) and web["missing"] is None
    acme = next(one for one in found["tenants"] if one["tenant"] == "acme")
    assert acme["promised_used"] == pytest.approx(3.0) and acme["utilization"] == 0.5 and acme["shares"] == 2
    gpu = next(one for one in found["gpus"] if one["host"] == "sim-001")
    assert gpu["shares"] == 2 and gpu["power_watts"] > 0


def test_filters_read_and_show_only_what_they_name(busy: Operator) -> None:
    found = busy.json("top", "--tenant", "globex")
    assert [one["host"] for one in found["hosts"]] == ["sim-001"]
    assert [one["vm"] for one in found["shares"]] == ["db"] and len(found["gpus"]) == 1
    assert [one["host"] for one in busy.json("top", "--host", "sim-002", "--host", "sim-003")["hosts"]] == [
        "sim-002",
        "sim-003",
    ]
    assert busy.is_refused("top", "--tenant", "nobody")["reference"] == "not-found"
    assert busy.is_refused("top", "--host", "nowhere")["reference"] == "not-found"


def test_a_host_that_does_not_answer_is_not_idle(busy: Operator) -> None:
    inventory = busy.home / "cut-off.yml"
    inventory.write_text("all: {hosts: {sim-001: {ansible_port: 1, ansible_host: 127.0.0.1}}}\n")
    both = ("-i", str(busy.inventory), "-i", str(inventory))
    done = busy.run("top", "--once", *both)
    assert done.code == 10 and "1 of 4 hosts did not answer" in done.err
    assert "sim-001: no answer, nothing was read:" in done.out
    row = next(line for line in done.out.splitlines() if " web-1 " in line).split()
    assert row[5:7] == ["-", "-"] and row[-2:] == ["no", "answer"]
    found = busy.run("top", *both, "--json")
    assert '"missing": "no answer"' in found.out and '"utilization": 0' not in found.out.partition('"gpus"')[0]


def _leaves_the_screen(terminal: Terminal) -> None:
    """The cursor is back, and the screen before."""
    terminal.ends_with(0)
    assert terminal.seen.rstrip().endswith((b"\x1b[?1049l", b"\x1b[?25h")), terminal.seen[-200:]


def test_the_live_screen_follows_the_hosts_and_the_keys(busy: Operator, fleet: lab.LabFolder) -> None:
    with on_terminal(busy, "top", "--interval", "1") as terminal:
        first = terminal.wait_for("SHARE%*", "300%")
        assert b"\x1b[31m" not in first and b"\x1b[2J" not in first
        device = next(one["device"] for one in busy.json("top")["shares"] if one["vm"] == "web-1")
        play(fleet, "sim-001", f"vgpu:{device} utilization_ratio 0 0:0.25")
        terminal.wait_for("150%")
        terminal.press("v")
        terminal.wait_for("POWER", "MODEL")
        terminal.press("s")
        terminal.wait_for("HOST*")
        terminal.press("r")
        terminal.wait_for("1-5 of 5 by HOST, reversed")
        terminal.press("?")
        terminal.wait_for("show only rows with a text")
        terminal.press("qvv/DB\r")
        terminal.wait_for("1-1 of 1 by HOST", "only rows with DB")
        terminal.press("\x1b")
        terminal.wait_for("1-3 of 3")
        terminal.press("q")
        _leaves_the_screen(terminal)


def test_every_row_can_be_reached_on_a_small_screen(busy: Operator) -> None:
    with on_terminal(busy, "top", "--by", "gpu", "--sort", "host", LINES="5") as terminal:
        terminal.wait_for("1-2 of 5 by HOST", "sim-001 41:00.0")
        for key, shown in (("\x1b[B", "2-3 of 5"), ("\x1b[F", "4-5 of 5"), ("\x1b[5~", "2-3 of 5"), (" ", "4-5 of 5")):
            terminal.press(key)
            terminal.wait_for(shown)
        terminal.press("q")
        _leaves_the_screen(terminal)


def test_a_stopped_command_gives_the_terminal_back_until_it_goes_on(busy: Operator) -> None:
    with on_terminal(busy, "top") as terminal:
        terminal.wait_for("SHARE%*")
        os.kill(terminal.process.pid, signal.SIGTSTP)  # of a group without a shell: it goes on at once
        shown = terminal.wait_for("\x1b[?1049l", "\x1b[?1049h", "SHARE%*")
        assert shown.index(b"\x1b[?25h\x1b[?1049l") < shown.index(b"\x1b[?1049h\x1b[?25l")
        terminal.press("q")
        _leaves_the_screen(terminal)


def test_a_list_is_scrolled_while_it_is_watched(busy: Operator) -> None:
    with on_terminal(busy, "list-vms", "--watch", LINES="4") as terminal:
        assert b"globex" not in terminal.wait_for("web-1", "3 rows, q ends")
        terminal.press("\x1b[F")
        terminal.wait_for("globex")
        terminal.press("q")
        _leaves_the_screen(terminal)


def test_a_dumb_terminal_gets_the_readings_once(busy: Operator) -> None:
    with on_terminal(busy, "top", "--by", "share", TERM="dumb") as terminal:
        terminal.ends_with(0)
        assert b"300%" in terminal.seen or b"150%" in terminal.seen
        assert b"\x1b[?" not in terminal.seen


def test_a_pipe_gets_whole_names(busy: Operator) -> None:
    tenant = "a-tenant-with-a-name-as-long-as-the-names-of-tenants-can-be"
    busy.does("create-tenant", tenant)
    busy.does("create-vm", "long", "--tenant", tenant, *SIZE, "--gpu", "A40-8Q", "--host", "sim-002")
    assert f"{tenant} long " in busy.does("top").out
    busy.does("delete-vm", "long", "--tenant", tenant, "--yes")


def test_ctrl_c_ends_it_in_peace_and_colour_needs_no_setting(busy: Operator) -> None:
    with on_terminal(busy, "top", "--by", "share", NO_COLOR="") as terminal:
        assert b"\x1b[90m" in terminal.wait_for("VM off")
        os.killpg(terminal.process.pid, signal.SIGINT)
        _leaves_the_screen(terminal)


def test_a_silent_host_stays_on_the_live_screen_with_its_age(busy: Operator) -> None:
    inventory = busy.home / "silent.yml"
    inventory.write_text("all: {hosts: {sim-001: {ansible_port: 1, ansible_host: 127.0.0.1}}}\n")
    arguments = ("top", "--interval", "1", "-i", str(busy.inventory), "-i", str(inventory))
    with on_terminal(busy, *arguments, COLUMNS="60") as terminal:
        terminal.wait_for("sim-001: no answer, nothing was read", "no answer")
        terminal.press("q")
        _leaves_the_screen(terminal)
