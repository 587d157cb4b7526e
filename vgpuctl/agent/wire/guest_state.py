# SPDX-License-Identifier: Apache-2.0
"""A guest's UEFI variables and TPM as files of its host. Python 3.9, standard library only."""

from enum import Enum
from typing import Tuple

from vgpuctl.agent.wire.values import dataclass

# libvirt's folders in its system daemon, as Debian, RHEL and SUSE build it.
NVRAM_FOLDER = "/var/lib/libvirt/qemu/nvram"
TPM_FOLDER = "/var/lib/libvirt/swtpm"


class StateAction(str, Enum):
    """The work on the files of one VM. list: name those of every VM."""

    LIST = "list"
    READ = "read"
    WRITE = "write"
    REMOVE = "remove"

    def __str__(self) -> str:
        return self.value

    def changes(self) -> bool:
        """Return True if it writes to the host."""
        return self in (StateAction.WRITE, StateAction.REMOVE)


@dataclass(frozen=True)
class StateFile:
    """One file. owner: a user's name. data: base64 of its content, compressed by zlib."""

    path: str
    mode: int
    owner: str
    data: str


@dataclass(frozen=True)
class StateOrder:
    """A request about files of state. files: belongs to `write`, and replaces what the VM has there.
    nvram: names of the VM's possible files of variables; the folder of its TPM follows from its UUID.
    """

    action: StateAction
    vm_uuid: str = ""
    nvram: Tuple[str, ...] = ()
    files: Tuple[StateFile, ...] = ()


@dataclass(frozen=True)
class GuestState:
    """The answer. files: of `read`. paths: those listed, or removed; a TPM is listed by its folder.

    remote: those of the two folders that are on a network file system, which other hosts may have too.
    """

    files: Tuple[StateFile, ...] = ()
    paths: Tuple[str, ...] = ()
    remote: Tuple[str, ...] = ()
