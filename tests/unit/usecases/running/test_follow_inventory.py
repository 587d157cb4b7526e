# SPDX-License-Identifier: Apache-2.0
"""A long run reads its inventory again when somebody has changed one of the files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.inventory.fingerprint import fingerprint
from vgpuctl.inventory.load import Inventory, load_inventory
from vgpuctl.model.layout import PassthroughLayout
from vgpuctl.usecases.running.services import HostSession, Openers, Services

HOSTS = "all: {hosts: {gpu1: {ansible_port: 2201}, gpu2: {ansible_port: 2202}}}\n"
LAYOUT = "vgpu: {version: 1, gpus: [{match: all, kind: KIND}]}\n"


class _Line:
    """A connection that nobody opens."""

    way = None

    def __init__(self, inventory: Inventory, name: str, closed: list[str]) -> None:
        self.target = inventory.target(name)
        self._closed = closed

    def close(self) -> None:
        self._closed.append(self.target.name)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The inventory file, in a folder with variable files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "inventory"
    (folder / "host_vars").mkdir(parents=True)
    path = folder / "hosts.yml"
    path.write_text(HOSTS)
    (folder / "host_vars" / "gpu1.yml").write_text(LAYOUT.replace("KIND", "vgpu"))
    return path


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def closed() -> list[str]:
    return []


@pytest.fixture
def services(hosts: Path, told: list[str], closed: list[str]) -> Iterator[Services]:
    unused: Any = None

    def session(inventory: Inventory, name: str) -> HostSession:
        line: Any = _Line(inventory, name, closed)
        return HostSession(name, line, unused, unused)

    with Services(
        Openers(
            inventory=lambda: load_inventory([hosts]),
            store=unused,
            store_place=unused,
            session=session,
            inventory_mark=lambda: fingerprint([hosts]),
        ),
        forks=1,
        say=told.append,
    ) as opened:
        assert opened.hosts() == ["gpu1", "gpu2"]
        for _ in range(3):
            opened.follow_inventory()
        assert told == []
        yield opened


def kind(services: Services) -> str:
    layout = services.inventory.layout("gpu1")
    assert layout is not None
    return "passthrough" if isinstance(layout.gpus[0].layout, PassthroughLayout) else "vgpu"


def test_a_changed_variable_file_counts_once_nobody_writes_it_any_more(
    services: Services, hosts: Path, told: list[str]
) -> None:
    assert kind(services) == "vgpu"
    (hosts.parent / "host_vars" / "gpu1.yml").write_text(LAYOUT.replace("KIND", "passthrough"))
    services.follow_inventory()
    assert kind(services) == "vgpu", "an editor may be at work on it"
    services.follow_inventory()
    assert kind(services) == "passthrough"
    services.follow_inventory()
    assert told == ["the inventory was read again: it has changed"]


def test_hosts_come_and_go_and_what_moved_is_connected_again(
    services: Services, hosts: Path, closed: list[str]
) -> None:
    for name in ("gpu1", "gpu2"):
        services.host(name)
    hosts.write_text("all: {hosts: {gpu2: {ansible_port: 2299}, gpu3: {}}}\n")
    for _ in range(2):
        services.follow_inventory()
    assert services.hosts() == ["gpu2", "gpu3"]
    assert sorted(closed) == ["gpu1", "gpu2"]
    assert services.host("gpu2").connection.target.port == 2299
    hosts.write_text("all: {hosts: {gpu2: {ansible_port: 2299}}}\n")
    for _ in range(2):
        services.follow_inventory()
    assert sorted(closed) == ["gpu1", "gpu2"], "a host that has not moved keeps its connection"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("hosts.yml", "all: {hosts: {gpu1: ", "hosts.yml"),
        ("host_vars/gpu1.yml", LAYOUT.replace("KIND", "nonsense"), "'nonsense'"),
        ("host_vars/gpu2.yml", "ansible_port: abc", "ansible_port"),
    ],
)
def test_an_inventory_with_a_mistake_is_told_and_not_used(
    services: Services, hosts: Path, told: list[str], file: str, text: str, why: str
) -> None:
    assert kind(services) == "vgpu"
    (hosts.parent / file).write_text(text)
    for _ in range(4):
        services.follow_inventory()
    assert len(told) == 1
    assert told[0].startswith("the changed inventory is not used: ") and why in told[0]
    assert (services.hosts(), kind(services)) == (["gpu1", "gpu2"], "vgpu")


def test_a_fingerprint_counts_every_file_and_no_link_leads_it_astray(hosts: Path) -> None:
    before = fingerprint([hosts])
    assert {Path(one[0]).name for one in before} == {"hosts.yml", "gpu1.yml"}
    assert fingerprint([hosts.parent]) == before
    (hosts.parent / "host_vars" / "up").symlink_to(".")
    (hosts.parent / ".hosts.yml.swp").write_text("")
    assert fingerprint([hosts.parent]) == before
    (hosts.parent / "group_vars").mkdir()
    (hosts.parent / "group_vars" / "all.yml").write_text("a: 1")
    assert len(fingerprint([hosts])) == 3
    assert fingerprint(["gpu1,gpu2,", "/nonexistent"]) == frozenset()
