# SPDX-License-Identifier: Apache-2.0
"""Every list of the command line: its columns, what a terminal of 80 columns shows of them, and unknown tenants."""

import csv
import importlib
import io
import re
from dataclasses import replace
from pathlib import Path

import click
import pytest

from tests.stored_fleet import AT, fill, open_stored
from tests.unit.fleet_factory import emulated_a40, host_facts, vm
from vgpuctl.agent.wire.fabric import FabricGpu, FabricManagerFacts, FabricPartition
from vgpuctl.agent.wire.facts import UnreadFunction, UnreadPart
from vgpuctl.cli.contents import COMMANDS, FOLDERS, MADE_BY
from vgpuctl.cli.lists.listing import Listing
from vgpuctl.cli.main import command as vgpuctl
from vgpuctl.cli.main import run
from vgpuctl.cli.shown.table_text import TableColumn, table_text
from vgpuctl.errors import HostError, NotFound, PartialFailure
from vgpuctl.model.licence import Edition, LicencePool
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.volume import Volume, VolumeKind
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import open_store

LISTS = [*sorted(name for name in COMMANDS if name.startswith("list-")), "show-usage"]
_NAMED = ("HOST", "VM", "GPU", "TENANT", "POOL", "NETWORK", "CIDR", "PROFILE", "ADDRESS", "TARGET", "NODE", "IMAGE")
_TYPICAL = {
    "HOST": "gpu-host-12",
    "GPU": "0000:41:00.0",
    "TENANT": "acme-corp",
    "VM": "trainer-12",
    "CIDR": "10.0.0.0/24",
}
"""Names of usual lengths; other cells are as wide as their heading."""
_NEEDED = {
    "list-gpus": ("HOST", "GPU", "BOARD", "FREE", "HEALTH", "CLOSED"),
    "list-vms": ("TENANT", "VM", "STATE", "HOST", "GPU SHARES"),
    "list-hosts": ("HOST", "STATE", "CLOSED"),
    "list-partitions": ("HOST", "PARTITION", "MODULES", "STATE", "VM"),
}
"""What an operator needs in order to act, and is never left out."""


def _listings(name: str) -> list["Listing[object, object]"]:
    module = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.{MADE_BY.get(name, name.replace('-', '_'))}")
    return [one for one in vars(module).values() if isinstance(one, Listing)]


@pytest.mark.parametrize("name", LISTS)
def test_every_list_command_has_a_table_of_columns(name: str) -> None:
    assert _listings(name)


@pytest.mark.parametrize("name", LISTS)
def test_every_list_fits_80_columns_and_keeps_what_names_a_row(name: str) -> None:
    for listing in _listings(name):
        columns = [one for one in listing.columns if not one.is_wide]
        headings = [TableColumn(one.heading, one.drops, one.is_text) for one in columns]
        row = [_TYPICAL.get(one.heading, "x" * (40 if one.is_text else len(one.heading))) for one in columns]
        made = table_text(headings, [row], 80)
        assert max(len(line) for _, line in made.lines) <= 80
        assert columns[0].heading not in made.left_out
        assert len(columns) - len(made.left_out) >= min(len(columns), 4)


@pytest.mark.parametrize("name", LISTS)
def test_long_names_are_cut_so_that_what_is_needed_to_act_fits(name: str) -> None:
    for listing in _listings(name):
        columns = [one for one in listing.columns if not one.is_wide]
        headings = [TableColumn(one.heading, one.drops, one.is_text) for one in columns]
        row = ["x" * 48 if one.heading in _NAMED or one.is_text else one.heading for one in columns]
        made = table_text(headings, [row], 80)
        assert max(len(line) for _, line in made.lines) <= 80
        assert not {one.heading for one in columns if not one.drops} & {*made.left_out}
        assert not {*_NEEDED.get(name, ())} & {*made.left_out}


@pytest.mark.parametrize("name", LISTS)
def test_names_and_addresses_are_no_texts_that_lose_their_end(name: str) -> None:
    for listing in _listings(name):
        assert not [one.heading for one in listing.columns if one.is_text and one.heading in _NAMED]


