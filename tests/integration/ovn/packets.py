# SPDX-License-Identifier: Apache-2.0
"""Packets without a module of the kernel: Open vSwitch carries them itself between namespaces on one machine.

`make test-network` sends them between two hosts by the kernel's datapath; here many rules of tenants are tried.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.integration.ovn.chassis import Chassis, missing_for_controller
from tests.ovn_fixture import LocalOvn, missing_for_ovn
from vgpuctl.agent.facts import packet_log
from vgpuctl.agent.facts.ovn import PID_FILES
from vgpuctl.agent.host import Completed, Host
from vgpuctl.model.network import Network
from vgpuctl.model.vpc import Vpc, VpcPort

HOST = "gpu1"
OUTSIDE = "outside"
_INSIDE = Path(__file__).with_name("inside.py")
_PORTS = ("80", "81")
_MTU, _WIDE_MTU = 1442, 1500
Probe = tuple[str, int] | tuple[str, int, str]
"""Address, port (0 for an echo request), and the source where it is not the endpoint's usual one."""
Wanted = dict[Probe, str | None]
"""The first word of each answer, None for no answer."""


def missing_for_packets() -> str | None:
    """What this machine lacks to carry packets, None when it has all."""
    for missing in (missing_for_ovn(), missing_for_controller()):
        if missing is not None:
            return missing
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists() or shutil.which("ip") is None:
        return "packets need root, /dev/net/tun and the program ip"
    return None


