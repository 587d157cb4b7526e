# SPDX-License-Identifier: Apache-2.0
"""serve exporter: real scrapes of simulated hosts."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator, forgetful
from tests.e2e.telemetry.running_exporter import RunningExporter, parse, running_exporter, values
from tests.prometheus_fixture import running_prometheus, wait_for

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture(scope="module")
def exporter(fleet_operator: Operator) -> Iterator[RunningExporter]:
    """An exporter of four hosts; tenant acme has a VM with an A40-8Q on sim-001."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("set-quota", "acme", "framebuffer=96GiB", "gpu-hours=10")
    fleet_operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--host", "sim-001", *SIZE)
    with running_exporter(fleet_operator) as running:
        running.wait_for(
            "all hosts are read",
            lambda series: (
                len(values(series, "vgpuctl_snapshot_age_seconds")) == 4
                and values(series, "vgpuctl_vgpu_framebuffer_used_bytes")
            ),
        )
        yield running


def test_a_vgpu_has_tenant_vm_share_and_profile(exporter: RunningExporter) -> None:
    [(_name, labels)] = [one for one in exporter.series() if one[0] == "vgpuctl_vgpu_framebuffer_used_bytes"]
    about = dict(labels)
    assert about.pop("share").startswith("0000:41:00.")
    assert about == {
        "host": "sim-001",
        "gpu": "0000:41:00.0",
        "tenant": "acme",
        "vm": "web-1",
        "profile": "A40-8Q",
    }


def test_states_of_the_store_are_there(exporter: RunningExporter) -> None:
    series = exporter.series()
    assert values(series, "vgpuctl_lease_state", tenant="acme", state="running") == [1]
    assert values(series, "vgpuctl_lease_state", tenant="acme", state="broken") == [0]
    assert values(series, "vgpuctl_tenant_quota_limit", resource="framebuffer", unit="bytes") == [96 * 2**30]
    assert values(series, "vgpuctl_tenant_quota_used", resource="framebuffer", unit="bytes") == [8 * 2**30]
    assert values(series, "vgpuctl_tenant_quota_limit", resource="gpu-hours", unit="seconds") == [36_000]
    assert values(series, "vgpuctl_store_up") == [1]
    assert set(values(series, "vgpuctl_truth_mismatch")) == {0}


def test_a_quarantine_is_a_state(fleet_operator: Operator, exporter: RunningExporter) -> None:
    fleet_operator.does("quarantine-gpu", "sim-002", "0000:41:00.0", "--reason", "fan")
    exporter.wait_for(
        "the quarantine is seen",
        lambda series: values(series, "vgpuctl_gpu_restriction", host="sim-002", state="quarantine") == [1],
    )
    fleet_operator.does("unquarantine-gpu", "sim-002", "0000:41:00.0", "--reason", "fixed")
    exporter.wait_for(
        "the release is seen",
        lambda series: values(series, "vgpuctl_gpu_restriction", host="sim-002", state="quarantine") == [0],
    )


def test_a_vm_that_is_off_without_a_command_is_a_mismatch(fleet_operator: Operator, exporter: RunningExporter) -> None:
    with libvirt_of(fleet_operator.inventory, "sim-001") as there:
        assert there.destroy("acme.web-1")
    fleet_operator.does("list-vms", "--refresh")
    series = exporter.wait_for(
        "the mismatch is seen",
        lambda series: values(series, "vgpuctl_truth_mismatch", host="sim-001", kind="vm-state") == [1],
    )
    assert values(series, "vgpuctl_vm_declared_state", vm="web-1", state="running") == [1]
    assert values(series, "vgpuctl_vm_observed_state", vm="web-1", state="shut-off") == [1]
    fleet_operator.does("start-vm", "web-1", "--tenant", "acme")
    fleet_operator.does("list-vms", "--refresh")
    exporter.wait_for(
        "the mismatch has ended",
        lambda series: values(series, "vgpuctl_truth_mismatch", host="sim-001", kind="vm-state") == [0],
    )


def test_what_another_store_has_is_unknown_to_this_one(
    fleet_operator: Operator, exporter: RunningExporter, tmp_path: Path
) -> None:
    other = forgetful(fleet_operator, tmp_path, "acme")
    series = parse(other.does("serve", "exporter", "--once").out)
    assert values(series, "vgpuctl_truth_mismatch", host="sim-001", kind="domain-unknown") == [1]
    assert values(series, "vgpuctl_truth_mismatch", host="sim-001", kind="vgpu-unknown") == [1]
    assert set(values(exporter.series(), "vgpuctl_truth_mismatch", kind="domain-unknown")) == {0}


