# SPDX-License-Identifier: Apache-2.0
"""libvirt in a dry run: each call that vgpuctl makes is known to read or to change."""

import ast
from pathlib import Path

import libvirt
import pytest

from tests.unit.uses_of_names import nodes
from vgpuctl import guests
from vgpuctl.guests.libvirtd import rehearsed
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.guests.libvirtd.storage import Storage
from vgpuctl.model.rehearsal import Rehearsal, RehearsalEnds, RehearsedStep

_CLASSES = ("virConnect", "virDomain", "virStoragePool", "virStorageVol", "virNetwork", "virNWFilter")
_OTHERS = {"close", "setKeepAlive", "hostname", "vcpus"}
"""Calls on the connection itself, and attributes of other objects that have the name of a method of libvirt."""
_TABLES = (rehearsed.READS, rehearsed.UNNEEDED.keys(), rehearsed.CHANGES.keys())


def _used() -> set[str]:
    methods = {name for one in _CLASSES for name in dir(getattr(libvirt, one)) if not name.startswith("_")}
    files = Path(guests.__file__).parent.rglob("*.py")
    inside = [node for file in files for node in nodes(file)]
    return {node.attr for node in inside if isinstance(node, ast.Attribute) and node.attr in methods} - _OTHERS


def test_every_method_of_libvirt_that_is_used_is_in_one_table_and_no_other_is() -> None:
    known = [name for table in _TABLES for name in table]
    assert len(known) == len(set(known))
    assert set(known) == _used()


def test_a_change_is_noted_and_not_made() -> None:
    rehearsal = Rehearsal()
    with Hypervisor("test:///default") as there:
        (domain,) = there.domains()
    with Hypervisor("test:///default", host="gpu1", rehearsal=rehearsal) as there:
        assert [one.name for one in there.domains()] == [domain.name]
        assert [one.name for one in Storage(there).pools()] == ["default-pool"]
        assert not there.clear_autostart(domain.name)
        with pytest.raises(RehearsalEnds):
            there.destroy(domain.name)
        assert rehearsal.take() == (RehearsedStep("gpu1", f"force off domain {domain.name}"),)
        assert rehearsal.take() == ()
        assert [one.state for one in there.domains()] == [domain.state]
