# SPDX-License-Identifier: Apache-2.0
"""The systemd units by which a host writes its readings for node_exporter."""

from vgpuctl.agent.wire.textfile import AGENT, SERVICE_NAME, TextfileFiles
from vgpuctl.guests.templating import render_template
from vgpuctl.model.layout import TelemetryLayout


def render_textfile_files(host: str, layout: TelemetryLayout | None, *, python: str) -> TextfileFiles:
    """The files that the host must have; none without a layout."""
    if layout is None:
        return TextfileFiles(False)
    service = render_template("vgpuctl-textfile.service.j2", python=python, agent=AGENT)
    timer = render_template("vgpuctl-textfile.timer.j2", interval_s=layout.interval_s, service=SERVICE_NAME)
    return TextfileFiles(True, host, layout.textfile, service, timer)
