# SPDX-License-Identifier: Apache-2.0
"""Quotas of what tenants have in the store, held where a row is added: also of disks that move, or were found."""

from dataclasses import replace

import pytest

from vgpuctl.errors import QuotaExceeded
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl.model.volume import Volume, VolumeKind, volume_name
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import Store

GIB = 2**30
UUID = "9c1b3a52-0000-4000-8000-000000000001"


def volume(size_gib: float | None, kind: VolumeKind = VolumeKind.DISK, label: str = "", host: str = "gpu1") -> Volume:
    size = None if size_gib is None else int(size_gib * GIB)
    name = volume_name(UUID, kind, label) if kind is not VolumeKind.OVERLAY else f"{UUID}.{label}.qcow2"
    return Volume(UUID, "acme", "web", host, kind, "default", name, capacity_bytes=size, label=label)


@pytest.fixture
def acme(store: Store) -> Store:
    """A store with a tenant, its VM, and 100 GiB of disks and 50 GiB of snapshots."""
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_tenant("globex")
        session.add_vm(Vm(UUID, VmRequest("web", "acme"), "gpu1", VmState.RUNNING))
        session.set_quotas("acme", [Quota("disk", 100 * 1024), Quota("snapshots", 50 * 1024)])
    return store


def intend(store: Store, *volumes: Volume) -> None:
    with store.transaction() as session:
        for one in volumes:
            session.intend_volume(one)


def test_disks_and_snapshots_are_counted_apart_and_seeds_not_at_all(acme: Store) -> None:
    intend(acme, volume(60), volume(39.5, VolumeKind.DATA, "data"), volume(None, VolumeKind.SEED))
    intend(acme, volume(50, VolumeKind.OVERLAY, "before"))
    with acme.reading() as session:
        used = session.used("acme")
        assert (used["disk"], used["snapshots"]) == (int(99.5 * 1024), 50 * 1024)
        assert "disk" not in session.used("globex")
    with pytest.raises(QuotaExceeded, match="disk") as refused:
        intend(acme, volume(1, VolumeKind.DATA, "more"))
    assert list(refused.value.context) == ["disk: 99.5 GiB of 100 GiB used, 1 GiB asked"]
    assert "set-quota acme disk=102912MiB" in (refused.value.hint or "")
    with pytest.raises(QuotaExceeded, match="snapshots"):
        intend(acme, volume(1, VolumeKind.OVERLAY, "after"))
    with acme.reading() as session:
        assert len(session.volumes(tenant="acme")) == 4, "what was refused left no row"


def test_a_disk_that_moves_counts_once_and_one_that_was_found_is_recorded_whatever_the_quota(acme: Store) -> None:
    intend(acme, volume(80))
    intend(acme, volume(80, host="gpu2"))
    with acme.reading() as session:
        assert session.used("acme")["disk"] == 80 * 1024
    with acme.transaction() as session:
        session.restore_volume(replace(volume(300, VolumeKind.DATA, "found"), key="k", path="/p", format="qcow2"))
    with acme.reading() as session:
        assert session.used("acme")["disk"] == 380 * 1024


def test_a_disk_may_grow_up_to_the_quota_and_a_tenant_above_it_still_takes_other_things(acme: Store) -> None:
    intend(acme, volume(80))
    with acme.reading() as session:
        session.require_room("acme", "disk", 20 * 1024, "disk web")
        with pytest.raises(QuotaExceeded, match="disk web does not fit"):
            session.require_room("acme", "disk", 20 * 1024 + 1, "disk web")
    with acme.transaction() as session:
        session.set_volume_size(volume(80), 120 * GIB)  # it has grown: that is recorded
    intend(acme, volume(5, VolumeKind.OVERLAY, "before"))
    with pytest.raises(QuotaExceeded):
        intend(acme, volume(0.001, VolumeKind.DATA, "small"))


def test_a_guarantee_without_a_limit_refuses_nothing(acme: Store) -> None:
    with acme.transaction() as session:
        session.set_quotas("acme", [Quota("disk", None, 10 * 1024)])
    intend(acme, volume(500))
    with acme.reading() as session:
        assert session.used("acme")["disk"] == 500 * 1024


def test_sums_of_rates_are_held_where_a_request_is_written_whatever_writes_it(acme: Store) -> None:
    other = "9c1b3a52-0000-4000-8000-000000000002"

    def disk(iops: int | None, name: str = "web") -> VmRequest:
        return VmRequest(name, "acme", network=None, disk=DiskRequest(iops=iops))

    with acme.transaction() as session:
        session.set_vm_request(UUID, disk(600))
        session.set_quotas("acme", [Quota("iops", 1000), Quota("bandwidth", 100)])
    for iops, words in ((401, "401 asked"), (None, "10000000 asked")):
        words_of_error = "VM db does not fit into the quota of tenant acme: iops"
        with pytest.raises(QuotaExceeded, match=words_of_error) as refused, acme.transaction() as session:
            session.add_vm(Vm(other, disk(iops, "db"), "gpu1", VmState.CREATING))
        assert refused.value.context[0] == f"iops: 600 of 1000 used, {words}"
    with acme.transaction() as session:
        session.add_vm(Vm(other, disk(400, "db"), "gpu1", VmState.CREATING))
        session.set_vm_request(other, replace(disk(400, "db"), vcpus=4))
    with pytest.raises(QuotaExceeded, match="iops"), acme.transaction() as session:
        session.set_vm_request(other, disk(401, "db"))
    with pytest.raises(QuotaExceeded, match="bandwidth"), acme.transaction() as session:
        session.set_vm_request(other, replace(disk(400, "db"), network="front", bandwidth_mbps=101))
    with acme.transaction() as session:
        session.set_quotas("acme", [Quota("iops", 10)])
        session.set_vm_request(other, disk(399, "db"))
        found = VmRequest("found", "acme", network=None, domain="old")
        session.add_vm(Vm("9c1b3a52-0000-4000-8000-000000000003", found, "gpu1", VmState.RUNNING))
        assert session.used("acme")["iops"] == 600 + 399 + 10_000_000, "one that is adopted is counted"
        session.set_quotas("acme", [Quota("iops", 1000), Quota("default:disk-iops", 1)])
        assert session.with_usual(disk(None, "db")).disk == DiskRequest(iops=1)
        session.require_below(disk(None, "new"), adds_up=False)