def test_promtool_is_content_with_the_page(exporter: RunningExporter) -> None:
    _status, content_type, text = exporter.get("/metrics")
    assert content_type.startswith("text/plain; version=0.0.4")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_probe_has_one_host(exporter: RunningExporter) -> None:
    series = exporter.series("/probe?target=sim-003")
    assert values(series, "probe_success") == [1]
    hosts = {dict(labels).get("host") for _name, labels in series if labels}
    assert hosts == {"sim-003"}


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 400, "give one host"),
        ("?target=", 400, "give one host"),
        ("?target=sim-001&target=sim-002", 400, "give one host"),
        ("?target=unknown%0a%1b", 404, r"'unknown\n\x1b' is no host"),
    ],
)
def test_a_wrong_target_is_told(exporter: RunningExporter, query: str, status: int, said: str) -> None:
    found = exporter.get(f"/probe{query}")
    assert (found[0], found[1]) == (status, "text/plain; charset=utf-8")
    assert said in found[2]


def test_service_discovery_of_hosts_and_tenants(exporter: RunningExporter) -> None:
    hosts = exporter.json("/sd/hosts")
    assert [one["targets"] for one in hosts] == [["sim-001"], ["sim-002"], ["sim-003"], ["sim-004"]]
    assert hosts[0]["labels"] == {"__meta_vgpuctl_role": "host", "__meta_vgpuctl_host": "sim-001"}
    [shares] = exporter.json("/sd/tenants/acme")
    assert shares["targets"] == [exporter.url.removeprefix("http://")]
    series = exporter.series(shares["labels"]["__metrics_path__"])
    assert {dict(labels)["tenant"] for _name, labels in series} == {"acme"}
    assert exporter.json("/sd/tenants/nobody") == []


def test_a_passthrough_card_is_read_in_its_guest_or_by_nobody(
    fleet_operator: Operator, exporter: RunningExporter
) -> None:
    whole = ("--tenant", "acme", "--gpu", "passthrough", "--host", "sim-003", *SIZE)
    fleet_operator.does("create-vm", "train-1", *whole, "--guest-metrics", "10.20.0.7:9400")
    exporter.wait_for(
        "the guest is named",
        lambda series: values(series, "vgpuctl_share_telemetry", vm="train-1", source="guest") == [1],
    )
    guests = exporter.wait_for_targets("/sd/tenants/acme", "guest")
    assert [one["targets"] for one in guests] == [["10.20.0.7:9400"]]
    labels = guests[0]["labels"]
    about = {name.removeprefix("__meta_vgpuctl_"): value for name, value in labels.items()}
    assert (about["tenant"], about["vm"], about["host"], about["profile"]) == (
        "acme",
        "train-1",
        "sim-003",
        "passthrough",
    )
    fleet_operator.does("delete-vm", "train-1", "--tenant", "acme", "--yes", "--timeout", "0")
    fleet_operator.does("create-vm", "train-2", *whole)
    exporter.wait_for(
        "nobody measures it",
        lambda series: values(series, "vgpuctl_share_telemetry", vm="train-2", source="none") == [1],
    )
    fleet_operator.does("delete-vm", "train-2", "--tenant", "acme", "--yes", "--timeout", "0")


@pytest.mark.parametrize("address", ["127.0.0.1:9400", "[::1]:9400", "169.254.169.254:80", "web-1:9400", "10.0.0.5"])
def test_a_guest_is_not_the_operators_own_machine(fleet_operator: Operator, address: str) -> None:
    refused = fleet_operator.is_refused("create-vm", "x", "--tenant", "acme", *SIZE, "--guest-metrics", address)
    assert (refused["reference"], refused["exit_code"]) == ("usage", 2)
    assert "--guest-metrics" in refused["message"]


def test_prometheus_discovers_hosts_as_the_page_says(exporter: RunningExporter) -> None:
    page = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    address = exporter.url.removeprefix("http://")
    found = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    open_ones = [one.replace("127.0.0.1:9635", address) for one in found if "127.0.0.1:9635" in one]
    jobs = [job for one in open_ones for job in yaml.safe_load(one)["scrape_configs"]]
    wanted = {"vgpuctl": 1, "vgpuctl-store": 1, "vgpuctl-hosts": 4}
    with running_prometheus({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}) as prometheus:

        def up() -> bool:
            samples = prometheus.query("sum by (job) (up)")
            return {one["metric"]["job"]: int(one["value"][1]) for one in samples} == wanted

        wait_for(up, "scrape of every target")
        hosts = prometheus.query('vgpuctl_host_memory_total_bytes{job="vgpuctl-hosts"}')
        assert {one["metric"]["instance"] for one in hosts} == {"sim-001", "sim-002", "sim-003", "sim-004"}
        assert all(one["metric"]["instance"] == one["metric"]["host"] for one in hosts)


def test_once_prints_the_page_without_server_and_history(fleet_operator: Operator, exporter: RunningExporter) -> None:
    series = parse(fleet_operator.does("serve", "exporter", "--once").out)
    assert len(values(series, "vgpuctl_snapshot_age_seconds")) == 4
    assert {name for name, _labels in series} <= {name for name, _labels in exporter.series()}
