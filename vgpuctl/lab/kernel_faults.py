# SPDX-License-Identifier: Apache-2.0
"""Faults of emulated hosts: those of cards at the kernel module's door, those of the host over SSH and QMP.

What was set is on record beside the host's disk until it is ended or the host starts anew.
"""

import json
from pathlib import Path

from vgpuctl.errors import LabError, UsageError
from vgpuctl.lab import lifecycle
from vgpuctl.lab.cards import parse_host
from vgpuctl.lab.folder import LabFolder, write_private
from vgpuctl.lab.machine import ask
from vgpuctl.lab.network import NETDEV
from vgpuctl.lab.records import read_record

Active = tuple[str, str | None, int]
_FILL = "/var/lib/vgpuctl/lab-fault-fill"
# QEMU's names of the card that leads to this machine, and of the one between the hosts.
_NETWORK_CARDS = ("net", NETDEV)
_LIBVIRTD_BEGINS = """
pid=$(cat /run/libvirtd.pid) && kill $pid || exit 1
for _ in $(seq 100); do kill -0 $pid 2>/dev/null || exit 0; sleep 0.1; done
exit 1
"""
_LIBVIRTD_ENDS = "LD_PRELOAD=/run/lab/driver_link_shim.so libvirtd --daemon"
# Sessions that are open stay; nothing from outside could start sshd again.
_SSHD_BEGINS = """
pid=$(cat /run/sshd.pid) || exit 1
setsid sh -c "sleep {value}; /usr/sbin/sshd -f /run/lab/sshd/sshd_config" </dev/null >/dev/null 2>&1 &
kill $pid
"""
_DISK_BEGINS = f"""
free=$(df --output=avail -B1 /var/lib/vgpuctl | tail -1)
fallocate -l $free {_FILL} 2>/dev/null || dd if=/dev/zero of={_FILL} bs=1M 2>/dev/null
[ -s {_FILL} ]
"""
_STUB_BEGINS = """
device=/sys/bus/pci/devices/{card}
if [ "$(cat $device/sriov_numvfs 2>/dev/null || echo 0)" != 0 ]; then
    /usr/lib/nvidia/sriov-manage -d {card} || exit 1
fi
echo pci-pf-stub >$device/driver_override && echo {card} >$device/driver/unbind || exit 1
echo {card} >/sys/bus/pci/drivers/pci-pf-stub/bind
"""
_STUB_ENDS = """
device=/sys/bus/pci/devices/{card}
[ "$(basename "$(readlink $device/driver)")" = pci-pf-stub ] || exit 0
echo >$device/driver_override; echo {card} >$device/driver/unbind && echo {card} >/sys/bus/pci/drivers/nvidia/bind
"""
BEGINS = {
    "libvirtd": _LIBVIRTD_BEGINS,
    "sshd": _SSHD_BEGINS,
    "disk-full": _DISK_BEGINS,
    "clock-skew": "date -s @$(($(date +%s) + {value})) >/dev/null",
    "pf-stub": _STUB_BEGINS,
}
ENDS = {
    "libvirtd": _LIBVIRTD_ENDS,
    "sshd": "true",
    "disk-full": f"rm -f {_FILL}",
    "clock-skew": "date -s @$(($(date +%s) - {value})) >/dev/null",
    "pf-stub": _STUB_ENDS,
}


def begin(lab: LabFolder, host: str, kind: str, value: int, card: str | None, *, of_card: bool) -> str | None:
    """Let a fault begin; the card it is on, None for one of the host. Raises LabError, UsageError."""
    where = _card(lab, host, card) if of_card else None
    if any((one[0], one[1]) == (kind, where) for one in active(lab, host)):
        end(lab, host, kind, where)
    if kind == "power-off":
        record = read_record(lab, host)
        if record is None:
            raise LabError(f"{host} was never started")
        record.process.end(grace_s=5)
    elif kind == "network":
        _set_links(lab, host, up=False)
    elif kind in BEGINS:
        _run(lab, host, kind, BEGINS[kind].format(value=value, card=where))
    else:
        _tell_module(lab, host, where, kind, value)
    _write(lab, host, [*active(lab, host), (kind, where, value)])
    return where


def end(lab: LabFolder, host: str, kind: str, card: str | None) -> None:
    """End a fault. Raises LabError."""
    known = active(lab, host)
    (value,) = [one[2] for one in known if (one[0], one[1]) == (kind, card)] or [1]
    if kind == "power-off":
        record = read_record(lab, host)
        if record is not None:
            lifecycle.up([parse_host(record.shape)], folder=lab, memory_mib=record.memory_mib)
    elif kind == "network":
        _set_links(lab, host, up=True)
    elif kind in ENDS:
        _run(lab, host, kind, ENDS[kind].format(value=value, card=card))
    else:
        _tell_module(lab, host, card, kind, 0)
    _write(lab, host, [one for one in known if (one[0], one[1]) != (kind, card)])


def active(lab: LabFolder, host: str) -> list[Active]:
    """The faults that were set since the host's start and not ended."""
    try:
        start, known = json.loads(_path(lab, host).read_text())
    except (FileNotFoundError, ValueError):
        return []
    record = read_record(lab, host)
    if record is None or start != record.process.start_time:
        return []
    return [(kind, card, value) for kind, card, value in known]


def _write(lab: LabFolder, host: str, known: list[Active]) -> None:
    record = read_record(lab, host)
    if record is not None:
        write_private(_path(lab, host), json.dumps([record.process.start_time, known]) + "\n")


def _path(lab: LabFolder, host: str) -> Path:
    return lab.host(host) / "faults.json"


def _card(lab: LabFolder, host: str, wanted: str | None) -> str:
    code, text, errors = lifecycle.run(host, "cat /proc/vgpulab/cards", folder=lab)
    lines = [line.split() for line in text.splitlines() if line.startswith("card ")]
    cards = [words[1] for words in lines if "interface=vf" not in words]
    if code != 0 or not cards:
        raise LabError(f"{host} does not tell its cards", context=errors.splitlines()[-3:])
    if wanted is not None and wanted not in cards:
        raise UsageError(f"{host} has no NVIDIA GPU {wanted}", hint=f"its GPUs: {', '.join(cards)}")
    return wanted or cards[0]


def _set_links(lab: LabFolder, host: str, *, up: bool) -> None:
    for name in _NETWORK_CARDS:
        ask(lab.host(host), "set_link", {"name": name, "up": up})


def _tell_module(lab: LabFolder, host: str, card: str | None, kind: str, value: int) -> None:
    command = f"fault {card} {kind} {value}"
    _run(
        lab,
        host,
        kind,
        f"exec 3<>/proc/vgpulab/control && printf '{command}' >&3 && read answer <&3; echo \"$answer\" >&2;"
        ' [ "${answer%% *}" = ok ]',
    )


def _run(lab: LabFolder, host: str, kind: str, shell_text: str) -> None:
    code, _, errors = lifecycle.run(host, shell_text, folder=lab, timeout_s=120)
    if code != 0:
        raise LabError(f"{host} does not take the fault {kind}", context=errors.splitlines()[-5:])
