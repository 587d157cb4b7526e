# SPDX-License-Identifier: Apache-2.0
"""The network that joins hosts of a test, and the provider's: two bridges of one more Open vSwitch, without a kernel.

Open vSwitch's dummy interfaces reach one another by sockets; its own and OVN's tests join their hosts like this.
"""

import itertools
from collections.abc import Callable
from pathlib import Path

from tests.integration.ovn.chassis import Switch

_BRIDGES = {"tunnels": "br-phys", "outside": "br-provider"}
Call = Callable[..., object]


class Wire(Switch):
    """The switch as a context manager. Hosts join it while it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(1)
        self._joined: list[tuple[Call, str, str]] = []

    def join(self, vsctl: Call, appctl: Call, address: str) -> None:
        """Give a host a place in both networks. vsctl, appctl: of its Open vSwitch. address: of its tunnels."""
        number = next(self._numbers)
        for network, bridge in _BRIDGES.items():
            port = f"{network}{number}"
            socket = self.folder / f"{port}.sock"
            options = ["--", "set", "Interface", port, "type=dummy", f"options:pstream=punix:{socket}"]
            self.vsctl("add-port", network, port, *options, waits=True)
            made = ["add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=dummy", "fail-mode=standalone"]
            vsctl(*made, f'other-config:hwaddr="aa:55:00:00:{len(bridge):02x}:{number:02x}"', waits=True)
            far = f"{bridge[3:]}-far"
            options = ["--", "set", "Interface", far, "type=dummy", f"options:stream=unix:{socket}"]
            vsctl("add-port", bridge, far, *options, waits=True)
        mac = f"aa:55:00:00:{len('br-phys'):02x}:{number:02x}"
        vsctl("set", "Open_vSwitch", ".", "external-ids:ovn-bridge-mappings=provider:br-provider", waits=True)
        appctl("netdev-dummy/ip4addr", "br-phys", f"{address}/24")
        appctl("ovs/route/add", f"{address}/24", "br-phys")
        for there, its_address, its_mac in self._joined:
            there("tnl/neigh/set", "br-phys", address, mac)
            appctl("tnl/neigh/set", "br-phys", its_address, its_mac)
        self._joined.append((appctl, address, mac))

    def _start(self) -> None:
        super()._start()
        for network in _BRIDGES:
            self.vsctl(
                *("add-br", network, "--", "set", "Bridge", network, "datapath_type=dummy", "fail-mode=standalone"),
                waits=True,
            )

    def listen_outside(self) -> Path:
        """The file of the packets that the provider's router gets."""
        return self.add_interface("outside", "server")