class PacketHost:
    """One host and the endpoints on it, in the places of VMs, as a context manager.

    outside: addresses, with prefix lengths, of the world behind the provider's wire.
    """

    def __init__(self, central: LocalOvn, physical_network: str, outside: Sequence[str]) -> None:
        self._central = central
        self._outside = outside
        self._own = f"vg{os.getpid():x}"
        self._numbers = itertools.count()
        self._names: dict[str, str] = {}
        self._servers: dict[str, subprocess.Popen[str]] = {}
        self._begun: list[subprocess.Popen[str]] = []
        southbound = f"unix:{central.folder}/sb.sock"
        bridges = {physical_network: "br-provider"}
        folder = central.folder / "host"
        self._chassis = Chassis(folder, HOST, southbound, namespace=self._own, bridges=bridges)

    def __enter__(self) -> Self:
        try:
            _run("ip", "netns", "add", self._own)
            _run("ip", "-n", self._own, "link", "set", "lo", "up")
            self._chassis.__enter__()
            self._add(OUTSIDE, None, self._outside, (), bridge="br-provider")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self._servers.values(), *self._begun):
            process.kill()
            process.wait()
        self._chassis.__exit__(kind, error, trace)
        for namespace in (*self._names.values(), self._own):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)

    def plug(self, *vpcs: Vpc, bare: Sequence[str] = ()) -> None:
        """An endpoint `TENANT/VM` for each port, with its addresses. bare: those that get theirs from the network."""
        for vpc in vpcs:
            networks = {one.id: one for one in vpc.networks}
            for port in vpc.ports:
                self._plug(f"{vpc.tenant}/{port.vm}", port, networks[port.port.network_id], bare)
        self.settle()

    @property
    def namespace(self) -> str:
        """The namespace in which Open vSwitch runs."""
        return self._own

    @property
    def log(self) -> str:
        """What ovn-controller has written down."""
        return (self._central.folder / "host" / "ovn-controller.log").read_text()

    def agent(self) -> "AgentHere":
        """The agent's way to this host."""
        return AgentHere(self._central.folder / "host")

    def settle(self) -> None:
        """Wait until the host has made flows of everything."""
        self._central.nbctl("--timeout=55", "--wait=hv", "sync")

    def probe(self, name: str, *wanted: Probe) -> dict[Probe, str | None]:
        """What an endpoint hears, None for nothing: `SERVER PEER` of a server, `echo` of an echo request."""
        asked = json.dumps([(*one, None)[:3] for one in wanted])
        return dict(zip(wanted, json.loads(self.inside(name, "probe", asked)), strict=True))

    def inside(self, name: str, *words: str) -> str:
        """Run a command of `inside.py` in an endpoint. `{interface}` is its interface."""
        said = [word.replace("{interface}", self.interface(name)) for word in words]
        return self.run(name, sys.executable, "-I", "-S", str(_INSIDE), *said)

    def begin(self, name: str, *words: str) -> "subprocess.Popen[str]":
        """Start a command of `inside.py` in an endpoint that reads lines and prints them, until this host ends."""
        command = ["ip", "netns", "exec", self._names[name], sys.executable, "-I", "-S", str(_INSIDE), *words]
        begun = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._begun.append(begun)
        return begun

    def run(self, name: str, *command: str) -> str:
        """Run a program in an endpoint."""
        return _run("ip", "netns", "exec", self._names[name], *command)

    def prefix(self, name: str) -> list[str]:
        """What runs a program in an endpoint."""
        return ["ip", "netns", "exec", self._names[name]]

    @property
    def switch(self) -> tuple[str, Path]:
        """The namespace in which Open vSwitch carries packets, and the folder of its sockets."""
        return self._own, self._central.folder / "host"

    def interface(self, name: str) -> str:
        """The interface of an endpoint."""
        return f"tap{self._names[name].rpartition('-')[2]}"

    def stop_serving(self, name: str) -> None:
        """End the server of an endpoint."""
        server = self._servers.pop(name)
        server.kill()
        server.wait()

    def _plug(self, name: str, port: VpcPort, network: Network, bare: Sequence[str]) -> None:
        if name in self._names:
            return
        pairs = zip(port.port.addresses, network.subnets, strict=True)
        addresses = [f"{address}/{subnet.prefixlen}" for address, subnet in pairs]
        gateways = () if network.request.isolated else network.gateways
        given = ((), ()) if name in bare else (addresses, gateways)
        self._add(name, port.port.id, *given, mac=port.port.mac_address)

    def _add(
        self,
        name: str,
        interface_id: str | None,
        addresses: Sequence[str],
        gateways: Sequence[str],
        *,
        mac: str | None = None,
        bridge: str = "br-int",
    ) -> None:
        number = next(self._numbers)
        namespace = self._names[name] = f"{self._own}-{number}"
        interface = f"tap{number}"
        _run("ip", "netns", "add", namespace)
        # An address serves at once, and a static endpoint listens to no router.
        learns = "0" if addresses else "2"
        for key, value in (("accept_dad", "0"), ("accept_ra", learns), ("router_solicitation_interval", "1")):
            self.run(name, "sh", "-c", f"echo {value} >/proc/sys/net/ipv6/conf/default/{key}")
        self._chassis.add_tap(interface, interface_id, bridge=bridge)
        _run("ip", "-n", self._own, "link", "set", interface, "netns", namespace)
        lines = [
            "link set lo up",
            f"link set {interface} mtu {_MTU if addresses else _WIDE_MTU}",
            f"link set {interface} up",
        ]
        if mac is not None:
            lines.insert(0, f"link set {interface} address {mac}")
        lines += [
            f"address add {one} dev {interface if '/32' not in one and '/128' not in one else 'lo'}"
            for one in addresses
        ]
        lines += [f"-{6 if ':' in one else 4} route add default via {one}" for one in gateways]
        for line in lines:
            _run("ip", "-n", namespace, *line.split())
        command = ["ip", "netns", "exec", namespace, sys.executable, "-I", "-S", str(_INSIDE), "serve", name, *_PORTS]
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self._servers[name] = server
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n", name


class AgentHere(Host):
    """The agent on a machine whose daemons have their files in a folder, and not where a distribution has them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def path(self, path: str) -> str:
        """The file of the daemons that a distribution has there."""
        return str(self._folder / "ovn-controller.log") if path == packet_log.LOG else super().path(path)

    def read_optional(self, path: str) -> str | None:
        """Say that the daemons run."""
        return str(os.getpid()) if path in PID_FILES.values() else super().read_optional(path)

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        """Run a program on the daemons of the folder."""
        environment = {**os.environ, "OVS_RUNDIR": str(self._folder), "OVN_RUNDIR": str(self._folder)}
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout_s, env=environment)
        return Completed(done.returncode, done.stdout, done.stderr)


def expect(found: Mapping[Probe, str | None], wanted: Mapping[Probe, str | None]) -> None:
    """Compare all at once. wanted: the first word of an answer."""
    heard = {probe: None if answer is None else answer.split()[0] for probe, answer in found.items()}
    assert heard == dict(wanted)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout
