# SPDX-License-Identifier: Apache-2.0
"""lab fault: let something go wrong on a host of the lab, and end it again."""

from pathlib import Path

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_json, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl_lab.cli.folders import lab_folder

_COLUMNS = ("FAULT", "CARD", "VALUE")
# Spelled out, because `--help` must not load the lab; a test compares.
KINDS = (
    "refuse",
    "unbind-lock",
    "busy",
    "removal-delay",
    "fallen",
    "xid",
    "ecc",
    "pf-stub",
    "pf-unbound",
    "vfs-on-stub",
    "vfs-unregistered",
    "sriov-silent",
    "board-unknown",
    "lock-busy",
    "vf-wedged",
    "row-remap-pending",
    "row-remap-failed",
    "pages-retired",
    "bar-unassigned",
    "vbios-changed",
    "reset-fails",
    "no-reset",
    "flr-fails",
    "removal-ignored",
    "config-differs",
    "driver-lost",
    "no-sriov-admin",
    "types-alone",
    "vf-params-refused",
    "move-unsupported",
    "move-untracked",
    "move-no-precopy",
    "move-refused",
    "move-read-error",
    "move-header-refused",
    "move-checked-early",
    "move-load-refused",
    "move-state",
    "move-bandwidth",
    "move-dirty",
    "move-sleep",
    "move-stall",
    "nvlink-failed",
    "libvirtd",
    "sshd",
    "network",
    "disk-full",
    "clock-skew",
    "move-seconds",
    "move-port",
    "fabric-starting",
    "fabric-dead",
    "fabric-restarted",
    "fabric-version",
    "power-off",
)


@click.command("fault")
@click.argument("host")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.argument("value", required=False, metavar="[VALUE]")
@click.option("--card", metavar="ADDRESS", help="GPU with the fault, as 0000:41:00.0.  [default: the first NVIDIA GPU]")
@click.option("--clear", is_flag=True, help="End the fault, of any card; without KIND every fault of the host.")
@click.option("--list", "listed", is_flag=True, help="Only list the faults that the host has.")
@options.as_json
@click.pass_obj
def command(
    folder: Path | None,
    host: str,
    kind: str | None,
    value: str | None,
    card: str | None,
    clear: bool,
    listed: bool,
    as_json: bool,
) -> None:
    """Let something go wrong on a host, to rehearse it; print the faults it then has. A reboot ends them.

    Of a GPU: refuse [RM code, 0x1a], unbind-lock, busy, removal-delay [ms, 5000], fallen (off the bus), xid [31],
    ecc [errors, 1], pf-stub (left there by an interrupted sriov-manage), pf-unbound [times, 1], vfs-on-stub,
    vfs-unregistered (without types) [times, 1], sriov-silent (does nothing, exit 0) [runs, 1], board-unknown (to
    sriov-manage), lock-busy (no unbindLock for a while) [seconds, 60], vf-wedged (until the VFs are recreated)
    [VF, 1]. On simulated hosts alone: row-remap-pending, row-remap-failed, pages-retired [pages, 1], bar-unassigned,
    vbios-changed, reset-fails, no-reset, flr-fails, removal-ignored, config-differs, driver-lost; of Intel's
    no-sriov-admin, vf-params-refused. While VMs move: the kinds that begin with move- (docs/lab.md). Where it
    has NVSwitch: nvlink-failed [links, 1].

    Of the host: libvirtd, sshd (stopped; on an emulated host for [seconds, 60]), network (cut), disk-full,
    clock-skew [seconds, 3600], power-off. With NVSwitch: fabric-starting [seconds, 60], fabric-dead,
    fabric-restarted, fabric-version (simulated hosts alone).
    """
    import vgpuctl_lab as lab

    where = lab_folder(folder)
    if sum((clear, listed)) > 1 or (listed and kind) or (clear and value):
        raise UsageError("--list stands alone, and --clear takes no value")
    if clear:
        for ended, of_card, _ in lab.faults.clear(host, [kind] if kind else [], folder=where):
            say(f"{host}: {ended}{f' of {of_card}' if of_card else ''} has ended")
    elif kind:
        lab.faults.begin(host, kind, _number(value), card=card, folder=where)
    elif not listed:
        raise UsageError("no KIND, and neither --list nor --clear", hint=f"kinds: {', '.join(KINDS)}")
    found = lab.faults.active(host, folder=where)
    if as_json:
        print_json([{"fault": one, "card": of_card, "value": number} for one, of_card, number in found])
    else:
        rows = [(one, of_card, hex(number) if one == "refuse" else number) for one, of_card, number in found]
        print_table(_COLUMNS, rows, empty=f"{host} has no fault")


def _number(text: str | None) -> int | None:
    """Read a value as people write it: 26, 0x1a."""
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        raise UsageError(f"{text!r} is not a whole number") from None
