# SPDX-License-Identifier: Apache-2.0
"""The lab's records of its hosts between two commands, and the inventory made from them."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import LabError
from vgpuctl_lab.folder import LabFolder, write_private
from vgpuctl_lab.identity import LOGIN_USER
from vgpuctl_lab.network import MOST_HOSTS, address_of
from vgpuctl_lab.process import RecordedProcess

ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class HostAccess:
    """A host of the lab and its login: `ssh -i private_key -p port user@address`. inventory: the file for `-i`."""

    name: str
    state: str
    address: str
    port: int
    user: str
    private_key: Path
    known_hosts: Path
    inventory: Path


@dataclass(frozen=True)
class LabHost(HostAccess):
    """One emulated host. state: `up`, `starting` or `dead` (its process is gone; `lab up` starts it from its disk).

    seconds: how long the last start took until SSH and libvirt answered, None when it did not yet. network_address:
    on the network between the hosts of this lab.
    """

    console_log: Path
    pid: int
    cards: tuple[str, ...]
    memory_mib: int
    accelerator: str
    network_address: str
    seconds: float | None = None


@dataclass(frozen=True)
class HostRecord:
    """The record of a host in its folder. port: 0 until QEMU said it. seconds: None until the host answered.

    number: of the host in its lab, from 1, as long as it has a disk.
    """

    process: RecordedProcess
    port: int
    shape: str
    memory_mib: int
    accelerator: str
    number: int
    seconds: float | None

    def as_host(self, folder: LabFolder, name: str) -> LabHost:
        """The host as callers see it now."""
        state = "dead"
        if self.process.is_running():
            state = "starting" if self.seconds is None else "up"
        return LabHost(
            name=name,
            state=state,
            address=ADDRESS,
            port=self.port,
            user=LOGIN_USER,
            private_key=folder.private_key,
            known_hosts=folder.known_hosts,
            inventory=folder.inventory,
            console_log=folder.host(name) / "console.log",
            pid=self.process.pid,
            cards=tuple(self.shape.partition("=")[2].split(",")),
            memory_mib=self.memory_mib,
            accelerator=self.accelerator,
            network_address=str(address_of(self.number)),
            seconds=self.seconds,
        )


def read_record(folder: LabFolder, name: str) -> HostRecord | None:
    """The record of a host; None when it has none, as after a start that was killed before QEMU ran."""
    try:
        fields = json.loads((folder.host(name) / "host.json").read_text())
        return HostRecord(**{**fields, "process": RecordedProcess(**fields["process"])})
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        return None


def read_process(folder: LabFolder, name: str) -> RecordedProcess | None:
    """The process of a host, also of one that another version of the lab wrote down in another form."""
    try:
        return RecordedProcess(**json.loads((folder.host(name) / "host.json").read_text())["process"])
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        return None


def number_for(folder: LabFolder, name: str) -> int:
    """The number of a host in its lab: the one it has, else the lowest free one. Raises LabError when none is free."""
    records = {one: read_record(folder, one) for one in folder.host_names()}
    own = records.pop(name, None)
    if own:
        return own.number
    taken = {record.number for record in records.values() if record}
    free = next((number for number in range(1, MOST_HOSTS + 1) if number not in taken), None)
    if free is None:
        raise LabError(f"the lab has {len(taken)} hosts already", hint="`vgpuctl lab down HOST` ends one")
    return free


def write_record(folder: LabFolder, name: str, record: HostRecord) -> None:
    """Replace the record of a host."""
    write_private(folder.host(name) / "host.json", json.dumps(dataclasses.asdict(record), indent=2) + "\n")


def write_inventory(folder: LabFolder) -> None:
    """Write the inventory and the known host keys of every host that was started; remove both when there is none."""
    lines = ["# Written by `vgpuctl lab`; every `lab up` and `lab down` writes it anew.", "gpu_hosts:", "  hosts:"]
    keys = []
    for name in folder.host_names():
        record = read_record(folder, name)
        if record is None or not record.port:
            continue
        public = (folder.host(name) / "host_key.pub").read_text().split()
        keys.append(f"[{ADDRESS}]:{record.port} {public[0]} {public[1]}\n")
        values = {
            "ansible_host": ADDRESS,
            "ansible_port": record.port,
            "ansible_user": LOGIN_USER,
            "ansible_become": True,
            "ansible_ssh_private_key_file": str(folder.private_key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile='{folder.known_hosts}' -o IdentitiesOnly=yes",
            "ansible_python_interpreter": "/usr/bin/python3",
            "lab_network_address": str(address_of(record.number)),
        }
        # JSON's strings, numbers and booleans are YAML's too.
        lines += [f"    {name}:", *(f"      {key}: {json.dumps(value)}" for key, value in values.items())]
    if keys:
        write_private(folder.known_hosts, "".join(keys))
        write_private(folder.inventory, "\n".join(lines) + "\n")
    else:
        folder.known_hosts.unlink(missing_ok=True)
        folder.inventory.unlink(missing_ok=True)
