# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/uses: every command of them runs, in their order, on simulated hosts."""

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
    """One host with an A40, one with eight H100 on two NUMA nodes."""
    with simulated_fleet(tmp_path_factory.mktemp("uses"), 2, "a40,h100-sxm5-80gb/passthrough*8") as made:
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
def test_every_command_of_the_page_runs(page: Path, operator: Operator) -> None:
    ran, tenants = 0, set[str]()
    try:
        for kind, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "yaml":
                name = text.partition("\n")[0].removeprefix("# ")
                Path(operator.home, name).write_text(text)
                tenants.add(re.findall(r"^tenant: (\S+)", text, re.MULTILINE)[0])
                continue
            for line in text.splitlines():
                prompt, program, *arguments = shlex.split(line)
                assert (prompt, program) == ("$", "vgpuctl")
                files = [str(operator.home / one) if one.endswith((".yml", ".png")) else one for one in arguments]
                if arguments[0] == "check-vm":  # the guests of libvirt's test driver have no agent
                    done = operator.run(*files)
                    assert (done.code, "broken" in done.out) == (14, False), done
                    continue
                operator.does(*files)
                ran += 1
        assert ran > 3
    finally:
        for tenant in tenants:
            operator.does("offboard-tenant", tenant, "--yes", "--timeout", "0", "--delete-disks")
