# SPDX-License-Identifier: Apache-2.0
"""The table of the key `telemetry` of the variable `vgpu`: readings for node_exporter (docs/monitoring.md)."""

import re

from vgpuctl.errors import UsageError
from vgpuctl.model.layout import TelemetryLayout
from vgpuctl.specs.field import Field, Table, Text, Whole

_FOLDER = re.compile(r"(?:/[A-Za-z0-9._+-]+)+")


def _parse_folder(text: str, /, *, what: str) -> str:
    if not _FOLDER.fullmatch(text) or ".." in text.split("/"):
        raise UsageError(
            f"{what} is {text[:80]!r}, not an absolute path",
            hint="write the folder of node_exporter's --collector.textfile.directory",
        )
    return text


TELEMETRY = Table(
    "vgpu.telemetry",
    TelemetryLayout,
    (
        Field(
            "textfile",
            Text(_parse_folder, pattern="^/"),
            "Folder in which node_exporter looks for files; on Debian /var/lib/prometheus/node-exporter",
            metavar="FOLDER",
            is_required=True,
        ),
        Field("interval", Whole(5, 3600), "Seconds between two readings", "interval_s"),
    ),
)
