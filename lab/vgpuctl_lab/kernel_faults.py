# SPDX-License-Identifier: Apache-2.0
"""Faults of emulated hosts: those of cards through the kernel module, those of the host over SSH and QMP.

An active fault is recorded in the host's folder until it ends or the host starts again.
"""

import json
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vgpuctl.errors import LabError, UsageError
from vgpuctl_lab import lifecycle
from vgpuctl_lab.cards import CardInterface, HostShape, parse_host
from vgpuctl_lab.folder import LabFolder, write_private
from vgpuctl_lab.machine import ask
from vgpuctl_lab.network import NETDEV
from vgpuctl_lab.records import ADDRESS, HostRecord, read_record

Active = tuple[str, str | None, int]
# How long a host's sshd may take to answer once it is due, and how often it is asked.
_SSHD_LIMIT_S, _SSHD_PAUSE_S = 60.0, 0.5
_FILL = "/var/lib/vgpuctl/lab-fault-fill"
# QEMU's names of the card that leads to this machine, and of the one between the hosts.
_NETWORK_CARDS = ("net", NETDEV)
END_LIBVIRTD = """
pid=$(cat /run/libvirtd.pid) && kill $pid || exit 1
for _ in $(seq 100); do kill -0 $pid 2>/dev/null || exit 0; sleep 0.1; done
exit 1
"""
START_LIBVIRTD = """
kill -0 $(cat /run/libvirtd.pid) 2>/dev/null || /run/lab/start-libvirtd
"""
# Sessions that are open stay; nothing from outside could start sshd again.
_SSHD_BEGINS = """
pid=$(cat /run/sshd.pid) || exit 1
setsid sh -c "sleep {value}; /usr/sbin/sshd -f /run/lab/sshd/sshd_config" </dev/null >/dev/null 2>&1 &
kill $pid
"""
# The file's own extents take a few blocks of what is free, so the kernel gives less than is asked for and says ENOSPC;
# dd takes the rest. Nothing is written for what fallocate gives: the disk's image stays small.
_DISK_BEGINS = f"""
fallocate -l $(df --output=avail -B1 /var/lib/vgpuctl | tail -1) {_FILL} 2>/dev/null
[ $(df --output=avail -B1 /var/lib/vgpuctl | tail -1) -lt 4194304 ] || exit 1
dd if=/dev/zero bs=4k count=1024 2>/dev/null >>{_FILL}
[ $(df --output=avail -B1 /var/lib/vgpuctl | tail -1) -eq 0 ]
"""
_WITHOUT_VFS = """
device=/sys/bus/pci/devices/{card} nvidia=/sys/bus/pci/drivers/nvidia stub=/sys/bus/pci/drivers/pci-pf-stub
[ -e $stub ] || modprobe pci-pf-stub || exit 1
if [ "$(cat $device/sriov_numvfs 2>/dev/null || echo 0)" != 0 ]; then
    /usr/lib/nvidia/sriov-manage -d {card} || exit 1
fi
"""
_VFS = """
device=/sys/bus/pci/devices/{card} nvidia=/sys/bus/pci/drivers/nvidia stub=/sys/bus/pci/drivers/pci-pf-stub
vfs=$(for link in $device/virtfn*; do [ ! -e $link ] || basename $(readlink $link); done)
"""
_STUB_BEGINS = f"""
{_WITHOUT_VFS}
echo pci-pf-stub >$device/driver_override && echo {{card}} >$device/driver/unbind || exit 1
echo {{card}} >$stub/bind
"""
# The folder where sriov-manage counts the faults that are its own.
_COUNTED = "/run/vgpulab-faults/{card}"
_PF_UNBOUND_BEGINS = f"""
{_WITHOUT_VFS}
mkdir -p /run/vgpulab-faults && echo $(({{value}} - 1)) >{_COUNTED}.pf-unbound && echo {{card}} >$device/driver/unbind
"""
_PF_UNBOUND_ENDS = f"""
rm -f {_COUNTED}.pf-unbound
[ -e /sys/bus/pci/devices/{{card}}/driver ] || echo {{card}} >/sys/bus/pci/drivers/nvidia/bind
"""
_VFS_ON_STUB_BEGINS = f"""
if [ "$(cat /sys/bus/pci/devices/{{card}}/sriov_numvfs)" = 0 ]; then
    /usr/lib/nvidia/sriov-manage -e {{card}} || exit 1
fi
{_VFS}
id="$(sed s/0x// $device/vendor) $(sed s/0x// $device/device)"
[ -e $stub ] || modprobe pci-pf-stub || exit 1
for vf in $vfs; do echo $vf >$nvidia/unbind || exit 1; done
echo $id >$stub/new_id && echo $id >$stub/remove_id
"""
_VFS_ON_STUB_ENDS = f"""
{_VFS}
for vf in $vfs; do
    [ ! -e $stub/$vf ] || {{{{ echo $vf >$stub/unbind && echo $vf >$nvidia/bind; }}}} || exit 1
done
"""
# The module applies the setting when a VF is bound, so existing VFs are bound once more.
_BIND_AGAIN = f"""
{_VFS}
for vf in $vfs; do echo $vf >$device/../$vf/driver/unbind && echo $vf >$nvidia/bind || exit 1; done
"""
_UNKNOWN_BOARD_BEGINS = """
id=$(sed s/0x// /sys/bus/pci/devices/{card}/device)
sed -i "/^SRIOV_ENABLED_GPUS=/s/$id: *//" /usr/lib/nvidia/sriov-manage
"""
_STUB_ENDS = """
device=/sys/bus/pci/devices/{card}
[ "$(basename "$(readlink $device/driver)")" = pci-pf-stub ] || exit 0
echo >$device/driver_override; echo {card} >$device/driver/unbind && echo {card} >/sys/bus/pci/drivers/nvidia/bind
"""
# Fabric Manager's state file (fabric_library/README.md): its line, and the active partitions where they are kept.
_FABRIC = """
mkdir -p /run/vgpulab && cd /run/vgpulab || exit 1
(echo manager - {manager}; {kept}) >fabric.new && mv fabric.new fabric
"""
_KEPT, _NOT_KEPT = "grep -s ^active fabric || :", ":"
_RESTARTS = _FABRIC.format(manager="window_ends=$(($(date +%s) + 60)) restarted=1", kept=_KEPT)
_STARTS_ANEW = _FABRIC.format(manager="stopped=0", kept=_NOT_KEPT)
_LINKS = """
mkdir -p /run/vgpulab && cd /run/vgpulab || exit 1
(grep -sv {card} fabric_links; echo links {card} failed={value}) >fabric_links.new
mv fabric_links.new fabric_links
"""
_OF_NVSWITCH = ("nvlink-failed", "fabric-starting", "fabric-dead", "fabric-restarted")
BEGINS = {
    "libvirtd": END_LIBVIRTD,
    "sshd": _SSHD_BEGINS,
    "disk-full": _DISK_BEGINS,
    "clock-skew": "date -s @$(($(date +%s) + {value})) >/dev/null",
    "pf-stub": _STUB_BEGINS,
    "pf-unbound": _PF_UNBOUND_BEGINS,
    "vfs-on-stub": _VFS_ON_STUB_BEGINS,
    "sriov-silent": f"mkdir -p /run/vgpulab-faults && echo {{value}} >{_COUNTED}.sriov-silent",
    "board-unknown": _UNKNOWN_BOARD_BEGINS,
    "nvlink-failed": _LINKS,
    "fabric-starting": _FABRIC.format(manager="starting_until=$(($(date +%s) + {value}))", kept=_NOT_KEPT),
    "fabric-dead": _FABRIC.format(manager="stopped=1", kept=_KEPT),
    "fabric-restarted": _RESTARTS,
}
ENDS = {
    "libvirtd": START_LIBVIRTD,
    "disk-full": f"rm -f {_FILL}",
    "clock-skew": "date -s @$(($(date +%s) - {value})) >/dev/null",
    "pf-stub": _STUB_ENDS,
    "pf-unbound": _PF_UNBOUND_ENDS,
    "vfs-on-stub": _VFS_ON_STUB_ENDS,
    "sriov-silent": f"rm -f {_COUNTED}.sriov-silent",
    "board-unknown": "cp /run/lab/sriov-manage /usr/lib/nvidia/sriov-manage",
    "nvlink-failed": "cd /run/vgpulab && sed -i /{card}/d fabric_links",
    "fabric-starting": _STARTS_ANEW,
    "fabric-dead": _RESTARTS,
    "fabric-restarted": _STARTS_ANEW,
}
_OF_SRIOV = ("pf-stub", "pf-unbound", "vfs-on-stub", "vfs-unregistered", "sriov-silent", "board-unknown")
# Tests whether a fault is still there that a repair ends or that has a count: the output then has its card.
_LASTS = """
until=$(sed -n 's/.*{key}=//p' /run/vgpulab/fabric | cut -d' ' -f1 | grep . || echo 0)
[ $until -le $(date +%s) ] || echo lasts
"""
STILL_THERE = {
    "pf-stub": "[ ! -e /sys/bus/pci/drivers/pci-pf-stub/{card} ] || echo {card}",
    "pf-unbound": f"[ -e /sys/bus/pci/devices/{{card}}/driver ] && ! grep -qs '[1-9]' {_COUNTED}.pf-unbound"
    " || echo {card}",
    "vfs-on-stub": "for link in /sys/bus/pci/devices/{card}/virtfn*; do"
    " [ ! -e /sys/bus/pci/drivers/pci-pf-stub/$(basename $(readlink $link)) ] || {{ echo {card}; break; }}; done",
    "vfs-unregistered": "grep -q '^card {card} .* unregistered=[1-9]' /proc/vgpulab/state && echo {card};"
    " for link in /sys/bus/pci/devices/{card}/virtfn*; do [ ! -e $link/driver ] || [ -e $link/nvidia ] ||"
    " [ -e $link/mdev_supported_types ] || {{ echo {card}; break; }}; done",
    "lock-busy": "! grep -q '^card {card} .* busy=1' /proc/vgpulab/state || echo {card}",
    "sriov-silent": f"! grep -qs '[1-9]' {_COUNTED}.sriov-silent || echo {{card}}",
    "fabric-starting": _LASTS.format(key="starting_until"),
    "fabric-dead": "! grep -qs stopped=1 /run/vgpulab/fabric || echo dead",
    "fabric-restarted": _LASTS.format(key="window_ends"),
}


