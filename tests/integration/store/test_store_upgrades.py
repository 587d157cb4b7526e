# SPDX-License-Identifier: Apache-2.0
"""Rows of older stores read as before after the migrations that rename what they hold."""

import json
from typing import Any

from alembic import command
from sqlalchemy import create_engine, text

from tests.integration.store.samples import full_request, lease, some_uuid, vf_share
from vgpuctl.model.reservation import Reservation
from vgpuctl.model.vm import VmState
from vgpuctl.model.vpc import DirectConnect, ExternalNetwork, FloatingIp, Gateway
from vgpuctl.quota.limits import Quota
from vgpuctl.store import codec, upgrade
from vgpuctl.store.store import open_store


def fill_old_store(url: str, revision: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    """Make a store of an earlier schema version with these rows, each with its table."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        command.upgrade(upgrade.config(connection), revision)
        for table, row in rows:
            names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({places})"), row)
    engine.dispose()


def test_slices_of_an_older_store_are_shares(url: str) -> None:
    held = lease()
    reservation = Reservation("acme", "nightly", (), "gpu1", (vf_share(),), 10.0, 20.0)
    content = json.loads(codec.encode(reservation))
    content["slices"] = content.pop("shares")
    rows: list[tuple[str, dict[str, Any]]] = [
        ("tenants", {"name": "acme", "created_at": 1}),
        ("hosts", {"name": "gpu1", "generation": 1}),
        (
            "leases",
            {
                "id": held.id, "vm_uuid": held.vm_uuid, "tenant": "acme", "vm_name": held.vm_name, "host": "gpu1",
                "position": 0, "device": held.share.device, "slice": codec.encode(held.share), "slice_version": 2,
                "state": held.state.value, "created_at": 1, "changed_at": 1,
            },
        ),
        ("quotas", {"tenant": "acme", "resource": "slices:A40-8Q", "most": 3, "guaranteed": 1}),
        ("quotas", {"tenant": "acme", "resource": "vms", "most": 2}),
        ("host_records", {"host": "gpu1", "kind": "layout-slices", "content": "{}", "at": 1}),
        (
            "reservations",
            {"tenant": "acme", "name": "nightly", "host": "gpu1", "content": json.dumps(content),
             "content_version": 1, "created_at": 1},
        ),
    ]  # fmt: skip
    fill_old_store(url, "0014", rows)
    with open_store(url) as store, store.reading() as session:
        assert session.leases() == [held]
        assert session.quotas("acme") == [Quota("shares:A40-8Q", 3, 1), Quota("vms", 2)]
        assert session.host_record("gpu1", "layout-shares") is not None
        assert session.reservations() == [reservation]


def test_outside_networks_floating_addresses_and_direct_lines_of_an_older_store_have_their_new_names(url: str) -> None:
    network = ExternalNetwork("net", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.20", "provider")
    floating, direct = FloatingIp("web-1", "203.0.113.11"), DirectConnect("back", "provider", 42)
    specs = {"gateway": ("gateway", '{"outside": "net"}'), "floating-address": ("web-1", codec.encode(floating)),
             "direct-line": ("back", codec.encode(direct))}  # fmt: skip
    held = {"203.0.113.10": "gateway/gateway", "203.0.113.11": "floating-address/web-1"}
    rows: list[tuple[str, dict[str, Any]]] = [
        ("tenants", {"name": "acme", "created_at": 1}),
        ("outsides", {"name": "net", "spec": codec.encode(network)}),
        *(
            ("outside_addresses", {"outside": "net", "address": address, "tenant": "acme", "holder": holder})
            for address, holder in held.items()
        ),
        *(
            ("vpc_objects", {"tenant": "acme", "kind": kind, "name": name, "spec": spec})
            for kind, (name, spec) in specs.items()
        ),
    ]
    fill_old_store(url, "0015", rows)
    with open_store(url) as store, store.transaction() as session:
        assert session.external_networks() == [network]
        assert session.external_addresses("net") == {
            "203.0.113.10": "acme/gateway/gateway",
            "203.0.113.11": "acme/floating-ip/web-1",
        }
        assert session.vpc_objects("acme", FloatingIp) == [floating]
        assert session.vpc_objects("acme", DirectConnect) == [direct]
        assert session.set_vpc_object("acme", Gateway("net")) == "unchanged"


def test_wishes_of_an_older_store_are_constraints(url: str) -> None:
    request = full_request()
    content = json.loads(codec.encode(request))
    content["wishes"] = content.pop("constraints")
    version = codec.REQUEST_VERSION
    rows: list[tuple[str, dict[str, Any]]] = [
        ("tenants", {"name": request.tenant, "created_at": 1}),
        (
            "vms",
            {
                "uuid": some_uuid(), "tenant": request.tenant, "name": request.name, "host": "gpu1",
                "state": VmState.STOPPED.value, "request": json.dumps(content), "request_version": version,
                "created_at": 1,
            },
        ),
        (
            "queue",
            {
                "kind": "gang", "tenant": request.tenant, "name": "web", "queued_at": 1,
                "request": json.dumps([content, content]), "request_version": version,
            },
        ),
        ("host_records", {"host": "gpu1", "kind": "layout-debts", "content": "{}", "at": 1}),
    ]  # fmt: skip
    fill_old_store(url, "0016", rows)
    with open_store(url) as store, store.reading() as session:
        assert [vm.request for vm in session.vms()] == [request]
        assert [entry.requests for entry in session.queue()] == [(request, request)]
        assert session.host_record("gpu1", "pending-restarts") is not None
