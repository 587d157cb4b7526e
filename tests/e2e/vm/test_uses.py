# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/uses: every command of them runs, in their order, on simulated hosts, and prints what they show."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import machine, simulated_fleet
from vgpuctl_lab.simulated.layout import simulated_folder

PAGES = sorted((Path(__file__).parents[3] / "docs" / "uses").glob("*.md"))
_BLOCK = re.compile(r"^```(yaml|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """One host with an A40, two with eight H100 on two NUMA nodes, in FABRIC_MODE 1 and 2."""
    h100 = "h100-sxm5-80gb"
    mix = f"a40,{h100}/passthrough~fabric-shared*8,{h100}~fabric-vgpu*8"
    with simulated_fleet(tmp_path_factory.mktemp("uses"), 3, mix) as made:
        yield made


@pytest.fixture
def operator(fleet: lab.LabFolder, tmp_path: Path) -> Operator:
    """An operator with a new store; the first host has the images of the pages."""
    images = machine(fleet, "sim-001").root / "srv" / "images"
    images.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        for name in re.findall(r"--path /srv/images/(\S+)", page.read_text(encoding="utf-8")):
            (images / name).write_bytes(_image(name))
    return Operator(tmp_path, simulated_folder(fleet).inventory, f"sqlite:///{tmp_path}/store.db")


def _image(name: str) -> bytes:
    """A qcow2 header of version 3 for a disk of 1 GiB without a backing file, or any bytes for a medium."""
    if not name.endswith(".qcow2"):
        return name.encode()
    header = b"QFI\xfb" + (3).to_bytes(4, "big") + bytes(12) + (16).to_bytes(4, "big") + (2**30).to_bytes(8, "big")
    return header.ljust(100, b"\0") + (104).to_bytes(4, "big") + bytes(65432)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_runs(page: Path, operator: Operator, fleet: lab.LabFolder) -> None:
    ran, tenants = 0, set[str]()
    printed: list[str] = []
    try:
        for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "yaml":
                name = text.partition("\n")[0].removeprefix("# ")
                Path(operator.home, name).write_text(text)
                tenants.update(re.findall(r"^tenant: (\S+)", text, re.MULTILINE))
                continue
            for line in text.splitlines():
                if not line.startswith("$ "):
                    assert _plain(line) in printed, (line, printed)
                    continue
                program, *arguments = shlex.split(line)[1:]
                if program == "ssh":
                    assert arguments[1:] == ["systemctl", "restart", "nvidia-fabricmanager"]
                    lab.faults.begin(arguments[0], "fabric-restarted", folder=fleet)
                    continue
                assert program == "vgpuctl"
                files = [str(operator.home / one) if one.endswith((".yml", ".png")) else one for one in arguments]
                if arguments[0] == "check-vm":  # the guests of libvirt's test driver have no agent
                    done = operator.run(*files)
                    assert (done.code, "broken" in done.out) == (14, False), done
                else:
                    done = operator.does(*files)
                    ran += 1
                printed = [*map(_plain, done.out.splitlines())]
        assert ran > 3
    finally:
        for tenant in tenants:
            operator.does("offboard-tenant", tenant, "--yes", "--timeout", "0", "--delete-disks")
        for host in simulated_folder(fleet).host_names():
            lab.faults.clear(host, folder=fleet)


def _plain(line: str) -> str:
    """A line without its columns, and without the age of what it tells."""
    return " ".join(re.sub(r", \d+[smh] ago", "", line).split())
