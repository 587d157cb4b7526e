# SPDX-License-Identifier: Apache-2.0
"""Exports for other tools: what their remarks say of devices in use and of hosts that give no answer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.stored_fleet import AT, StoredFleet, fill, open_stored
from vgpuctl.model.times import format_time
from vgpuctl.usecases.layout.export_kubevirt import export_kubevirt
from vgpuctl.usecases.layout.export_nova import export_nova
from vgpuctl.usecases.layout.export_proxmox import export_proxmox
from vgpuctl.usecases.layout.tool_exports import ToolExport
from vgpuctl.usecases.observed.observation_record import Silence
from vgpuctl.usecases.observed.observations import read_record
from vgpuctl.usecases.running.services import Services

TOOLS = (export_nova, export_proxmox, export_kubevirt)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[Services, StoredFleet]]:
    with open_stored(tmp_path, ("gpu1", "gpu2")) as services:
        yield services, fill(services, ("gpu1", "gpu2"), cards=2, shares=2)


@pytest.mark.parametrize("export", TOOLS)
def test_devices_that_vms_hold_are_named_with_their_vms(
    export: Callable[..., ToolExport], stored: tuple[Services, StoredFleet]
) -> None:
    services, fleet = stored
    remarks = export(services, ("gpu1",), profile=None, refresh=False).remarks
    held = [one for one in fleet.leases if one.host == "gpu1"]
    assert held
    for lease in held:
        where = f"GPU {lease.share.gpu} of gpu1: VMs of vgpuctl hold "
        (told,) = [one for one in remarks if one.startswith(where)]
        assert f"{lease.share.function} (" in told and f"{lease.tenant}/{lease.vm_name}" in told


@pytest.mark.parametrize("export", TOOLS)
def test_facts_of_a_host_that_gives_no_answer_are_written_with_their_time(
    export: Callable[..., ToolExport], stored: tuple[Services, StoredFleet]
) -> None:
    services, _fleet = stored
    with services.store.transaction() as session:
        record = read_record(session, "gpu2")
        silent = msgspec.structs.replace(record, silence=Silence(AT, "no route to gpu2", "unreachable"))
        session.save_host_record("gpu2", "observations", msgspec.json.encode(silent).decode())
    found = export(services, (), profile=None, refresh=False)
    assert record.read_at is not None
    said = f"gpu2: it is unreachable: no route to gpu2; what is written is of {format_time(record.read_at)} UTC"
    assert found.remarks[0] == said
    assert all(f"# LIMIT: {said}" in one.text for one in found.files)
    assert not any(one.startswith("gpu1: ") for one in found.remarks)