def begin(lab: LabFolder, host: str, kind: str, value: int, card: str | None, *, of_card: bool) -> str | None:
    """Let a fault begin; the card it is on, None for one of the host. Raises LabError, UsageError."""
    record = _record(lab, host)
    shape = parse_host(record.shape)
    if kind in _OF_NVSWITCH and not shape.has_fabric_manager:
        raise UsageError(
            f"{host} has no Fabric Manager", hint="hosts with two boards with NVSwitch have it, such as h100-sxm5"
        )
    where = _card(shape, kind, card) if of_card else None
    known = active(lab, host)
    if (kind, where) in [one[:2] for one in known]:
        if kind in ("power-off", "network"):
            return where
        end(lab, host, [one for one in known if one[:2] == (kind, where)])
        known = active(lab, host)
    if kind == "power-off":
        record.process.end(grace_s=5)
        # The other faults were in its memory; the next start removes the file that fills the disk.
        known = []
    elif kind == "network":
        _set_links(lab, host, up=False)
    else:
        refused = _run(lab, host, _text_of_begin(where, kind, value))
        if refused is not None:
            raise LabError(f"{host} does not take the fault {kind}", context=refused)
    _write(lab, host, [*known, (kind, where, value)])
    return where


def end(lab: LabFolder, host: str, chosen: Sequence[Active]) -> None:
    """End faults; of sshd, which nothing from outside can start, wait until its time is over. Raises LabError."""
    known = active(lab, host)
    kinds = {one[0] for one in chosen}
    if "power-off" in kinds:
        record = _record(lab, host)
        lifecycle.up([parse_host(record.shape)], folder=lab, memory_mib=record.memory_mib)
        return
    # A fault that cuts the host off ends first, or the others could not be reached.
    if "network" in kinds:
        _set_links(lab, host, up=True)
        _write(lab, host, known := [one for one in known if one[0] != "network"])
    for _, _, seconds in [one for one in chosen if one[0] == "sshd"]:
        _wait_for_sshd(lab, host, seconds + _SSHD_LIMIT_S)
    if texts := [_text_of_end(one) for one in chosen if one[0] not in ("network", "sshd")]:
        ended = _run(lab, host, " && ".join(f"({text.strip()})" for text in texts))
        if ended is not None:
            names = ", ".join(sorted(kinds))
            raise LabError(f"{host} does not end what was asked for: {names}", context=ended)
    _write(lab, host, [one for one in known if one not in chosen])


