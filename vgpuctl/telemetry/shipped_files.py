# SPDX-License-Identifier: Apache-2.0
"""The files for Prometheus, Alertmanager, Grafana and systemd that ship with vgpuctl."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from vgpuctl.errors import UsageError
from vgpuctl.telemetry.rule_files import RUNBOOK

EXPORTER, ALERTMANAGER, PROMETHEUS = "127.0.0.1:9635", "127.0.0.1:9093", "http://127.0.0.1:9090"
_DASHBOARDS = "/etc/vgpuctl/monitoring/grafana/dashboards"


# Nothing that has a meaning in YAML or in a systemd unit.
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d{1,5}")
_PAGE = re.compile(r"[\w.:/\[\]@~?=&+-]+")


@dataclass(frozen=True)
class Addresses:
    """The parts that depend on the place. dashboards: their folder on Grafana's machine. runbooks: address of the page.

    Raises UsageError for an address that is none.
    """

    exporter: str = EXPORTER
    alertmanager: str = ALERTMANAGER
    prometheus: str = PROMETHEUS
    dashboards: str = _DASHBOARDS
    runbooks: str = RUNBOOK

    def __post_init__(self) -> None:
        for name, value, form in (
            ("--exporter", self.exporter, _ADDRESS),
            ("--alertmanager", self.alertmanager, _ADDRESS),
            ("--prometheus", self.prometheus, _PAGE),
            ("--runbooks", self.runbooks, _PAGE),
        ):
            if form is _ADDRESS:
                require_address(name, value)
            elif not form.fullmatch(value):
                raise UsageError(f"{name} {value!a} is not a URL without spaces and quotes")


def require_address(option: str, value: str) -> None:
    """Raise UsageError unless the value of an option is ADDRESS:PORT, as Prometheus takes it."""
    if not _ADDRESS.fullmatch(value):
        raise UsageError(f"{option} {value!a} is not ADDRESS:PORT")


def shipped_files(addresses: Addresses) -> Mapping[str, str]:
    """Every file by its path, with these addresses in place of the defaults."""
    return {
        path: _with(addresses, path, text) for path, text in sorted(_read(resources.files(__package__) / "shipped"))
    }


def _read(folder: Traversable, below: str = "") -> Iterator[tuple[str, str]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _read(one, f"{below}{one.name}/")
        else:
            yield below + one.name, one.read_text(encoding="utf-8")


def _with(addresses: Addresses, path: str, text: str) -> str:
    """Only the places that have an address: a dashboard or a unit test's series could contain the same text."""
    replaced = {
        "prometheus.yml": ((EXPORTER, addresses.exporter), (ALERTMANAGER, addresses.alertmanager)),
        "systemd/vgpuctl-exporter.service": ((EXPORTER, addresses.exporter),),
        "grafana/provisioning/datasources/vgpuctl.yml": ((PROMETHEUS, addresses.prometheus),),
        "grafana/provisioning/dashboards/vgpuctl.yml": ((_DASHBOARDS, json.dumps(addresses.dashboards)),),
    }.get(path, ())
    if path.startswith("rule"):
        replaced = ((f"runbook_url: {RUNBOOK}#", f"runbook_url: {addresses.runbooks}#"),)
    for old, new in replaced:
        text = text.replace(old, new)
    return text
