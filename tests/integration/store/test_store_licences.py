# SPDX-License-Identifier: Apache-2.0
"""Licence pools and seats in the store, on SQLite and PostgreSQL."""

import base64
import threading
from dataclasses import replace

import pytest

from tests.integration.store.conftest import Clock
from tests.integration.store.samples import host_facts, vf_share, vm
from vgpuctl.errors import ConcurrentChange, NoLicence, StoreUnusable, UsageError
from vgpuctl.guests.seed.image import seed_files
from vgpuctl.model.event import EventFilter
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.licence import Edition, LicencePool
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import Vm, VmState, in_resize, on_its_way
from vgpuctl.store.sealed import NO_KEY
from vgpuctl.store.store import Session, Store, open_store
from vgpuctl.usecases.image.licence_token import with_token_of
from vgpuctl.usecases.seats.licences import refuse_without_seats, settle_seats, take_seat
from vgpuctl_lab.licence_token import licence_token

DLS = LicencePool("dls", Edition.VWS, 1, 3600.0, "dls-1")


def _vm(name: str) -> tuple[Vm, list[Lease]]:
    made = vm(name)
    made = replace(made, request=replace(made.request, gpus=(parse_gpu_request("A40-8Q"),)))
    share = vf_share(f"0000:41:00.{int(name[-1])}")
    return made, [Lease(f"lease-{name}", made.uuid, "acme", name, "gpu1", 0, share, LeaseState.RESERVED)]


def _prepare(session: Session) -> None:
    session.add_tenant("acme")
    session.put_licence_pool(DLS)


def _started(session: Session, name: str) -> Vm:
    made, leases = _vm(name)
    session.add_vm(made)
    assert take_seat(session, made, leases) == DLS
    session.note_licence_used(made.uuid)
    session.set_vm_state(made.uuid, VmState.RUNNING)
    return replace(made, state=VmState.RUNNING)


def _taken(session: Session) -> list[tuple[str, bool]]:
    return [(one.vm_name, one.released_at is None) for one in session.licence_seats()]


def test_a_guest_that_never_started_gives_its_seat_back_at_once(store: Store) -> None:
    with store.transaction() as session:
        _prepare(session)
        made, leases = _vm("web-1")
        session.add_vm(made)
        take_seat(session, made, leases)
        assert _taken(session) == [("web-1", True)]
        session.delete_vm(made.uuid)
        assert _taken(session) == []


def test_a_seat_comes_back_at_once_after_a_shutdown_and_after_the_lease_else(store: Store, clock: Clock) -> None:
    with store.transaction() as session:
        _prepare(session)
        first = _started(session, "web-1")
        session.set_vm_state(first.uuid, VmState.STOPPED, has_shut_down=True)
        assert _taken(session) == []
        second = _started(session, "web-2")
        session.set_vm_state(second.uuid, VmState.STOPPED)
        assert _taken(session) == [("web-2", False)]
        other, leases = _vm("web-3")
        with pytest.raises(NoLicence, match="the only seat of licences of edition vws is taken") as refused:
            take_seat(session, other, leases)
        assert "comes back at" in refused.value.context[0]
        session.delete_vm(second.uuid)
        clock.now += 3601
        assert _taken(session) == []
        third = _started(session, "web-3")
        (row,) = session._read("SELECT count(*) AS rows FROM licence_seats WHERE vm_name = 'web-2'")
        assert row.rows == 0, "seats that came back of VMs that are gone leave no rows"
        assert _taken(session) == [("web-3", True)]
        session.delete_licence_pool("dls")
        assert (session.licence_pools(), _taken(session)) == ([], [])
        session.set_vm_state(third.uuid, VmState.STOPPED, has_shut_down=True)
        kinds = {one.kind for one in session.events(None, EventFilter())}
        assert {"licence-taken", "licence-returned"} <= kinds


def test_the_same_vm_takes_its_seat_again_before_it_is_back(store: Store) -> None:
    with store.transaction() as session:
        _prepare(session)
        first = _started(session, "web-1")
        session.set_vm_state(first.uuid, VmState.STOPPED)
        assert take_seat(session, replace(first, state=VmState.STOPPED), _vm("web-1")[1]) == DLS
        assert _taken(session) == [("web-1", True)]
        assert take_seat(session, first, _vm("web-1")[1]) == DLS
        assert len(session.licence_seats()) == 1


def test_a_vm_that_moves_keeps_its_seat(store: Store) -> None:
    with store.transaction() as session:
        _prepare(session)
        first = _started(session, "web-1")
        session.set_vm_state(first.uuid, VmState.STOPPED, on_its_way("gpu1", "gpu2"), has_shut_down=True)
        assert _taken(session) == [("web-1", True)]


@pytest.mark.parametrize("has_shut_down", [True, False])
def test_a_resize_to_another_edition_returns_the_seat_as_the_guest_ended(
    store: Store, clock: Clock, *, has_shut_down: bool
) -> None:
    with store.transaction() as session:
        _prepare(session)
        vcs = LicencePool("compute", Edition.VCS, 1, 3600.0)
        session.put_licence_pool(vcs)
        first = _started(session, "web-1")
        problem = in_resize("gpu1")
        session.set_vm_state(first.uuid, VmState.STOPPED, problem, has_shut_down=has_shut_down)
        request = replace(first.request, gpus=(parse_gpu_request("A40-8C"),))
        leases = [replace(one, share=replace(one.share, profile="A40-8C")) for one in _vm("web-1")[1]]
        assert (
            take_seat(session, replace(first, request=request, state=VmState.STOPPED, problem=problem), leases) == vcs
        )
        old = [one.released_at for one in session.licence_seats(pool="dls")]
        assert old == ([] if has_shut_down else [clock.now + 3600.0]), "a guest that was forced off returned nothing"


