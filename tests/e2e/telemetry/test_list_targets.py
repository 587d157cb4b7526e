# SPDX-License-Identifier: Apache-2.0
"""list-targets and the exporter that reads the store alone."""

import pytest

from tests.e2e.operator import Operator
from tests.e2e.telemetry.running_exporter import running_exporter, values

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    """Tenant acme has a VM whose guest may be scraped, tenant globex has nothing."""
    for tenant in ("acme", "globex"):
        fleet_operator.does("create-tenant", tenant)
    own = ("--guest-metrics", "[fd00:0::7]:09400")
    fleet_operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--host", "sim-001", *SIZE, *own)
    return fleet_operator


def test_hosts_and_guests_are_targets(operator: Operator) -> None:
    found = operator.json("list-targets")
    targets = ["sim-001", "sim-002", "sim-003", "sim-004", "[fd00::7]:9400"]
    assert [one["targets"][0] for one in found] == targets
    assert found[-1]["labels"]["__meta_vgpuctl_profile"] == "A40-8Q"
    table = operator.does("list-targets").out.splitlines()
    assert table[-1].split() == ["[fd00::7]:9400", "guest", "acme", "web-1", "sim-001", "A40-8Q"]


def test_a_tenant_has_its_own_targets(operator: Operator) -> None:
    shares, guest = operator.json("list-targets", "--tenant", "acme", "--exporter", "mon:9635")
    assert (shares["targets"], shares["labels"]["__metrics_path__"]) == (["mon:9635"], "/metrics/tenants/acme")
    assert guest["targets"] == ["[fd00::7]:9400"]
    assert operator.json("list-targets", "--tenant", "globex") == []
    assert operator.is_refused("list-targets", "--tenant", "nobody")["reference"] == "not-found"
    assert operator.is_refused("list-targets", "--exporter", "mon")["reference"] == "usage"


def test_an_exporter_of_the_store_alone_reads_no_host(operator: Operator) -> None:
    with running_exporter(operator, "--store-only") as exporter:
        series = exporter.series()
        assert values(series, "vgpuctl_lease_state", tenant="acme", state="running") == [1]
        assert values(series, "vgpuctl_snapshot_age_seconds") == []
        assert [one["targets"][0] for one in exporter.json("/sd/hosts")] == ["sim-001", "sim-002", "sim-003", "sim-004"]
        assert len(exporter.json("/sd/tenants/acme")) == 2
        assert exporter.get("/probe?target=sim-001")[0] == 404
    once = operator.does("serve", "exporter", "--once", "--store-only", "-vv")
    assert "vgpuctl_lease_state{" in once.out and "vgpuctl_snapshot_age_seconds{" not in once.out
    assert "ssh-login" not in once.err
