# SPDX-License-Identifier: Apache-2.0
"""The systemd unit that restores a host's layout before libvirt starts any VM.

`list-hosts` compares its text. It is not a template, since to load jinja2 takes longer than to ask a host.
"""

from collections.abc import Sequence

from vgpuctl.agent.wire.boot import AGENT, MANIFEST

_AFTER = ("nvidia-vgpud.service", "nvidia-vgpu-mgr.service", "nvidia-fabricmanager.service")
_BEFORE = ("libvirtd.service", "virtqemud.service", "virtnodedevd.service", "libvirt-guests.service")
# One run of the agent: udev may take 120 s, OVN's daemons 120 s and Fabric Manager 220 s. Each card is tried for about
# two minutes, and the last try may still cycle its VFs and wait for them. A run that systemd ends before leaves no
# result.
_HOST_TIMEOUT_S, _CARD_TIMEOUT_S = 500, 600


def render_boot_unit(python: str, stop_services: Sequence[str], *, cards: int) -> str:
    """The unit's text.

    stop_services: services that have the GPUs open, so they start after it, also where they are NVIDIA's own: a
    service that has to come both before and after the unit makes a cycle, and systemd drops a job to break it.
    cards: GPUs with a declared layout; each adds to the time limit.
    """
    before = sorted({*_BEFORE, *stop_services})
    after = [name for name in _AFTER if name not in stop_services]
    order = "".join(f"{key}={name}\n" for key, names in (("After", after), ("Before", before)) for name in names)
    timeout_s = _HOST_TIMEOUT_S + _CARD_TIMEOUT_S * cards
    return f"""\
# Written by vgpuctl apply-hosts; the next run overwrites it.
[Unit]
Description=Restore the GPU layout declared with vgpuctl
ConditionPathExists={MANIFEST}
After=local-fs.target systemd-modules-load.service systemd-udev-trigger.service
{order}
[Service]
Type=oneshot
RemainAfterExit=yes
# The second run restores what the first one did not. systemd before 244 refuses Restart= here, and newer ones start
# libvirt before they restart a unit.
ExecStartPre=-{python} -I -S {AGENT} apply --manifest {MANIFEST}
ExecStart={python} -I -S {AGENT} apply --manifest {MANIFEST} --unless-restored
TimeoutStartSec={timeout_s}
SyslogIdentifier=vgpuctl-restore

[Install]
WantedBy=multi-user.target
"""
