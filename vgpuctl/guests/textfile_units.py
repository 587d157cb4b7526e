# SPDX-License-Identifier: Apache-2.0
"""The systemd units by which a host writes its readings for node_exporter. No template, for the reason of boot_unit."""

from vgpuctl.agent.wire.textfile import AGENT, SERVICE_NAME, TextfileFiles
from vgpuctl.model.layout import TelemetryLayout


def render_textfile_files(host: str, layout: TelemetryLayout | None, *, python: str) -> TextfileFiles:
    """The files that the host must have; none without a layout."""
    if layout is None:
        return TextfileFiles(False)
    return TextfileFiles(True, host, layout.textfile, _service(python), _timer(layout.interval_s))


def _service(python: str) -> str:
    return f"""\
# Written by vgpuctl apply-hosts; the next run overwrites it.
[Unit]
Description=Write the GPU readings for node_exporter

[Service]
Type=oneshot
ExecStart={python} -I -S {AGENT} textfile
ExecStopPost={python} -I -S {AGENT} textfile --after
TimeoutStartSec=60
Nice=10
PrivateTmp=yes
ProtectHome=yes
SyslogIdentifier=vgpuctl-textfile
"""


def _timer(interval_s: int) -> str:
    return f"""\
# Written by vgpuctl apply-hosts; the next run overwrites it.
[Unit]
Description=Write the GPU readings for node_exporter every {interval_s} s

[Timer]
OnActiveSec=1s
# Not OnUnitActiveSec: a run that failed never was active.
OnUnitInactiveSec={interval_s}s
AccuracySec=1s
Unit={SERVICE_NAME}

[Install]
WantedBy=timers.target
"""
