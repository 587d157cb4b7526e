# SPDX-License-Identifier: Apache-2.0
"""Quotas, pools and the usage ledger in the store."""

from dataclasses import replace

import pytest

from tests.integration.store.conftest import Clock
from tests.integration.store.samples import bare, host_facts, lease, reserve, vf_share, vm
from vgpuctl.errors import ConcurrentChange, NotFound, QuotaExceeded
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.lease import LeaseState
from vgpuctl.model.vm import VmRequest, VmState
from vgpuctl.quota.host_pools import HostPool
from vgpuctl.quota.limits import Quota, month_of
from vgpuctl.store.store import Store
from vgpuctl.usecases.placement.quota import refuse_over_quota

FOREVER = (0.0, 1e12)


@pytest.fixture
def filled(store: Store) -> Store:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.add_tenant("umbrella")
        session.save_facts("gpu1", host_facts(), 1.0)
    return store


def test_quotas_come_back_as_set_and_belong_to_one_tenant(filled: Store) -> None:
    wanted = [Quota("framebuffer", 2**40, 0), Quota("shares:A40-8Q", None, 3), Quota("vms", 0)]
    with filled.transaction() as session:
        session.set_quotas("acme", wanted)
        session.set_quotas("acme", wanted)
        with pytest.raises(NotFound):
            session.set_quotas("nobody", wanted)
    with filled.reading() as session:
        assert session.quotas("acme") == wanted
        assert session.quotas("umbrella") == []


def test_a_quota_of_before_names_had_one_form_counts_from_now_on(filled: Store) -> None:
    old = [
        Quota("shares:RTX Pro 6000 Blackwell DC-24Q", 3),
        Quota("shares:A40-24q", 4, 2),
        Quota("shares:A40-24Q", 5),
        Quota("shares:NoSuch-1Q", 1),
    ]
    with filled.transaction() as session:
        session.set_quotas("acme", old)
    with filled.reading() as session:
        assert session.quotas("acme") == [
            Quota("shares:A40-24Q", 4, 2),
            Quota("shares:DC-24Q", 3),
            Quota("shares:NoSuch-1Q", 1),
        ]


def test_the_ledger_tells_two_models_with_one_type_apart(filled: Store) -> None:
    other = replace(vf_share(), profile="DC-16Q", board="rtx-pro-4500-blackwell-server")
    created = vm()
    held = lease(other, vm_uuid=created.uuid)
    with filled.transaction() as session:
        session.add_vm(created)
        session.reserve("gpu1", 0, [held])
        session.set_lease_state(held.id, LeaseState.BUILT)
    with filled.reading() as session:
        (interval,) = session.intervals(*FOREVER)
        assert interval.profile == "DC-16Q:rtx-pro-4500-blackwell-server"
        assert session.used("acme")["shares:DC-16Q:rtx-pro-4500-blackwell-server"] == 1
        assert session.used("acme")["shares:DC-16Q"] == 1


def test_used_counts_vms_live_leases_and_this_months_hours(filled: Store, clock: Clock) -> None:
    created = vm()
    created = replace(created, request=VmRequest("web-1", "acme", vcpus=3, memory_mib=100))
    held = lease(vf_share(), vm_uuid=created.uuid)
    with filled.transaction() as session:
        session.add_vm(created)
        session.reserve("gpu1", 0, [held])
        session.set_lease_state(held.id, LeaseState.BUILT)
    clock.now += 6 * 3600
    with filled.reading() as session:
        assert session.used("acme") == {
            "vms": 1, "vcpus": 3, "memory": 100, "shares:A40-8Q": 1, "framebuffer": 8192, "compute": 166, "nics": 1,
            "gpu-hours": 3600, "bandwidth": 400_000,
        }  # fmt: skip
        assert session.used("umbrella") == {"gpu-hours": 0}
    with filled.transaction() as session:
        session.set_lease_state(held.id, LeaseState.GONE)
        session.delete_vm(created.uuid)
    clock.now += 3600
    with filled.reading() as session:
        assert session.used("acme") == {"gpu-hours": 3600}
    clock.now += 40 * 86_400
    with filled.reading() as session:
        assert session.used("acme") == {"gpu-hours": 0}


def test_declared_times_count_until_they_end_or_the_month_does(filled: Store, clock: Clock) -> None:
    created = replace(vm(), request=VmRequest("web-1", "acme", duration_s=6 * 3600))
    held = lease(vf_share(), vm_uuid=created.uuid)
    with filled.transaction() as session:
        session.add_vm(created)
        session.reserve("gpu1", 0, [held])
        assert session.gpu_seconds_of([(held.host, held.share)] * 2, 6 * 3600) == 7200
        assert (session.gpu_seconds_to_come("acme"), session.gpu_seconds_to_come("umbrella")) == (3600, 0)
        session.set_lease_state(held.id, LeaseState.BUILT)
        session.set_vm_state(created.uuid, VmState.RUNNING)
    clock.now += 3 * 3600
    with filled.transaction() as session:
        assert session.gpu_seconds_to_come("acme") == 1800
        session.set_quotas("acme", [Quota("gpu-hours", 5400)])
        more = VmRequest("web-2", "acme", (parse_gpu_request("A40-8Q"),), duration_s=6 * 3600)
        refuse_over_quota(session, replace(more, duration_s=3600.0), [held])
        with pytest.raises(QuotaExceeded) as refused:
            refuse_over_quota(session, more, [held])
        assert refused.value.context == ("gpu-hours: 1 h of 1.5 h used, 1 h asked",)
        clock.now = month_of(clock.now)[1] - 600
        assert session.gpu_seconds_of([(held.host, held.share)], 6 * 3600) == 100
        session.set_vm_state(created.uuid, VmState.STOPPED)
        assert session.gpu_seconds_to_come("acme") == 0


