# SPDX-License-Identifier: Apache-2.0
"""The life of the emulated hosts: up, down, status, reboot, and a command inside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.lab.cards import HostShape
from vgpuctl.lab.folder import LabFolder


@dataclass(frozen=True)
class LabHost:
    """One emulated host. state: `up`, `starting` or `dead` (its process is gone; `lab up` starts it from its disk).

    inventory is the file for `-i`; ssh as `ssh -i private_key -p port user@address`; seconds: how long the last
    start took until SSH and libvirt answered, None when it did not yet.
    """

    name: str
    state: str
    address: str
    port: int
    user: str
    private_key: Path
    known_hosts: Path
    inventory: Path
    console_log: Path
    pid: int
    cards: tuple[str, ...]
    memory_mib: int
    accelerator: str
    seconds: float | None = None


def up(
    shapes: Sequence[HostShape] = (),
    *,
    folder: LabFolder | None = None,
    memory_mib: int = 4096,
    say: Callable[[str], None] = lambda _line: None,
) -> list[LabHost]:
    """Start the hosts that are not up; the default host when none is named. Returns once SSH and libvirt answer.

    say: receives one line of progress at a time. A host that is up with other cards is refused.
    Raises LabError when something is missing or a host does not come up; what was started is ended then.
    """
    raise SystemExit


def down(names: Sequence[str] = (), *, folder: LabFolder | None = None, purge: bool = False) -> list[str]:
    """End hosts (all without names) and remove their files; keeps the cache unless `purge`. Returns their names."""
    raise SystemExit


def status(*, folder: LabFolder | None = None) -> list[LabHost]:
    """Every host that has something left on this machine, by name."""
    raise SystemExit


def reboot(name: str, *, folder: LabFolder | None = None, say: Callable[[str], None] = lambda _line: None) -> LabHost:
    """Reset a host and wait until it answers again: VFs and vGPUs are gone, the disk is kept."""
    raise SystemExit


def shell_command(name: str, command: Sequence[str] = (), *, folder: LabFolder | None = None) -> list[str]:
    """The `ssh` command line that logs in to a host, with `command` (words, joined by blanks as ssh does)."""
    raise SystemExit


def run(
    name: str, shell_text: str, *, folder: LabFolder | None = None, timeout_s: float = 60, root: bool = True
) -> tuple[int, str, str]:
    """Run a shell text in a host as root (or as the login user): exit code, stdout, stderr."""
    raise SystemExit


def console_log(name: str, *, folder: LabFolder | None = None) -> Path:
    """The file with everything the host's kernel and start-up wrote to its console. Raises LabError without one."""
    raise SystemExit
