# SPDX-License-Identifier: Apache-2.0
"""A fleet under real monitoring: simulated hosts, the real exporter, Prometheus with the shipped rules, Alertmanager.

A minute of the rules is half a second here: `for`, `keep_firing_for`, ranges and offsets are 120 times shorter, except
that a range has at least four scrapes. The durations as shipped are proven by `promtool test rules`
(tests/unit/telemetry).
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.e2e.telemetry.running_exporter import RunningExporter, running_exporter
from tests.lab.simulated_fixtures import machine, simulated_fleet
from tests.prometheus_fixture import (
    Prometheus,
    Webhook,
    need,
    running_alertmanager,
    running_prometheus,
    wait_for,
)
from vgpuctl.model.node_pool import Node
from vgpuctl.store.store import open_store
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.curves import CURVES, Curve, Curves, render

RULES = Path(__file__).parents[3] / "vgpuctl" / "telemetry" / "shipped" / "rules"
CARD = "0000:41:00.0"
SICK = "sim-003"
"""A host whose GPU had Xid 79 before the exporter began, and is in quarantine since."""
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--disk", "1GiB", "--network", "default")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMES_SHORTER = 120
_SHORTEST_RANGE_S = 4.0
_RANGE = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=offset )(\d+)([smhd])")
_WAIT = re.compile(r"(?<=for: )(\d+)([smhd])$", re.MULTILINE)


@dataclass(frozen=True)
class Scene:
    """Everything that runs."""

    folder: lab.LabFolder
    operator: Operator
    exporter: RunningExporter
    prometheus: Prometheus
    webhook: Webhook

    def play(self, host: str, curves: Mapping[tuple[str, str], float]) -> None:
        """Let measures of a host have fixed values; the others are as the lab makes them."""
        fixed = {key: Curve(((0.0, value),)) for key, value in curves.items()}
        path = machine(self.folder, host).root / CURVES.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name("curves.new")
        written.write_text(render(Curves(time.time(), fixed)))
        written.rename(path)

    def wait_for_a_window(self) -> None:
        """Wait until the rules can look back as far as those on Xids do."""
        wait_for(lambda: self.prometheus.query("vgpuctl_gpu_info offset 6s"), "readings of six seconds")

    def fault(self, host: str, kind: str, *value: str) -> None:
        """Let something go wrong on a host."""
        self.operator.does("lab", "--folder", str(self.folder.path), "fault", host, kind, *value)

    def clear(self, host: str) -> None:
        """End every fault of a host."""
        self.operator.does("lab", "--folder", str(self.folder.path), "fault", host, "--clear")

    def fires(self, **labels: str) -> Mapping[str, Any]:
        """Wait until an alert with these labels fires; return it."""
        return wait_for(lambda: self.prometheus.firing(**labels), f"alert {labels}")[0]

    def ends(self, **labels: str) -> None:
        """Wait until no alert with these labels fires."""
        wait_for(lambda: not self.prometheus.firing(**labels), f"end of the alert {labels}")

    def share(self, host: str, vm: str) -> str:
        """The device of a VM's share, as curves name it."""
        query = f'vgpuctl_vgpu_info{{host="{host}",vm="{vm}"}}'
        share: str = wait_for(lambda: self.prometheus.query(query), f"vGPU of {vm}")[0]["metric"]["share"]
        return share


def scaled_rules() -> dict[str, str]:
    """The shipped rule files with shorter durations."""

    def wait(found: re.Match[str]) -> str:
        return f"{_scaled(found[1], found[2]) * 1000:.0f}ms"

    def span(found: re.Match[str]) -> str:
        number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
        return f"{max(_scaled(number, unit), _SHORTEST_RANGE_S) * 1000:.0f}ms"

    return {path.name: _RANGE.sub(span, _WAIT.sub(wait, path.read_text())) for path in sorted(RULES.glob("*.yml"))}


