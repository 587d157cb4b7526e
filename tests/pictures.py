# SPDX-License-Identifier: Apache-2.0
"""Take the pictures of docs/images again: 40 simulated hosts, their pages in Chromium, and a map in a terminal.

    python -m tests.pictures

Commands run with clocks of the last two months, so that ages, ledger and events are those of a fleet in use. The
readings of that time are made up; those of the pages' last minutes come from the simulated hosts.
"""

import contextlib
import io
import math
import re
import shutil
import sqlite3
import struct
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import vgpuctl_lab as lab
from tests.chromium_fixture import chromium
from tests.e2e.operator import Operator
from tests.e2e.telemetry.test_web import RunningWeb, running_web
from tests.png_reader import read_png
from tests.unit.test_docs_links import LARGEST_PICTURE
from vgpuctl.quota.limits import month_of
from vgpuctl_lab.simulated.layout import simulated_folder

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_DAY_S, _HOUR_S = 86_400, 3600
_MIX = "a40*4:20,l40s*2:13,h100-pcie*4:7"
_LAYOUT = """\
simulated_hosts: {vars: {vgpu: {version: 1, gpus: [
  {match: {board: H100 PCIe}, kind: mig-vgpu, geometry: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 2}}, {match: all, kind: vgpu}
]}}}
"""
_VMS = (
    (3, "acme", "desk", "A40-8Q", 26),
    (4, "globex", "cad", "A40-12Q", 22),
    (6, "acme", "train", "L40S-48Q", 6),
    (9, "initech", "pc", "A40-4Q", 40),
    (12, "umbrella", "render", "L40S-24Q", 16),
    (17, "wayne", "notebook", "H100-1-10C", 24),
    (18, "umbrella", "solver", "H100-3-40C", 12),
    (22, "globex", "preview", "A40-24Q", 18),
    (24, "acme", "infer", "H100-2-20C", 16),
    (26, "wayne", "stream", "A40-16Q", 20),
)
"""Day of the last month, tenant, name, profile and number of VMs."""
_SIZE = ("--memory", "8GiB", "--vcpus", "2", "--network", "none")


@contextlib.contextmanager
def fleet(home: Path) -> Iterator[Operator]:
    """40 hosts with 134 GPUs and 200 VMs of five tenants, some of them with faults, for an operator with a store."""
    folder = lab.LabFolder(home / "lab")
    lab.simulated.up(40, mix=_MIX, folder=folder)
    try:
        inventory = home / "inventory"
        inventory.mkdir()
        shutil.copy(simulated_folder(folder).inventory, inventory / "hosts.yml")
        (inventory / "layout.yml").write_text(_LAYOUT)
        operator = Operator(home, inventory, f"sqlite:///{home}/store.db", {"VGPUCTL_COMMAND_TIMEOUT": "60"})
        _fill(operator, folder, _last_month())
        _break(operator, folder)
        yield operator
    finally:
        lab.simulated.down(folder=folder)


def _fill(operator: Operator, folder: lab.LabFolder, begin: float) -> None:
    """Tenants with VMs since days of a month that begins then, and what happened to them there."""
    first = operator.at(begin + _HOUR_S)
    first.does("apply-hosts", "--yes")
    for tenant in sorted({one[1] for one in _VMS}):
        first.does("create-tenant", tenant)
    first.does("set-quota", "globex", "shares:A40-24Q=20")
    for day, tenant, name, gpu, number in _VMS:
        created = operator.at(begin + day * _DAY_S + 9.4 * _HOUR_S)
        created.does("create-vm", name, "--tenant", tenant, "--gpu", gpu, "--count", str(number), *_SIZE)
    host, gpu = card_of(operator, "acme", "desk-1")
    lab.faults.begin(host, "fallen", card=gpu, folder=folder)
    operator.at(begin + 19.3 * _DAY_S).does("list-gpus", "--refresh", "--limit", host)
    lab.faults.clear(host, folder=folder)
    repaired = operator.at(begin + 19.5 * _DAY_S)
    repaired.does("list-gpus", "--refresh", "--limit", host)
    repaired.does("unquarantine-gpu", host, gpu, "--reason", "its riser was replaced")


def _break(operator: Operator, folder: lab.LabFolder) -> None:
    """A card off the bus, one in quarantine, a host without power, a cordoned host, a VM that waits."""
    lab.faults.begin("sim-003", "fallen", folder=folder)
    lab.faults.begin("sim-024", "power-off", folder=folder)
    host, gpu = card_of(operator, "globex", "preview-1")
    operator.does("quarantine-gpu", host, gpu, "--reason", "ECC errors, replacement is ordered")
    operator.does("cordon-host", "sim-036", "--reason", "new driver on Monday")
    operator.does("create-vm", "train-7", "--tenant", "acme", "--gpu", "4*L40S-48Q", "--queue", *_SIZE)
    operator.run("list-hosts")  # it ends with the code of a host that gives no answer
    operator.run("list-gpus", "--refresh")
    for tenant, vms in (("acme", ("train-1",)), ("globex", ("preview-1", "preview-2"))):
        operator.run("check-vm", *vms, "--tenant", tenant)  # its exit code is the verdict