def test_the_ledger_follows_a_lease_and_outlives_it(filled: Store, clock: Clock) -> None:
    held = lease(vf_share())
    begin = clock.now
    with filled.transaction() as session:
        session.reserve("gpu1", 0, [held])
        assert session.intervals(*FOREVER) == []
    for later, state in ((10, LeaseState.BUILT), (20, LeaseState.RUNNING), (30, LeaseState.BUILT),
                         (40, LeaseState.RELEASING), (50, LeaseState.GONE), (60, LeaseState.GONE)):  # fmt: skip
        clock.now = begin + later
        with filled.transaction() as session:
            session.set_lease_state(held.id, state)
    with filled.reading() as session:
        (one,) = session.intervals(*FOREVER)
        assert session.intervals(*FOREVER, tenant="umbrella") == []
        assert session.intervals(0, begin + 10) == session.intervals(begin + 51, 1e12) == []
        assert session.ledger_faults() == []
    assert (one.begun_at, one.ended_at) == (begin + 10, begin + 50)
    assert (one.tenant, one.vm_name, one.profile, one.framebuffer_mib) == ("acme", "web-1", "A40-8Q", 8192)
    assert one.card_part == pytest.approx(1 / 6)


def test_a_share_that_moves_to_another_gpu_is_two_intervals(filled: Store, clock: Clock) -> None:
    held = lease(vf_share(), state=LeaseState.RUNNING)
    begin = clock.now
    with filled.transaction() as session:
        reserve(session, held)
    clock.now += 5
    with filled.transaction() as session:
        session.set_lease_share(held.id, replace(held.share, numa_node=1))
        session.set_lease_share(held.id, replace(held.share, gpu="0000:42:00.0", function="0000:42:00.4"))
        first, second = session.intervals(*FOREVER)
    assert (first.gpu, first.begun_at, first.ended_at) == ("0000:41:00.0", begin, begin + 5)
    assert (second.gpu, second.begun_at, second.ended_at) == ("0000:42:00.0", begin + 5, None)


def test_a_ledger_that_does_not_agree_with_the_leases_is_fixed(filled: Store, clock: Clock) -> None:
    begin = clock.now
    counted, lost = lease(vf_share(), state=LeaseState.RUNNING), lease(vf_share("0000:41:00.5"))
    with filled.transaction() as session:
        reserve(session, counted)
        reserve(session, lost)
    with bare(filled) as connection:
        gone = "UPDATE leases SET state = 'gone', changed_at = :at WHERE id = :id"
        connection.run(gone, id=counted.id, at=begin + 7)
        connection.run("UPDATE leases SET state = 'running' WHERE id = :id", id=lost.id)
    clock.now += 100
    with filled.reading() as session:
        faults = session.ledger_faults()
    assert len(faults) == 2
    with filled.transaction() as session:
        assert session.fix_ledger() == faults
        assert session.fix_ledger() == []
        by_lease = {one.lease_id: one for one in session.intervals(*FOREVER)}
    assert by_lease[counted.id].ended_at == begin + 7
    assert (by_lease[lost.id].begun_at, by_lease[lost.id].ended_at) == (begin, None)


def test_pools_have_hosts_and_grants_and_can_be_taken_away(filled: Store) -> None:
    with filled.transaction() as session:
        session.set_host_pool("gold", ["gpu2", "gpu1"])
        assert session.grant_host_pool("gold", "acme")
        assert not session.grant_host_pool("gold", "acme")
        session.set_host_pool("gold", ["gpu1"])
        session.set_host_pool("silver", ["gpu2"])
        assert session.host_pools() == [HostPool("gold", ("gpu1",), ("acme",)), HostPool("silver", ("gpu2",), ())]
        for name, tenant in (("bronze", "acme"), ("gold", "nobody")):
            with pytest.raises(NotFound):
                session.grant_host_pool(name, tenant)
        assert session.revoke_host_pool("gold", "acme")
        assert not session.revoke_host_pool("gold", "acme")
        assert session.delete_host_pool("gold")
        assert not session.delete_host_pool("gold")
    with pytest.raises(ConcurrentChange, match="gpu2 is in another host pool"), filled.transaction() as session:
        session.set_host_pool("bronze", ["gpu2"])
    with filled.reading() as session:
        assert [pool.name for pool in session.host_pools()] == ["silver"]