def _scaled(number: str, unit: str) -> float:
    return int(number) * _SECONDS[unit] / _TIMES_SHORTER


@contextlib.contextmanager
def playing(folder: Path) -> Iterator[Scene]:
    """Two hosts with VMs of two tenants, a third with a sick GPU, a queue, quotas and a reservation."""
    need("prometheus", "prometheus-alertmanager", "promtool")
    with contextlib.ExitStack() as opened:
        made = opened.enter_context(simulated_fleet(folder, 3, "a40,a40/mdev-vf,t4"))
        home = folder / "operator"
        home.mkdir()
        operator = Operator(home, simulated_folder(made).inventory, f"sqlite:///{home}/store.db")
        _fill(operator)
        operator.does("lab", "--folder", str(made.path), "fault", SICK, "xid", "79")
        operator.does("list-hosts", "--limit", SICK)
        exporter = opened.enter_context(running_exporter(operator, "--command-timeout", "5"))
        webhook = opened.enter_context(Webhook().receiving())
        alertmanager = opened.enter_context(running_alertmanager(_alertmanager(webhook.url)))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [_scrape("vgpuctl", exporter.url.removeprefix("http://"))],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        }
        prometheus = opened.enter_context(running_prometheus(config, scaled_rules()))
        scene = Scene(made, operator, exporter, prometheus, webhook)
        _wait(prometheus, 'vgpuctl_vgpu_share_utilization_ratio{tenant!=""}', lambda found: len(found) == 3)
        yield scene


def _join(operator: Operator) -> None:
    """A pool of globex with a node, of which the store has what the controller would note in a cluster."""
    globex = ("--tenant", "globex")
    operator.does("create-node-pool", "pods", *globex, "--role", "k3s", "--max", "2", *SIZE)
    operator.does("create-vm", "pods-001", *globex, "--host", "sim-002", *SIZE)
    with open_store(operator.database) as store, store.transaction() as session:
        vm = session.vm("globex", "pods-001")
        assert vm is not None
        now = session.now()
        node = Node("globex", "pods", "pods-001", vm.uuid, now)
        session.add_node(node)
        session.note_node_seen(replace(node, running_at=now, joined_at=now, is_ready=True, seen_at=now))


def _fill(operator: Operator) -> None:
    """Two tenants. They have VMs with shares, a node, a reservation and a VM that waits."""
    operator.does("create-tenant", "acme")
    operator.does("create-tenant", "globex")
    operator.does("set-quota", "acme", "vms=2", "framebuffer=96GiB")
    operator.does("set-quota", "globex", "vms=10")
    operator.does("create-licence-pool", "dls", "--edition", "vws", "--seats", "40")
    for tenant, name, profile, host in (
        ("acme", "web-1", "A40-8Q", "sim-001"),
        ("globex", "train-1", "A40-8Q", "sim-001"),
        ("globex", "train-2", "A40-24Q", "sim-002"),
    ):
        operator.does("create-vm", name, "--tenant", tenant, "--gpu", profile, "--host", host, *SIZE)
    operator.does("create-vm", "waits", "--tenant", "globex", "--gpu", "A40-48Q", "--host", "sim-001", *SIZE, "--queue")
    _join(operator)
    night = ("--from", "2099-01-01T01:00", "--until", "2099-01-01T02:00")
    operator.does("reserve", "night", "--tenant", "acme", "--gpu", "A40-8Q", *night)


def _scrape(job: str, target: str) -> Mapping[str, Any]:
    return {"job_name": job, "static_configs": [{"targets": [target]}]}


def _alertmanager(url: str) -> Mapping[str, Any]:
    return {
        "route": {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "test", "webhook_configs": [{"url": url, "send_resolved": True}]}],
    }


def _wait(prometheus: Prometheus, expression: str, is_true: Callable[[Any], bool]) -> None:
    wait_for(lambda: is_true(prometheus.query(expression)), f"data of {expression}")
