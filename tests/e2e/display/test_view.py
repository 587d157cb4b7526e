# SPDX-License-Identifier: Apache-2.0
"""The display of a real guest: a small Linux draws on its framebuffer, and viewers, browsers and pictures show that.

Everything is real: sshd, libvirtd, QEMU (TCG), the kernel, Chromium.
"""

import http.client
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.chromium_fixture import Chromium, browser
from tests.e2e.drawing_guest import ARGUMENTS, BAND, DRAWN, HEIGHT, TEXT, WIDTH, initramfs, kernel_image
from tests.e2e.guest_console import sit_until, wait_for_words
from tests.e2e.operator import Operator
from tests.e2e.real_host import real_host
from tests.e2e.rfb_client import connect, greeting, read_picture
from tests.lab_fixtures import lab_folder
from tests.png_reader import Picture, read_png
from vgpuctl.web.browser_console import NOVNC_FOLDER
from vgpuctl_lab import LabFolder
from vgpuctl_lab.kernel import ensure_kernel

__all__ = ["browser", "lab_folder"]

ACME = ("--tenant", "acme")
SMALL = (*ACME, "--vcpus", "1", "--network", "none")
RED, BLACK = (255, 0, 0), (0, 0, 0)
# A key of RFC 6455, section 1.3, and its answer.
KEY, ANSWER = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.fixture(scope="module")
def desk(lab_folder: LabFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of this machine, where the VM `desk` has drawn its picture; `plain` has no display."""
    home = tmp_path_factory.mktemp("view")
    kernel = kernel_image(ensure_kernel(lab_folder))
    (home / "initrd").write_bytes(initramfs())
    with real_host(home) as operator:
        operator.does("create-tenant", "acme")
        for kind, path in (("kernel", kernel), ("initrd", home / "initrd")):
            operator.does(
                "register-image", kind, "--path", str(path), "--kind", kind, "--format", "raw", "--host", "gpu1"
            )
        boot = ("--kernel", "kernel", "--initrd", "initrd", "--kernel-args", ARGUMENTS)
        operator.does("create-vm", "desk", *SMALL, "--memory", "256MiB", "--display", "vnc", *boot)
        operator.does("create-vm", "plain", *SMALL, "--memory", "64MiB")
        wait_for_words(operator, "desk", DRAWN)
        yield operator


def test_the_console_has_what_the_guest_said_and_is_left_by_its_key(desk: Operator) -> None:
    assert DRAWN in desk.does("console", "desk", *ACME, "--log").out
    sit_until(desk, "desk", "Ctrl-]")
    assert desk.json("show-vm", "desk", *ACME)["domain_state"] == "running"


@contextmanager
def viewing(operator: Operator, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run `vgpuctl view desk` and give what it prints; it has to end in order on Ctrl-C."""
    process = operator.start("view", "desk", *ACME, "--json", *arguments)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        assert line, process.communicate()[1]
        yield json.loads(line)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _out, err = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert "the display is closed" in err


def assert_drawn(picture: Picture) -> None:
    """The band is where it was drawn, and the first line has the text: equal letters look alike, others do not."""
    assert (picture.width, picture.height) == (WIDTH, HEIGHT)
    assert {pixel for y in BAND for pixel in picture.rows[y]} == {RED}
    assert {pixel for y in range(16, HEIGHT) if y not in BAND for pixel in picture.rows[y]} == {BLACK}
    cells = [picture.cell(column, 0) for column in range(len(TEXT) + 1)]
    dark = cells.pop()
    for at, letter in enumerate(TEXT):
        assert (cells[at] == dark) == (letter == " ")
        assert [other for other, cell in zip(TEXT, cells, strict=True) if cell == cells[at]] == [letter] * TEXT.count(
            letter
        )


def test_a_picture_shows_what_the_guest_has_drawn(desk: Operator, tmp_path: Path) -> None:
    file = tmp_path / "desk.png"
    taken = desk.json("screenshot", "desk", str(file), *ACME)
    assert taken == {
        "vm": "desk", "file": str(file), "width": WIDTH, "height": HEIGHT, "bytes": file.stat().st_size,
    }  # fmt: skip
    assert_drawn(read_png(file.read_bytes()))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    file.write_bytes(b"mine")
    refused = desk.is_refused("screenshot", "desk", str(file), *ACME)
    assert "is there already" in refused["message"] and file.read_bytes() == b"mine"
    desk.does("screenshot", "desk", str(file), *ACME, "--force")
    assert file.read_bytes() == before


def test_a_viewer_sees_it_on_a_local_port(desk: Operator) -> None:
    with viewing(desk) as opened:
        assert (opened["vm"], opened["kind"], opened["url"]) == ("desk", "vnc", f"vnc://127.0.0.1:{opened['port']}")
        assert greeting(opened["port"]) == b"RFB 003.008\n"
        seen = read_picture(opened["port"])
        assert_drawn(Picture(seen.width, seen.height, seen.rows))
        with connect(opened["port"]) as first, connect(opened["port"]) as second:
            assert first.recv(12) == second.recv(12) == b"RFB 003.008\n"
    with pytest.raises(ConnectionRefusedError):
        connect(opened["port"])
    event = desk.json("list-events", "--kind", "vm-viewed")[-1]
    assert (event["subject"], event["detail"]) == ("acme/desk", "vnc, on a local port")
    assert event["tenant"] == "acme" and event["host"] == "gpu1"


def test_another_user_of_this_machine_is_refused(desk: Operator) -> None:
    client = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20); print(s.recv(12))"
    with viewing(desk) as opened:
        argv = [sys.executable, "-I", "-c", client, str(opened["port"])]
        other = subprocess.run(
            ["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/python3", *argv[1:]],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert other.stdout.strip() in ("b''", "") and "RFB" not in other.stdout
        assert greeting(opened["port"]) == b"RFB 003.008\n"


def test_a_socket_is_for_its_owner_alone_and_goes_with_the_command(desk: Operator, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with viewing(desk, "--socket", str(path)) as opened:
        assert opened == {"vm": "desk", "kind": "vnc", "socket": str(path)}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert greeting(str(path)) == b"RFB 003.008\n"
        refused = desk.is_refused("view", "desk", *ACME, "--socket", str(path))
        assert "is there already" in refused["message"]
    assert not path.exists()


@pytest.mark.usefixtures("novnc")
def test_a_browser_shows_it_once(desk: Operator, browser: Chromium) -> None:
    with viewing(desk, "--web") as opened, browser.page() as page:
        page.open(opened["url"])
        looked = "(() => { const c = document.querySelector('canvas'); if (!c || c.width != 800) return null;"
        looked += " return [...c.getContext('2d').getImageData(400, 425, 1, 1).data]; })()"
        deadline = time.monotonic() + 30
        while (pixel := page.run(looked)) is None or pixel[:3] == [0, 0, 0]:
            assert time.monotonic() < deadline, page.problems()
            time.sleep(0.2)
        assert pixel[0] > 240 and pixel[1:3] == [0, 0]
        own = opened["url"].partition("/vnc.html")[0]
        assert [one for one in page.asked() if not one.startswith((own, "data:"))] == []
        assert answer_to(opened["url"], "websockify", handshake(opened["url"]))[0] == 410
    assert desk.json("list-events", "--kind", "vm-viewed")[-1]["detail"] == "vnc, in a browser"


@pytest.fixture(scope="module")
def novnc() -> None:
    """The files of noVNC. VGPUCTL_TESTS_MUST_RUN=1 (CI) makes their absence a failure."""
    if not (NOVNC_FOLDER / "vnc.html").is_file():
        missing = "noVNC shows the display in a browser: apt-get install novnc"
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)


def handshake(url: str, **changes: str) -> dict[str, str]:
    origin = "http://" + urlsplit(url).netloc
    return {
        "Origin": origin, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY, **changes,
    }  # fmt: skip


def answer_to(url: str, inner: str, headers: dict[str, str], token: str | None = None) -> tuple[int, dict[str, str]]:
    """Ask for a path below the token. Returns status and headers."""
    there = urlsplit(url)
    client = http.client.HTTPConnection(there.netloc, timeout=20)
    client.request("GET", f"/{token or there.path.split('/')[1]}/{inner}", headers=headers)
    answer = client.getresponse()
    client.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


@pytest.mark.usefixtures("novnc")
def test_the_browsers_server_refuses_strangers_and_ends_with_its_session(desk: Operator) -> None:
    process = desk.start("view", "desk", *ACME, "--json", "--web")
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    assert answer_to(url, "vnc.html", {}, token="x" * 32)[0] == 404
    assert answer_to(url, "vnc.html", {"Host": "evil.example"})[0] == 421
    assert answer_to(url, "websockify", handshake(url, Origin="http://evil.example"))[0] == 403
    assert answer_to(url, "websockify", handshake(url, Upgrade="h2c"))[0] == 400
    for outside in ("../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd.js", "%00.js", "core", ""):
        assert answer_to(url, outside, {})[0] in (400, 404), outside
    status, headers = answer_to(url, "vnc.html", {})
    assert status == 200 and "frame-ancestors 'none'" in headers["content-security-policy"]
    with connect(urlsplit(url).port or 0) as client:
        there = urlsplit(url)
        lines = [f"GET {there.path.replace('vnc.html', 'websockify')} HTTP/1.1", f"Host: {there.netloc}"]
        lines += [f"{name}: {value}" for name, value in handshake(url).items()]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        said = b""
        while b"RFB 003.008\n" not in said:
            data = client.recv(4096)
            assert data, said
            said += data
        assert f"Sec-WebSocket-Accept: {ANSWER}".encode() in said
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, ""), err