@pytest.mark.parametrize("name", LISTS)
def test_no_two_columns_of_a_list_have_the_same_name(name: str) -> None:
    for listing in _listings(name):
        names = [one.name for one in listing.columns]
        assert len(set(names)) == len(names)
        assert all(names)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an empty store."""
    file = tmp_path_factory.mktemp("store") / "store.db"
    open_store(f"sqlite:///{file}").close()
    return file


def _of_tenants() -> list[str]:
    """The lists that can be of one tenant, without the events: they outlive their tenant."""
    found = {name: vgpuctl.get_command(click.Context(vgpuctl), name) for name in COMMANDS if name.startswith("list-")}
    has_tenant = {name for name, one in found.items() if one and any(each.name == "tenant" for each in one.params)}
    return sorted(has_tenant - {"list-events", "list-snapshots"})


@pytest.mark.parametrize("name", _of_tenants())
def test_a_tenant_that_is_not_there_is_told_and_no_empty_list(
    name: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([name, "--tenant", "nobody", "--database", f"sqlite:///{store}"]) == NotFound.exit_code
    assert "nobody" in capsys.readouterr().err


_HOSTS = ("gpu1", "gpu2", "silent")
_OF_NOTHING = ("list-contexts", "list-external-networks", "list-images", "list-networks")
_EMPTY = {*_OF_NOTHING, "list-node-pools", "list-host-pools", "list-vpc-objects", "list-security-rules"}
"""Lists without a row in the store below; none of them has a column with a unit."""
_IN_WORDS = re.compile(r"[0-9.]+ ?(?:[KMGT]i?B|[smhdw%])\b|%| ago\b|since [0-9]")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a store, and a VM of it with a disk and a snapshot. Another VM waits."""
    folder = tmp_path_factory.mktemp("filled")
    with open_stored(folder, _HOSTS) as services:
        fleet = fill(services, _HOSTS[:2], cards=3, shares=6)
        lease = fleet.leases[0]
        with services.store.transaction() as session:
            session.set_quotas("acme", [Quota("memory", 65536, 8192), Quota("gpu-hours", 7200)])
            waits = replace(vm("A40-48Q", name="waits"), tenant="acme")
            session.join_queue(QueueKind.CREATE, waits, "no GPU is free")
            asked, shares = waits.gpus, (lease.share,)
            kept = Reservation("acme", "night", asked, "gpu1", shares, AT + 3600, AT + 7200, 86_400)
            session.add_reservation(kept, session.generation("gpu1"))
            known = session.facts("gpu2")
            assert known is not None
            partition = FabricPartition(7, True, (FabricGpu(1, 18, 18, 26562),))
            manager = FabricManagerFacts(1, "127.0.0.1:6666", (partition,))
            session.save_facts("gpu2", replace(known.facts, fabric_manager=manager), at=AT)
            of_vm = (lease.vm_uuid, lease.tenant, lease.vm_name, lease.host)
            data = Volume(*of_vm, VolumeKind.DATA, "default", "data.qcow2", capacity_bytes=2**30, label="data")
            overlay = Volume(*of_vm, VolumeKind.OVERLAY, "default", "data.1", capacity_bytes=2**30, label="first/data")
            session.intend_volume(data)
            session.intend_volume(overlay)
            session.put_licence_pool(LicencePool("vws", Edition.VWS, 8))
            session.beat_controller("machine/7/0", _HOSTS)
    return folder, f"{lease.tenant}/{lease.vm_name}"


def _csv(folder: Path, vm_name: str, name: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """The rows of a list; no host is asked."""
    command = vgpuctl.get_command(click.Context(vgpuctl), name)
    assert command is not None
    options = {option for one in command.params for option in one.opts}
    given = {"--database": f"sqlite:///{folder}/store.db", "--inventory": f"{folder}/inventory.yml"}
    arguments = [part for one in given.items() if one[0] in options for part in one]
    arguments += [one for one in ("--cached", "-A") if one in options]
    arguments += [vm_name] * (name == "list-snapshots")
    run([name, "-o", "csv", *arguments])
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


@pytest.mark.parametrize("name", LISTS)
def test_no_cell_of_csv_has_a_unit_or_an_age_in_words(
    name: str, filled: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _csv(*filled, name, capsys)
    assert bool(rows) == (name not in _EMPTY)
    assert rows or not [one for each in _listings(name) for one in each.columns if one.unit is not None]
    texts = {one.csv_name for each in _listings(name) for one in each.columns if one.is_text and one.key is None}
    assert not [cell for row in rows for head, cell in row.items() if head not in texts and _IN_WORDS.search(cell)]


@pytest.mark.parametrize("arguments", [("list-hosts", "--cached"), ("list-gpus",), ("list-profiles",), ("map",)])
@pytest.mark.parametrize("part", ["function", "memory"])
def test_a_list_that_leaves_out_what_could_not_be_read_fails(
    arguments: tuple[str, ...], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = host_facts([emulated_a40("0000:41:00.0").facts()])
    unread = {
        "function": replace(whole, gpus=(), unread_functions=(UnreadFunction("0000:41:00.0", "EIO"),)),
        "memory": replace(whole, memory_mib=0, unread=(UnreadPart("memory_mib", "EIO"),)),
    }
    with open_stored(tmp_path, ("gpu1", "gpu2")) as services, services.store.transaction() as session:
        session.save_facts("gpu1", unread[part], at=AT)
        session.save_facts("gpu2", whole, at=AT)
    where = ("--database", f"sqlite:///{tmp_path}/store.db", "--inventory", f"{tmp_path}/inventory.yml")
    is_listed = part == "function" or arguments[0] == "list-hosts"
    assert run([*arguments, *where, "-l", "gpu2"]) == 0
    capsys.readouterr()
    assert run([*arguments, *where]) == (PartialFailure.exit_code if is_listed else 0)
    assert ("gpu1: not everything could be read: " in capsys.readouterr().err) == is_listed
    assert run([*arguments, *where, "-l", "gpu1"]) == (HostError.exit_code if is_listed else 0)
