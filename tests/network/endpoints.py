# SPDX-License-Identifier: Apache-2.0
"""Endpoints on emulated hosts: network namespaces on the integration bridge, with the bindings that vgpuctl made.

An endpoint has the MAC, address and MTU of a VM's port, and Open vSwitch knows it by the same `iface-id` as libvirt
gives a VM's NIC. Beside them the world outside: a namespace behind the host's uplink.
"""

import shlex
from dataclasses import dataclass

from tests.lab_fixtures import KernelHost

UPLINK = "up0"
OUTSIDE_ROUTER, OUTSIDE_SERVER = "203.0.113.1", "198.51.100.7"
# Answers each connection on port 80 with its own name and the peer's address; on 81 with many bytes.
_SERVER = """
import select, socket, sys
ports = {}
for port in (80, 81):
    one = socket.create_server(("0.0.0.0", port), backlog=64)
    ports[one] = port
while True:
    for one in select.select(list(ports), [], [])[0]:
        connection, peer = one.accept()
        with connection:
            connection.settimeout(30)
            try:
                connection.sendall(f"{sys.argv[1]} {peer[0]}".encode() if ports[one] == 80 else bytes(1 << 20))
            except OSError:
                pass
"""
_PREPARE = f"""
set -e
for name in $(ip netns list | cut -d' ' -f1); do
    kill $(ip netns pids "$name") || true
    ovs-vsctl --timeout=30 --if-exists del-port br-int "$name"
    ip netns del "$name"
done
mkdir -p /run/endpoints
cat >/run/endpoints/server.py <<'END'
{_SERVER}
END
cat >/run/endpoints/add <<'END'
#!/bin/sh
# add NAMESPACE IFACE-ID MAC ADDRESS/PREFIX GATEWAY MTU
set -e
ip netns add "$1"
ovs-vsctl --timeout=30 add-port br-int "$1" -- set Interface "$1" type=internal "external_ids:iface-id=$2"
ip link set "$1" netns "$1"
ip -n "$1" link set lo up
ip -n "$1" link set "$1" address "$3" mtu "$6" up
ip -n "$1" address add "$4" dev "$1"
[ "$5" = - ] || ip -n "$1" route add default via "$5"
ip netns exec "$1" python3 -I -S /run/endpoints/server.py "$1" >/dev/null 2>&1 </dev/null &
END
chmod 755 /run/endpoints/add
"""
_OUTSIDE = f"""
set -e
ip netns add outside
ip link add {UPLINK} type veth peer name outside
ip link set outside netns outside
ip link set {UPLINK} up
ip -n outside link set lo up
ip -n outside link set outside up
ip -n outside address add {OUTSIDE_ROUTER}/24 dev outside
ip -n outside address add {OUTSIDE_SERVER}/32 dev lo
ip netns exec outside python3 -I -S /run/endpoints/server.py outside >/dev/null 2>&1 </dev/null &
"""


@dataclass(frozen=True)
class Endpoint:
    """One namespace in the place of a VM. name: at most 15 characters, as of its interface."""

    host: KernelHost
    name: str
    interface_id: str
    mac_address: str
    address: str
    gateway: str
    mtu: int

    def add(self) -> None:
        """Plug it in and let it serve."""
        words = [self.name, self.interface_id, self.mac_address, f"{self.address}/24", self.gateway, str(self.mtu)]
        run(self.host, shlex.join(["/run/endpoints/add", *words]))

    def run(self, command: str) -> str:
        """Run shell text in it."""
        return run(self.host, f"ip netns exec {self.name} {command}")

    def pings(self, address: str, *, count: int = 3, size: int = 56) -> int:
        """How many of `count` packets come back; size: of their payload."""
        command = f"busybox ping -c {count} -i 0.2 -w {count + 12} -s {size} {address}"
        text = run(self.host, f"ip netns exec {self.name} {command} || true")
        received = [line for line in text.splitlines() if "packets received" in line]
        return int(received[0].split(",")[1].split()[0]) if received else 0

    def hears_nothing_from(self, address: str, *, source: str | None = None) -> bool:
        """True if none of two packets comes back within seconds."""
        more = f"-I {source}" if source else ""
        command = f"busybox ping -c 2 -i 0.2 -w 4 {more} {address}"
        return " 0 packets received" in run(self.host, f"ip netns exec {self.name} {command} 2>&1 || true")

    def asks(self, address: str, port: int = 80, *, limit_s: int = 20) -> str:
        """The answer of a server to a connection; nothing without one."""
        command = f"busybox nc -w {limit_s} {address} {port}"
        return run(self.host, f"ip netns exec {self.name} {command} </dev/null || true")

    def stop_serving(self) -> None:
        """End its server; its kernel goes on answering."""
        run(self.host, f"kill $(ip netns pids {self.name})")

    def fetches(self, address: str) -> int:
        """How many bytes a server sends on one connection."""
        return int(self.run(f"busybox nc -w 60 {address} 81 </dev/null | wc -c"))

    def echoes_received(self) -> int:
        """How many echo requests its kernel got since it was made."""
        lines = self.run("cat /proc/net/snmp").splitlines()
        names, values = (line.split() for line in lines if line.startswith("Icmp:"))
        return int(values[names.index("InEchos")])


def prepare(host: KernelHost) -> None:
    """Bring the scripts onto the host, and delete what an earlier run left."""
    run(host, _PREPARE)


def add_outside(host: KernelHost) -> None:
    """Give the host an uplink with the world behind it."""
    run(host, _OUTSIDE)


def outside_pings(host: KernelHost, address: str) -> int:
    """How many of three packets from outside come back."""
    return Endpoint(host, "outside", "", "", "", "", 0).pings(address)


def outside_asks(host: KernelHost, address: str, port: int) -> str:
    """The answer of a server to a connection from outside."""
    return Endpoint(host, "outside", "", "", "", "", 0).asks(address, port)


def run(host: KernelHost, command: str) -> str:
    """Run shell text as root, which must succeed."""
    code, output, errors = host.run(command, timeout_s=120)
    assert code == 0, f"{host.name}: {command} ended with {code}\n{output}\n{errors}"
    return output