@pytest.mark.usefixtures("novnc")
def test_an_address_that_no_browser_opens_is_void(desk: Operator) -> None:
    done = desk.does("view", "desk", *ACME, "--web", "--timeout", "1")
    assert "no browser opened the page within 1 s" in done.err


def test_what_cannot_be_viewed_is_refused_with_its_remedy(desk: Operator, tmp_path: Path) -> None:
    refused = desk.is_refused("view", "plain", *ACME)
    assert refused["message"] == "VM acme/plain has no display"
    assert "set-console acme/plain emulated" in refused["hint"]
    refused = desk.is_refused("screenshot", "plain", str(tmp_path / "plain.png"), *ACME)
    assert "has no screen" in refused["message"] and not (tmp_path / "plain.png").exists()
    refused = desk.is_refused("view", "desk", *ACME, "--web", "--novnc", str(tmp_path))
    assert "noVNC is not installed" in refused["message"] and "apt-get install novnc" in refused["hint"]
    desk.does("stop-vm", "plain", *ACME, "--timeout", "0")
    refused = desk.is_refused("view", "plain", *ACME)
    assert "does not run" in refused["message"] and "start-vm acme/plain" in refused["hint"]


def test_a_console_that_was_set_comes_with_the_next_start(desk: Operator) -> None:
    desk.does("set-console", "plain", "emulated", *ACME)
    desk.does("start-vm", "plain", *ACME)
    xml = desk.does("render-vm", "plain", *ACME, "--existing").out
    assert "<graphics type='vnc'" in xml and "<listen type='none'/>" in xml
    done = desk.json("set-console", "plain", "none", *ACME)
    assert (done["changed"], done["pending_restart"]) == (True, True)
    assert desk.json("list-events", "--kind", "vm-console-set")[-1]["after"]["display"] == "none"
    desk.does("stop-vm", "plain", *ACME, "--timeout", "0")
    desk.does("start-vm", "plain", *ACME)
    assert "has no display" in desk.is_refused("view", "plain", *ACME)["message"]


def test_a_spice_viewer_gets_its_answer_too(desk: Operator) -> None:
    desk.does("create-vm", "spice", *SMALL, "--memory", "64MiB", "--display", "spice", "--video", "qxl")
    process = desk.start("view", "spice", *ACME, "--json")
    assert process.stdout is not None
    opened = json.loads(process.stdout.readline())
    assert opened["url"] == f"spice://127.0.0.1:{opened['port']}"
    # SpiceLinkMess of the main channel: connection 0, channel 1, id 0, no capabilities after 18 bytes.
    message = struct.pack("<IBBIII", 0, 1, 0, 0, 0, 18)
    with connect(opened["port"]) as client:
        client.sendall(b"REDQ" + struct.pack("<III", 2, 2, len(message)) + message)
        assert client.recv(4) == b"REDQ"
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0
    desk.does("delete-vm", "spice", *ACME, "--yes", "--timeout", "0")