def _text_of_begin(card: str | None, kind: str, value: int) -> str:
    if kind in BEGINS:
        return BEGINS[kind].format(value=value, card=card)
    if kind == "vfs-unregistered":
        return f"{_text_for_module(card, kind, value)} || exit 1\n{_BIND_AGAIN.format(card=card)}"
    return _text_for_module(card, kind, value)


def _text_of_end(one: Active) -> str:
    kind, card, value = one
    return ENDS[kind].format(value=value, card=card) if kind in ENDS else _text_of_begin(card, kind, 0)


def active(lab: LabFolder, host: str) -> list[Active]:
    """The faults that were set since the host's start and not ended; those that ended by themselves are not told."""
    try:
        start, recorded = json.loads(_path(lab, host).read_text())
    except (FileNotFoundError, ValueError):
        return []
    record = read_record(lab, host)
    if record is None or start != record.process.start_time:
        return []
    known: list[Active] = [(kind, card, value) for kind, card, value in recorded]
    kinds = {kind for kind, _, _ in known}
    if not kinds.isdisjoint(("network", "power-off")):
        return known
    if "sshd" in kinds:
        if not _sshd_answers(record.port):
            return known
        known = [one for one in known if one[0] != "sshd"]
    doubtful = [one for one in known if one[0] in STILL_THERE]
    if doubtful:
        # Setting the VFs again repairs what sriov-manage has left.
        asked = [f"{STILL_THERE[kind].format(card=card)}; echo -" for kind, card, _ in doubtful]
        with suppress(LabError):
            _, told, _ = lifecycle.run(host, "\n".join(asked), folder=lab)
            over = [one for one, said in zip(doubtful, told.split("-\n"), strict=False) if not said.strip()]
            known = [one for one in known if one not in over]
    return known


