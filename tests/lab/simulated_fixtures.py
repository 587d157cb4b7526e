# SPDX-License-Identifier: Apache-2.0
"""A small fleet of simulated hosts for one test file, and ways to look at it without the product."""

import json
import os
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from vgpuctl_lab.simulated.layout import SimulatedFolder, simulated_folder
from vgpuctl_lab.simulated.libvirt_wire import REMOTE_PROGRAM, Kind, Packet, Procedure, decode
from vgpuctl_lab.simulated.machine.distribution import distribution_of
from vgpuctl_lab.simulated.machine.ovn import address_of
from vgpuctl_lab.simulated.machine.state import MachineFolder

# The hosts are sim-001 to sim-004, in this order.
MIX = "a40,a40/mdev-vf,t4+rtx-3090,flex-170"


def missing_for_simulated() -> str | None:
    """Say what this machine lacks to run simulated hosts; None when it has all."""
    for program in ("sshd", "libvirtd", "ssh-keygen", "setpriv"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            return f"{program} is not installed"
    return None


def need_simulated() -> None:
    """Skip the test where this machine cannot run simulated hosts; fail it where all tests must run."""
    if missing := missing_for_simulated():
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)


class _KeptAgent:
    """The agent's file and its compiled modules, taken from a host of this process's first fleet.

    Hosts of later fleets get both before their first login, like hosts that an operator reached earlier. To send and
    compile the agent takes 0.15 s of processor time on each host.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vgpuctl-tests-")
        self._files: list[Path] = []

    def give(self, folder: lab.LabFolder) -> None:
        for home in _homes(folder):
            cache = home / ".cache/vgpuctl"
            cache.mkdir(mode=0o700, parents=True)
            for file in self._files:
                shutil.copy2(file, cache)

    def take(self, folder: lab.LabFolder) -> None:
        reached = next((home for home in _homes(folder) if list(home.glob(".cache/vgpuctl/agent-*"))), None)
        if not self._files and reached:
            files = reached.glob(".cache/vgpuctl/agent-*")
            self._files = [Path(shutil.copy2(file, self._folder.name)) for file in files]


KEPT_AGENT = _KeptAgent()


def _homes(folder: lab.LabFolder) -> list[Path]:
    hosts = simulated_folder(folder)
    return [hosts.host(name) / "home" for name in hosts.host_names()]


@contextmanager
def simulated_fleet(folder: Path, hosts: int, mix: str) -> Iterator[lab.LabFolder]:
    """Simulated hosts below `folder` until the block ends."""
    need_simulated()
    made = lab.LabFolder(folder / "lab")
    lab.simulated.up(hosts, mix=mix, folder=made)
    KEPT_AGENT.give(made)
    try:
        yield made
    finally:
        KEPT_AGENT.take(made)
        lab.simulated.down(folder=made)


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    """The hosts that the test file's FLEET says: their number and mix.

    Without it four hosts, one per way to share a card; the third has a second card for passthrough.
    """
    hosts, mix = getattr(request.module, "FLEET", (4, MIX))
    with simulated_fleet(tmp_path_factory.mktemp("fleet"), hosts, mix) as made:
        yield made


def machine(folder: lab.LabFolder, name: str) -> MachineFolder:
    """The simulated machine of a host, as its own files say."""
    return MachineFolder(simulated_folder(folder).host(name))


def make_chassis(folder: lab.LabFolder) -> None:
    """Have every host run Open vSwitch and ovn-controller and be one of OVN's chassis.

    It is what `apply-hosts` does for a layout with `network` (tests/e2e/network/test_chassis.py), without its seconds.
    """
    for name in simulated_folder(folder).host_names():
        there = machine(folder, name)
        with there.change() as state:
            state.services |= dict.fromkeys(distribution_of(there.shape).ovn_services, True)
            state.ovn.bridges.setdefault("br-int", [])
            state.ovn.external_ids = {
                "system-id": name,
                "ovn-remote": "unix:/run/ovn/ovnsb_db.sock",
                "ovn-encap-type": "geneve",
                "ovn-encap-ip": address_of(there.shape.hostname),
            }


class Client:
    """A client of one host's libvirt that shows each packet. Reading ends after ten seconds."""

    def __init__(self, folder: SimulatedFolder, host: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(10)
        descriptor = os.open(folder.path, os.O_PATH | os.O_DIRECTORY)
        self._socket.connect(f"/proc/self/fd/{descriptor}/{folder.control_socket.name}")
        os.close(descriptor)
        self._socket.sendall(json.dumps({"call": "libvirt", "host": host}).encode() + b"\n")

    def close(self) -> None:
        self._socket.close()

    def call(self, procedure: Procedure, body: bytes = b"") -> list[Packet]:
        """Send a call. Returns what comes until its answer, the answer last."""
        self._socket.sendall(Packet(REMOTE_PROGRAM, procedure, Kind.CALL, 1, 0, body).encode())
        packets = [self._read()]
        while packets[-1].kind != Kind.REPLY:
            packets.append(self._read())
        return packets

    def _read(self) -> Packet:
        begun = self._take(4)
        return decode(begun + self._take(struct.unpack(">I", begun)[0] - 4))

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the lab has hung up")
            data += part
        return data


def processes_of(folder: lab.LabFolder) -> list[int]:
    """Every process of this machine that has the lab's folder in its arguments or its environment."""
    sign = str(folder.path).encode()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if sign in about:
            found.append(int(process.name))
    return found


def wait_for_no_process(folder: lab.LabFolder, limit_s: float = 15) -> list[int]:
    """Wait until no process of the lab is left; the ones that are."""
    end = time.monotonic() + limit_s
    while (left := processes_of(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    return left
