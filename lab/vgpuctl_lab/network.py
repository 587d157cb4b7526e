# SPDX-License-Identifier: Apache-2.0
"""The network between the hosts of one lab: a switch (vde_switch of VDE) and a second network card in every host.

It leads nowhere else: hosts of another lab, and this machine, are not on it. Frames carry up to 1500 bytes.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from vgpuctl.errors import LabError
from vgpuctl_lab.folder import LabFolder, write_private
from vgpuctl_lab.process import RecordedProcess, checked, needed_program, record

NETWORK = IPv4Network("10.83.0.0/24")
INTERFACE = "eth1"
NETDEV = "between"
MOST_HOSTS = 200
_FOLDER = "switch"
_RECORD = "switch.json"
# A Unix socket's path has at most 107 bytes; VDE adds a name such as `/001.12345` to the folder's.
_LONGEST_FOLDER = 90
_START_LIMIT_S = 20.0


def address_of(number: int) -> IPv4Address:
    """The address of the lab's host with this number, from 1."""
    return NETWORK[number]


def address_with_prefix(number: int) -> str:
    """The same as `ip address add` takes it."""
    return f"{address_of(number)}/{NETWORK.prefixlen}"


def mac_of(number: int) -> str:
    """The MAC address of the host's card; locally administered, in QEMU's usual range."""
    return f"52:54:00:83:00:{number:02x}"


def qemu_card(number: int) -> list[str]:
    """QEMU's arguments for the card; the process runs in `hosts/NAME` of the lab's folder."""
    return [
        *("-netdev", f"vde,id={NETDEV},sock=../../{_FOLDER}"),
        *("-device", f"virtio-net-pci,id={NETDEV}-card,netdev={NETDEV},mac={mac_of(number)},romfile="),
    ]


def ensure_switch(lab: LabFolder) -> None:
    """Start the switch unless it runs. Raises LabError: VDE missing, the folder's path too long."""
    process = _running(lab)
    if process:
        return
    folder = lab.path.resolve() / _FOLDER
    if len(str(folder).encode()) > _LONGEST_FOLDER:
        raise LabError(
            f"the path {lab.path} is too long for the sockets of the lab's network",
            hint=f"choose a folder of at most {_LONGEST_FOLDER - len(_FOLDER) - 1} bytes with --folder",
        )
    program = needed_program("vde_switch", package="vde2")
    number_file = lab.path / "switch.pid"
    number_file.unlink(missing_ok=True)
    checked(
        [program, "-daemon", "-sock", str(folder), "-mode", "600", "-numports", "256", "-pidfile", str(number_file)],
        what="starting the lab's network",
        timeout_s=_START_LIMIT_S,
    )
    write_private(lab.path / _RECORD, json.dumps(asdict(_started_switch(number_file, folder / "ctl"))) + "\n")


def _started_switch(number_file: Path, control: Path) -> RecordedProcess:
    """Wait for the switch, which answers for its start before it has written its number and opened its sockets."""
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError, ValueError):
            started = record(int(number_file.read_text()))
            if control.is_socket():
                number_file.unlink()
                return started
        time.sleep(0.02)
    raise LabError(f"the lab's network did not start: vde_switch opened no socket within {_START_LIMIT_S:.0f} s")


def end_switch(lab: LabFolder) -> None:
    """End the switch and remove its files."""
    process = _running(lab)
    if process:
        process.end(grace_s=2)
    (lab.path / _RECORD).unlink(missing_ok=True)
    for file in sorted((lab.path / _FOLDER).glob("*")):
        file.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        (lab.path / _FOLDER).rmdir()


def _running(lab: LabFolder) -> RecordedProcess | None:
    try:
        process = RecordedProcess(**json.loads((lab.path / _RECORD).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return process if process.is_running() else None
