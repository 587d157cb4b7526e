# SPDX-License-Identifier: Apache-2.0
"""Faults of the lab let the shipped alerts fire in a real Prometheus, reach Alertmanager, and resolve.

All faults begin together and end together, so that their waiting times pass side by side.
"""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.integration.prometheus.scene import CARD, SICK, Scene
from tests.prometheus_fixture import wait_for
from vgpuctl.model.faults import FAULTS, FaultId
from vgpuctl.model.health import HealthCode
from vgpuctl.telemetry.rule_files import RUNBOOK


@dataclass(frozen=True)
class Expected:
    """An alert that the faults bring about. fault: its id."""

    name: str
    fault: HealthCode | FaultId
    labels: dict[str, str] = field(default_factory=dict)
    severity: str = "warning"

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels that tell the alert from others."""
        return {"alertname": self.name, "id": str(self.fault), "severity": self.severity, **self.labels}


_SIM_1, _SIM_2 = {"host": "sim-001"}, {"host": "sim-002"}
EXPECTED = (
    Expected("VgpuctlGpuRowRemapPending", HealthCode.ROW_REMAP_PENDING, {**_SIM_2, "gpu": CARD}),
    Expected("VgpuctlGpuQuarantined", HealthCode.ROW_REMAP_PENDING, {**_SIM_2, "gpu": CARD}),
    Expected("VgpuctlGpuRecoveryActionPending", HealthCode.RESET_REQUIRED, _SIM_2, "critical"),
    Expected("VgpuctlGpuXidRestartBm", HealthCode.XID_RESTART_BM, {**_SIM_1, "xid": "79"}, "critical"),
    Expected("VgpuctlGpuXidRestartApp", HealthCode.XID_RESTART_APP, {**_SIM_1, "xid": "31"}, "info"),
    Expected("VgpuctlGpuThermalSlowdown", FaultId.THERMAL_SLOWDOWN, _SIM_1),
    Expected("VgpuctlComputeShort", FaultId.COMPUTE_SHORT, {**_SIM_1, "tenant": "acme", "vm": "web-1"}),
    Expected("VgpuctlVgpuUnlicensed", FaultId.VGPU_UNLICENSED, {**_SIM_1, "vm": "web-1"}),
    Expected("VgpuctlVgpuRestricted", FaultId.VGPU_RESTRICTED, {**_SIM_1, "vm": "web-1"}, "critical"),
    Expected("VgpuctlHostUnreachable", FaultId.HOST_UNREACHABLE, {"host": SICK}, "critical"),
    Expected("VgpuctlQuotaNearlyUsed", FaultId.QUOTA_NEARLY_USED, {"tenant": "acme", "resource": "vms"}, "info"),
    Expected("VgpuctlTruthMismatch", FaultId.TRUTH_MISMATCH, {**_SIM_2, "kind": "vm-state"}, "critical"),
)
_IDS = [f"{one.name}-{one.fault}" for one in EXPECTED]


@pytest.fixture(scope="module")
def faulty(scene: Scene) -> Scene:
    """Every fault has begun."""
    scene.wait_for_a_window()
    victim, neighbour = (f"vgpu:{scene.share('sim-001', name)}" for name in ("web-1", "train-1"))
    gpu = f"gpu:{CARD}"
    scene.fault("sim-002", "row-remap-pending")
    scene.operator.does("list-hosts", "--limit", "sim-002")
    scene.play(
        "sim-001",
        {
            (victim, "utilization_ratio"): 0.05,
            (neighbour, "utilization_ratio"): 0.93,
            (victim, "license_state/unlicensed-restricted"): 1,
            (victim, "license_state/licensed"): 0,
            (gpu, "temperature_celsius"): 83,
            (gpu, "slowdown_temperature_celsius"): 85,
        },
    )
    scene.fault("sim-001", "xid", "79")
    scene.fault("sim-001", "xid", "31")
    scene.fault(SICK, "network")
    scene.operator.does("set-quota", "acme", "vms=1")
    with libvirt_of(scene.operator.inventory, "sim-002") as there:
        [domain] = [one for one in there.domains() if one.name == "globex.train-2"]
        there.destroy(domain.name, uuid=domain.uuid)
    scene.operator.does("list-vms", "--refresh")
    return scene


@pytest.fixture(scope="module")
def healed(faulty: Scene) -> Scene:
    """Every fault has ended, after its alert was sent."""
    for one in EXPECTED:
        wait_for(partial(faulty.webhook.heard, "firing", **one.all_labels), f"notification of {one.name}")
    for host in ("sim-001", "sim-002", SICK):
        faulty.clear(host)
    faulty.play("sim-001", {})
    faulty.operator.does("unquarantine-gpu", "sim-002", CARD, "--reason", "reset")
    faulty.operator.does("set-quota", "acme", "vms=10")
    faulty.operator.does("delete-vm", "train-2", "--tenant", "globex", "--yes", "--timeout", "0")
    return faulty


def test_no_alert_fires_on_a_healthy_fleet(scene: Scene) -> None:
    """Only the card that was sick before has alerts: while it is in quarantine, its old Xid has one too."""
    scene.wait_for_a_window()
    firing = {(one["labels"]["alertname"], one["labels"].get("host", "")) for one in scene.prometheus.firing()}
    assert firing == {("VgpuctlGpuQuarantined", SICK), ("VgpuctlGpuXidRestartBm", SICK)}
    assert scene.prometheus.query(f'vgpuctl_gpu_xid_total{{host="{SICK}",xid="79"}}')


@pytest.mark.parametrize("expected", EXPECTED, ids=_IDS)
def test_an_alert_fires_and_is_sent(faulty: Scene, expected: Expected) -> None:
    alert = wait_for(lambda: faulty.webhook.heard("firing", **expected.all_labels), f"alert {expected.all_labels}")[0]
    assert alert["annotations"]["remedy"] == FAULTS[expected.fault].remedy
    assert alert["annotations"]["runbook_url"] == f"{RUNBOOK}#{expected.fault}"
    assert "<" not in alert["annotations"]["summary"], "a template that failed"


def test_only_the_vm_that_lacks_time_has_the_alert(faulty: Scene) -> None:
    wait_for(lambda: faulty.webhook.heard("firing", alertname="VgpuctlComputeShort"), "alert of the VM")
    found = {one["labels"]["vm"] for one in faulty.webhook.heard("firing", alertname="VgpuctlComputeShort")}
    assert found == {"web-1"}


def test_alert_event_and_check_of_a_fault_have_one_id_and_one_remedy(faulty: Scene) -> None:
    alert = wait_for(lambda: faulty.webhook.heard("firing", alertname="VgpuctlGpuRowRemapPending"), "alert")[0]
    events = faulty.operator.json("list-events", "--kind", "gpu-health")
    [event] = [one for one in events if one["evidence"]["finding"] == "row-remap-pending"]
    checked = faulty.operator.run("check-hosts", "--limit", "sim-002", "--json")
    assert checked.code == 1
    [host] = json.loads(checked.out)
    [finding] = [one for one in host["findings"] if one["check"] == "row-remap-pending"]
    assert event["host"] == host["host"] == alert["labels"]["host"]
    assert event["evidence"]["finding"] == finding["check"] == alert["labels"]["id"]
    assert event["evidence"]["remedy"] == finding["fix"] == alert["annotations"]["remedy"]


@pytest.mark.parametrize("expected", EXPECTED, ids=_IDS)
def test_an_alert_ends_and_that_is_sent(healed: Scene, expected: Expected) -> None:
    healed.ends(**expected.all_labels)
    wait_for(lambda: healed.webhook.heard("resolved", **expected.all_labels), "notification of the end")


def test_an_xid_alert_ends_although_its_counter_stays(healed: Scene) -> None:
    healed.ends(alertname="VgpuctlGpuXidRestartBm", host="sim-001")
    [series] = healed.prometheus.query('vgpuctl_gpu_xid_total{host="sim-001",xid="79"}')
    assert float(series["value"][1]) == 1


@pytest.fixture
def stopped(healed: Scene) -> Iterator[Scene]:
    """The exporter hangs."""
    healed.exporter.process.send_signal(signal.SIGSTOP)
    try:
        yield healed
    finally:
        healed.exporter.process.send_signal(signal.SIGCONT)


def test_a_blind_exporter_is_an_alert_until_it_answers(stopped: Scene) -> None:
    stopped.fires(alertname="VgpuctlExporterBlind", id="exporter-blind", severity="critical")
    stopped.exporter.process.send_signal(signal.SIGCONT)
    stopped.ends(alertname="VgpuctlExporterBlind")
