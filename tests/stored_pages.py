# SPDX-License-Identifier: Apache-2.0
"""The pages of a stored fleet, asked without a server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from lxml import html

from tests.stored_fleet import AT, StoredFleet, fill, keep_history, open_stored, readings_of
from tests.unit.fleet_factory import vm
from vgpuctl.model.promise import Moment, PromiseFinding, PromiseRow, PromiseVerdict, Witness
from vgpuctl.model.queue import QueueKind
from vgpuctl.model.restriction import WHOLE_HOST, RestrictionKind
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import Store
from vgpuctl.usecases.observed.promise_record import note_findings
from vgpuctl.usecases.running.history import PastSource
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.web.access import PageAccess
from vgpuctl.web.application import make_application

HOSTS = ("gpu1", "gpu2", "gpu3", "silent")
_PROMISE = PromiseFinding(PromiseRow.VCPUS, "", Witness.LIBVIRT, PromiseVerdict.KEPT, "2 vCPUs", "2 vCPUs")
FINDINGS = (
    _PROMISE,
    replace(
        _PROMISE,
        row=PromiseRow.GUEST_GPUS,
        verdict=PromiseVerdict.NOT_LOOKED_AT,
        seen="",
        why="the guest is not asked",
    ),
    replace(
        _PROMISE,
        row=PromiseRow.PORTS,
        verdict=PromiseVerdict.BROKEN,
        promised="up",
        seen="down",
        remedy="look at OVN",
    ),
)
"""What was found of the first VM."""


@dataclass(frozen=True)
class Pages:
    """The pages of a stored fleet."""

    fleet: StoredFleet
    client: FlaskClient
    sources: PageSources

    def get(self, path: str, status: int = 200) -> str:
        """The text of a page."""
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.text

    def words(self, path: str) -> str:
        """The text of a page without its markup, on one line."""
        return " ".join(html.fromstring(self.get(path)).text_content().split())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Three hosts with 18 VMs, a fourth that was never read; one VM waits, one GPU is in quarantine."""
    home: Path = tmp_path_factory.mktemp("store")
    with open_stored(home, HOSTS, groups={"rack_a": ("gpu1", "silent"), "rack_b": ("gpu2", "gpu3")}) as services:
        fleet = fill(services, HOSTS[:3], cards=4, shares=18)
        with services.store.transaction() as session:
            session.restrict("gpu2", "0000:21:00.0", RestrictionKind.QUARANTINE, "row remap failed", finding="x")
            session.restrict("gpu3", WHOLE_HOST, RestrictionKind.CORDON, "new cables")
            waiting = replace(vm("A40-48Q", name="waits"), tenant="acme")
            session.set_quotas("acme", [Quota("vms", 10, 2), Quota("each:cpu-limit", 50), Quota("over-promise", 4)])
            session.join_queue(QueueKind.CREATE, waiting, "no GPU is free")
            looked_at = session.vm(fleet.leases[0].tenant, fleet.leases[0].vm_name)
            assert looked_at is not None
            note_findings(session, [(looked_at, FINDINGS)], Moment.CREATION)
        keep_history(home / "history", fleet, hosts=3)
        sources = PageSources(services, PastSource(home / "history"), lambda: readings_of(fleet))
        access = PageAccess(None, has_tls=False, is_loopback=True, clock=lambda: AT)
        yield Pages(fleet, make_application(sources, access).test_client(), sources)


def paths(pages: Pages) -> tuple[str, ...]:
    """A page of each kind."""
    lease = pages.fleet.leases[0]
    own = (f"/hosts/{lease.host}", f"/hosts/{lease.host}/gpus/{lease.share.gpu}",
           f"/tenants/{lease.tenant}/vms/{lease.vm_name}", "/hosts/gpu3/gpus/0000:41:00.0")  # fmt: skip
    rest = ("/vms", "/tenants", "/tenants/acme", "/queue", "/capacity?gpu=A40-8Q", "/events", "/states")
    return ("/", "/?by=tenant", *rest, *own)


def queries(store: Store, client: FlaskClient, path: str, headers: Mapping[str, str] = {}) -> int:
    """How many queries a page asks. All of them are on the connection that the store has kept."""
    found: list[str] = []
    (kept,) = store._database._idle
    kept.driver.set_trace_callback(found.append)
    assert client.get(path, headers=dict(headers)).status_code == 200
    kept.driver.set_trace_callback(None)
    return sum(statement.startswith("SELECT") for statement in found)