def test_a_seat_that_a_restart_keeps_is_used_again(store: Store) -> None:
    with store.transaction() as session:
        _prepare(session)
        first = _started(session, "web-1")
        session.set_vm_state(first.uuid, VmState.STOPPED, on_its_way("gpu1", "gpu2"), has_shut_down=True)
        assert session.licence_seats()[0].used_at is None
        session.note_licence_used(first.uuid)
        session.set_vm_state(first.uuid, VmState.STOPPED)
        assert _taken(session) == [("web-1", False)], "it was killed after it had started again"


def test_two_controllers_that_grant_the_last_seat_at_once_grant_it_once(store: Store, url: str) -> None:
    with store.transaction() as session:
        _prepare(session)
        for name in ("web-1", "web-2", "web-3", "web-4"):
            session.add_vm(_vm(name)[0])
    gate = threading.Barrier(4)
    results: list[str] = []

    def grant(name: str) -> None:
        made, leases = _vm(name)
        made = replace(made, uuid=next(one.uuid for one in known if one.request.name == name))
        with open_store(url) as other:
            gate.wait()
            try:
                with other.transaction() as session:
                    take_seat(session, made, leases)
                results.append("granted")
            except (NoLicence, ConcurrentChange) as refused:
                results.append(refused.reference)

    with store.reading() as session:
        known = session.vms()
    threads = [threading.Thread(target=grant, args=(one.request.name,)) for one in known]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count("granted") == 1 and len(results) == 4, results
    with store.reading() as session:
        assert len(session.licence_seats()) == 1


def test_seats_of_victims_count_before_a_preemption(store: Store) -> None:
    with store.transaction() as session:
        _prepare(session)
        victim = _started(session, "web-1")
        request = _vm("web-2")[0].request
        shares = [[vf_share()]]
        with pytest.raises(NoLicence):
            refuse_without_seats(session, [request], shares)
        assert refuse_without_seats(session, [request], shares, freed={victim.uuid}) == DLS
        with pytest.raises(NoLicence):
            refuse_without_seats(session, [request, request], shares * 2, freed={victim.uuid})


def test_settling_counts_what_runs_and_frees_what_is_gone(store: Store) -> None:
    with store.transaction() as session:
        session.add_tenant("acme")
        session.save_facts("gpu1", host_facts(), 1.0)
        for generation, name in enumerate(("web-1", "web-2")):
            made, leases = _vm(name)
            session.add_vm(made)
            session.reserve("gpu1", generation, leases)
            session.set_vm_state(made.uuid, VmState.RUNNING)
        session.put_licence_pool(DLS)
        assert [what for _name, what in settle_seats(session, dry_run=True)] == [
            "it runs and holds no seat of a licence pool"
        ] * 2
        settle_seats(session)
        assert len(session.licence_seats()) == 2, "what runs is counted, also beyond the pool's seats"
        assert settle_seats(session) == []
        session._write("UPDATE vms SET state = 'stopped'")
        assert len(settle_seats(session)) == 2
        assert all(one.released_at is not None for one in session.licence_seats())


def test_the_token_is_sealed_and_reaches_the_seed_alone(store: Store, url: str) -> None:
    token = licence_token("dls-1")
    with store.transaction() as session:
        _prepare(session)
        encoded = base64.b64encode(token.encode()).decode()
        session.set_licence_token("dls", SecretText.of(encoded))
        pool = session.licence_pool("dls")
        assert pool.has_token and token not in repr(pool)
        (row,) = session._read("SELECT token FROM licence_pools")
        assert encoded not in row.token
        made, _leases = _vm("web-1")
        seeded = with_token_of(session, made, pool)
        written = seed_files(seeded.request.cloud_init, seeded)["vendor-data"]
        assert written.count(encoded) == 1 and "client_configuration_token.tok" in written
        assert encoded not in repr(seeded) and "vendor-data" not in seed_files(made.request.cloud_init, made)
        session._write("UPDATE licence_pools SET name = 'other'")
        with pytest.raises(StoreUnusable, match="is of another pool"):
            session.licence_token("other")
    with open_store(url) as keyless, keyless.reading() as session:
        keyless_session_key = session._key_file
        if keyless_session_key is NO_KEY or keyless_session_key.path is None:
            with pytest.raises(StoreUnusable, match="there is no key"):
                session.licence_token("other")


def test_an_own_token_must_name_the_pools_server(store: Store) -> None:
    with store.transaction() as session:
        _prepare(session)
        for server, fits in (("dls-1", True), ("dls-9", False)):
            made, leases = _vm("web-1")
            encoded = base64.b64encode(licence_token(server).encode()).decode()
            cloud_init = replace(made.request.cloud_init, licence_token=SecretText.of(encoded))
            made = replace(made, request=replace(made.request, cloud_init=cloud_init))
            if fits:
                assert refuse_without_seats(session, [made.request], [[one.share for one in leases]]) == DLS
                assert with_token_of(session, made, DLS) == made
            else:
                with pytest.raises(UsageError, match="brings a token of another server: it names dls-9"):
                    take_seat(session, made, leases)
