# SPDX-License-Identifier: Apache-2.0
"""Resources that a host has used up: memory, huge pages, pools."""

import pytest

from tests.unit.planner.doctor.test_checks import a40, seen
from vgpuctl.agent.wire.facts import UnreadPart
from vgpuctl.agent.wire.memory import HugepageFacts, PoolSpace
from vgpuctl.model.exhaustible import OF_RESOURCES
from vgpuctl.model.faults import remedy_of
from vgpuctl.planner.doctor import Examined, Severity, examine

IDS = {str(one.fault) for one in OF_RESOURCES}


def pool(available: int, total: int = 100 << 30) -> Examined:
    return seen(a40(), pool_spaces=(PoolSpace("default", "/srv", "nas:/vms", total, available),))


def pages(free: int, total: int = 8) -> Examined:
    return seen(a40(), facts={"hugepages": (HugepageFacts(1 << 20, total, free, is_mounted=True),)})


def memory(available_mib: int, **facts: object) -> Examined:
    told = {"memory_mib": 1000, "memory_available_mib": available_mib, "hugepages": (), **facts}
    return seen(a40(), facts=told)


@pytest.mark.parametrize(
    ("found", "severity", "read"),
    [
        (pool(1 << 30), Severity.WARNING, "disk pool default on nas:/vms: 99 GiB of 100 GiB are used"),
        (pages(0), Severity.NOTE, "1 GiB huge pages: 8 GiB of 8 GiB are used"),
        (memory(20), Severity.WARNING, "memory: 980 MiB of 1000 MiB are used"),
        # 900 MiB are in huge pages, of which the kernel counts none as available.
        (memory(2, hugepages=(HugepageFacts(2048, 450, 400),)), Severity.WARNING, "memory: 98 MiB of 100 MiB are used"),
    ],
)
def test_what_is_used_up_is_a_finding_with_the_id_and_remedy_of_its_fault(
    found: Examined, severity: Severity, read: str
) -> None:
    (finding,) = [one for one in examine(found) if str(one.check) in IDS]
    assert (finding.severity, finding.read) == (severity, read)
    (kind,) = [one for one in OF_RESOURCES if str(one.fault) == str(finding.check)]
    assert finding.fix == remedy_of(kind.fault)


@pytest.mark.parametrize(
    "found",
    [
        pool(20 << 30),
        pool(0, total=0),
        pages(1),
        pages(0, total=0),
        memory(100),
        memory(0, unread=(UnreadPart("memory_available_mib", "EIO"),)),
        memory(20, hugepages=(HugepageFacts(2048, 450, 400),)),
        memory(0, hugepages=None),
        memory(0, unread=(UnreadPart("hugepages", "EIO"),)),
        seen(a40(), facts={"hugepages": None}),
    ],
)
def test_what_is_left_or_was_not_read_is_none(found: Examined) -> None:
    assert [one for one in examine(found) if str(one.check) in IDS] == []