def _wait_for_sshd(lab: LabFolder, host: str, limit_s: float) -> None:
    limit = time.monotonic() + limit_s
    while not _sshd_answers(_record(lab, host).port):
        if time.monotonic() > limit:
            raise LabError(f"sshd of {host} is not back after {limit_s:.0f} s", hint="`vgpuctl lab reboot` starts it")
        time.sleep(_SSHD_PAUSE_S)


def _sshd_answers(port: int) -> bool:
    """True if the host's sshd says its version; QEMU takes the connection also when nobody listens behind it."""
    try:
        with socket.create_connection((ADDRESS, port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _record(lab: LabFolder, host: str) -> HostRecord:
    record = read_record(lab, host)
    if record is None:
        raise LabError(f"{host} was never started", hint="`vgpuctl lab up` starts it")
    return record


def _write(lab: LabFolder, host: str, known: list[Active]) -> None:
    record = read_record(lab, host)
    if record is not None:
        write_private(_path(lab, host), json.dumps([record.process.start_time, known]) + "\n")


def _path(lab: LabFolder, host: str) -> Path:
    return lab.host(host) / "faults.json"


def _card(shape: HostShape, kind: str, wanted: str | None) -> str:
    """The card of a fault: the named one, else the first that can have it."""
    of_nvidia = [
        (f"0000:{bus:02x}:00.0", card)
        for bus, card in zip(shape.buses, shape.cards, strict=True)
        if card.interface is not CardInterface.VF
    ]
    able = [address for address, card in of_nvidia if kind not in _OF_SRIOV or card.interface.has_virtual_functions()]
    if wanted in able or (wanted is None and able):
        return wanted or able[0]
    what = "NVIDIA GPU with SR-IOV" if kind in _OF_SRIOV else "NVIDIA GPU"
    raise UsageError(f"{shape.name} has no {what} {wanted or ''}".rstrip(), hint=f"it has {', '.join(able) or 'none'}")


def _set_links(lab: LabFolder, host: str, *, up: bool) -> None:
    for name in _NETWORK_CARDS:
        ask(lab.host(host), "set_link", {"name": name, "up": up})


def _text_for_module(card: str | None, kind: str, value: int) -> str:
    return (
        f"exec 3<>/proc/vgpulab/control && printf 'fault {card} {kind} {value}' >&3 && read answer <&3;"
        ' echo "$answer" >&2; [ "${answer%% *}" = ok ]'
    )


def _run(lab: LabFolder, host: str, shell_text: str) -> list[str] | None:
    """Run a text on the host: None, or what it said where it failed."""
    code, _, errors = lifecycle.run(host, shell_text, folder=lab, timeout_s=120)
    return errors.splitlines()[-5:] if code != 0 else None