def card_of(operator: Operator, tenant: str, vm: str) -> tuple[str, str]:
    """Host and address of the GPU of a VM's first share."""
    query = "SELECT host, gpu FROM usage WHERE tenant = ? AND vm_name = ?"
    with closing(sqlite3.connect(_store(operator))) as database:
        host, gpu = database.execute(query, (tenant, vm)).fetchone()
    return host, gpu


def _store(operator: Operator) -> Path:
    return Path(operator.database.removeprefix("sqlite:///"))


@contextlib.contextmanager
def web(operator: Operator) -> Iterator[RunningWeb]:
    """The pages of the fleet, after each host was read; what they measure has a past."""
    with running_web(operator, "--interval", "5") as running:
        for number in range(1, 41):
            running.wait_for(f"/hosts/sim-{number:03}", "readings")
        _make_past(operator, time.time())
        yield running


def _make_past(operator: Operator, now: float) -> None:
    """Give each value a past: hours for two months or since the begin of its VM, minutes for a day."""
    store = _store(operator)
    with closing(sqlite3.connect(store)) as database:
        begun = dict(
            database.execute("SELECT tenant || '/' || vm_name, min(begun_at) FROM usage GROUP BY 1").fetchall()
        )
    with closing(sqlite3.connect(store.with_name(f"{store.name}.history"))) as history, history:
        values = history.execute(
            "SELECT o.id, o.tenant || '/' || o.vm, s.measure, max(s.mean) FROM objects o"
            " JOIN samples s ON s.object = o.id GROUP BY o.id, s.measure"
        ).fetchall()
        for number, (thing, vm, measure, mean) in enumerate(values):
            since = max(now - 62 * _DAY_S, begun.get(vm, 0.0))
            for step, length_s in ((_HOUR_S, 62 * _DAY_S), (60, _DAY_S)):
                times = range(int(max(since, now - length_s) // step * step), int(now // step * step), step)
                rows = (
                    (thing, measure, step, at, 1, part * mean, part * mean, part * mean, step // 60)
                    for at in times
                    for part in [_wave(at, number)]
                )
                history.executemany("INSERT OR IGNORE INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _wave(at: float, number: int) -> float:
    """A part of the highest value: higher by day than by night, and uneven."""
    by_day = 0.5 - 0.5 * math.cos(2 * math.pi * at / _DAY_S)
    return 0.25 + 0.5 * by_day + 0.2 * math.sin(at / 1700 + number) * math.sin(at / 410 + 3 * number)


def take(operator: Operator, url: str, scratch: Path, folder: Path) -> None:
    """Take each picture: a PNG of 1280 pixels' width, or an SVG. Raises AssertionError for one that is too large."""
    host, gpu = card_of(operator, "globex", "preview-1")
    month = time.strftime("%Y-%m", time.gmtime(_last_month()))
    report = scratch / "report.html"
    operator.does("report", "--month", month, "--tenant", "acme", "--html", str(report))
    pages = (
        ("map", f"{url}/", 800),
        ("vms", f"{url}/vms?tenant=acme", 620),
        ("gpu", f"{url}/hosts/{host}/gpus/{gpu}", 960),
        ("vm", f"{url}/tenants/acme/vms/train-1", 960),
        ("report", report.as_uri(), 1180),
    )
    made = {}
    with chromium(scratch / "chromium") as browser:
        for name, address, height in pages:
            with browser.page(width=1280, height=height) as page:
                page.open(address)
                page.screenshot(scratch / "seen.png")
            made[f"{name}.png"] = _smaller((scratch / "seen.png").read_bytes())
    drawn = operator.run_on_terminal("map", "--full", "--limit", "sim-003")
    made["terminal.svg"] = _as_svg(drawn.replace("\r\n", "\n")).encode()
    assert max(map(len, made.values())) < LARGEST_PICTURE, {name: len(content) for name, content in made.items()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in made.items():
        (folder / name).write_bytes(content)


def _last_month() -> float:
    return month_of(month_of(time.time())[0] - 1)[0]


def _as_svg(text: str) -> str:
    """A terminal's text as SVG without the fonts that rich loads from another server."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    return console.export_svg(
        title="vgpuctl map --full -l sim-003",
        code_format=re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.S),
    )


def _smaller(png: bytes) -> bytes:
    """The picture with the 256 colours that are most of it; others become the nearest one."""
    picture = read_png(png)
    counts = Counter(pixel for row in picture.rows for pixel in row)
    colours = [colour for colour, _ in counts.most_common(256)]
    number = {one: min(range(len(colours)), key=lambda at: math.dist(one, colours[at])) for one in counts}
    data = b"".join(b"\0" + bytes(number[pixel] for pixel in row) for row in picture.rows)
    palette = bytes(channel for colour in colours for channel in colour)
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(of)) + name + of + struct.pack(">I", zlib.crc32(name + of)) for name, of in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="vgpuctl-pictures-") as made:
        home = Path(made)
        with fleet(home) as operator, web(operator) as running:
            take(operator, running.url, home, IMAGES)
