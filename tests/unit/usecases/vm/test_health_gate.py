# SPDX-License-Identifier: Apache-2.0
"""The gate before a GPU is handed out: what a host that is just starting does not tell is waited for."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.usecases.seats.licensed_share import SHARE
from vgpuctl.agent.wire.health import GpuHealth, HostHealth
from vgpuctl.errors import ConcurrentChange
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode, HealthPolicy
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.sharing.health import START_S
from vgpuctl.store.store import open_store
from vgpuctl.usecases.share.health_gate import refuse_sick

HOST: Any = SimpleNamespace(name="gpu1")
LEASE = Lease("lease-1", "uuid-1", "acme", "web", "gpu1", 0, SHARE, LeaseState.RESERVED)
SILENT = GpuHealth(SHARE.gpu, "10de:2235", "10de:2235", "nvidia", unread=("NVML does not show it",))


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Any]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        yield SimpleNamespace(store=store, inventory=SimpleNamespace(health_policy=lambda _: DEFAULT_HEALTH_POLICY))


def quarantines(services: Any) -> list[str]:
    with services.store.reading() as session:
        return [one.device for one in session.restrictions()]


def test_a_gpu_of_a_starting_host_that_cannot_be_read_is_refused_for_now_alone(services: Any) -> None:
    early = HostHealth("boot-2", (SILENT,), read_at_s=20.0)
    with pytest.raises(ConcurrentChange, match="gpu1 was booted a moment ago") as refused:
        refuse_sick(services, HOST, [LEASE], early)
    assert refused.value.hint == "try again in a minute"
    assert quarantines(services) == []
    refuse_sick(services, HOST, [LEASE], replace(early, gpus=(replace(SILENT, unread=()),)))
    assert quarantines(services) == []


def test_another_gpu_of_the_host_is_handed_out_meanwhile(services: Any) -> None:
    other = replace(SILENT, address="0000:99:00.0")
    refuse_sick(services, HOST, [LEASE], HostHealth("boot-2", (replace(SILENT, unread=()), other), read_at_s=20.0))
    assert quarantines(services) == []


def test_later_it_goes_into_quarantine(services: Any) -> None:
    with pytest.raises(ConcurrentChange, match="the GPU is in quarantine now"):
        refuse_sick(services, HOST, [LEASE], HostHealth("boot-2", (SILENT,), read_at_s=START_S))
    assert quarantines(services) == [SHARE.gpu]


def test_a_host_whose_policy_tolerates_what_cannot_be_read_hands_it_out_at_once(services: Any) -> None:
    tolerant = HealthPolicy(tolerate=(*DEFAULT_HEALTH_POLICY.tolerate, HealthCode.UNREAD))
    services.inventory.health_policy = lambda _: tolerant
    refuse_sick(services, HOST, [LEASE], HostHealth("boot-2", (SILENT,), read_at_s=20.0))
    assert quarantines(services) == []
