# SPDX-License-Identifier: Apache-2.0
"""Where everything of the simulated hosts lies: the folder `simulated` of a lab."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from vgpuctl_lab.folder import LabFolder, write_private
from vgpuctl_lab.process import RecordedProcess

ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class SimulatedFolder(LabFolder):
    """The folder. Beside what a lab's folder has: programs of the hosts, the lab daemon's socket and libvirtd."""

    @property
    def programs(self) -> Path:
        """Programs of every simulated host on its PATH, before this machine's."""
        return self.path / "bin"

    @property
    def control_socket(self) -> Path:
        """Where the lab daemon listens."""
        return self.path / "daemon.sock"

    @property
    def programs_socket(self) -> Path:
        """Where the program server listens."""
        return self.path / "programs.sock"

    @property
    def libvirtd(self) -> Path:
        """Files of libvirt's daemon."""
        return self.path / "libvirtd"

    @property
    def daemon_log(self) -> Path:
        """The lab daemon's log."""
        return self.path / "daemon.log"

    def read_port(self, name: str) -> int:
        """The port a host had before, 0 for a new host."""
        path = self.host(name) / "port"
        return int(path.read_text()) if path.exists() else 0

    def write_port(self, name: str, port: int) -> None:
        """Keep a host's port for its next start."""
        write_private(self.host(name) / "port", f"{port}\n")

    def read_latency_s(self, name: str) -> float:
        """How long one round trip to a host takes longer than here."""
        return float((self.host(name) / "latency_ms").read_text()) / 1000

    def write_processes(self, daemon: RecordedProcess, libvirtd: RecordedProcess) -> None:
        """Put the lab's long processes on record."""
        both = [dataclasses.asdict(process) for process in (daemon, libvirtd)]
        write_private(self.path / "processes.json", json.dumps(both) + "\n")

    def read_processes(self) -> tuple[RecordedProcess, RecordedProcess] | None:
        """The lab daemon and libvirtd, None when nothing was started."""
        try:
            daemon, libvirtd = json.loads((self.path / "processes.json").read_text())
            return RecordedProcess(**daemon), RecordedProcess(**libvirtd)
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None


def simulated_folder(lab: LabFolder) -> SimulatedFolder:
    """The simulated hosts of a lab."""
    return SimulatedFolder(lab.simulated)
