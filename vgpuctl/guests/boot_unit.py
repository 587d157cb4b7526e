# SPDX-License-Identifier: Apache-2.0
"""The systemd unit that restores a host's layout before libvirt starts the VMs of an autostart."""

from collections.abc import Sequence

from vgpuctl.agent.wire.boot import AGENT, MANIFEST
from vgpuctl.guests.templating import render_template


def render_boot_unit(python: str, stop_services: Sequence[str]) -> str:
    """The unit's text. stop_services: services that have the GPUs open, so they start after it."""
    return render_template(
        "vgpuctl-restore.service.j2", python=python, agent=AGENT, manifest=MANIFEST, before=sorted(stop_services)
    )
