# SPDX-License-Identifier: Apache-2.0
"""Facts of Open vSwitch and OVN: of a working chassis, of hosts that are none, and every mix of them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from vgpuctl.agent.wire.ovn import InterfaceFacts, OvnFacts
from vgpuctl.agent.wire.steps import Chassis

REMOTE = "ssl:192.0.2.1:6642"
CHASSIS = Chassis("gpu1", REMOTE, "geneve", "10.83.0.9", uses_tls=True)
WORKING = OvnFacts(
    modules=("openvswitch", "geneve"),
    switch_active=True,
    controller_active=True,
    chassis=CHASSIS,
    interfaces=(InterfaceFacts("eno1", 1500, ("10.83.0.9/24",)),),
    has_certificate=True,
)
ON_LOOPBACK = replace(WORKING, chassis=replace(CHASSIS, remote="tcp:127.0.0.1:6642", uses_tls=False))
WORKING_ONES = (
    WORKING,
    replace(ON_LOOPBACK, has_certificate=False),
    replace(
        WORKING,
        modules=("openvswitch", "vxlan"),
        chassis=Chassis("gpu1", "unix:/run/ovn/ovnsb_db.sock", "vxlan", "10.83.0.9"),
    ),
    replace(WORKING, chassis=replace(CHASSIS, encapsulation="geneve,vxlan")),
    replace(WORKING, chassis=replace(CHASSIS, system_id="another-name")),
    replace(WORKING, not_enabled=("controller",)),
)
# Facts of a host that is not a working chassis, its fault, and a part of the remedy.
BROKEN: tuple[tuple[OvnFacts | None, str, str], ...] = (
    (None, "the host has no Open vSwitch and ovn-controller", "ovn-host"),
    (replace(WORKING, missing=("ovn-controller",)), "the host has no ovn-controller", "ovn-host"),
    (replace(WORKING, controller_active=False), "ovn-controller does not run", "systemctl start ovn-controller"),
    (replace(WORKING, switch_active=False), "Open vSwitch does not run", "systemctl start openvswitch"),
    (replace(WORKING, switch_active=False, chassis=None), "Open vSwitch does not run", "apply-hosts"),
    (
        replace(WORKING, chassis=Chassis()),
        "Open vSwitch has no system-id, ovn-remote, ovn-encap-type, ovn-encap-ip",
        "docs/networks.md",
    ),
    (replace(WORKING, chassis=replace(CHASSIS, remote="")), "Open vSwitch has no ovn-remote", "apply-hosts"),
    (replace(WORKING, chassis=replace(CHASSIS, address="")), "Open vSwitch has no ovn-encap-ip", "apply-hosts"),
    (replace(WORKING, has_certificate=False), f"the host has no certificate for {REMOTE}", "apply-hosts"),
    (
        replace(WORKING, chassis=replace(CHASSIS, uses_tls=False)),
        f"Open vSwitch names no certificate for {REMOTE}",
        "apply-hosts",
    ),
    (
        replace(WORKING, chassis=replace(CHASSIS, remote=f"tcp:127.0.0.1:6642,{REMOTE}"), has_certificate=False),
        "the host has no certificate",
        "apply-hosts",
    ),
    (replace(WORKING, modules=("openvswitch",)), "has no module geneve", "package of modules"),
    (replace(WORKING, modules=("geneve",)), "has no module openvswitch", "package of modules"),
)


def every_mix() -> Iterator[OvnFacts]:
    """Hosts with all programs of OVN, in every mix of what ovn-controller needs."""
    chassis = (
        None,
        *(
            Chassis(name, remote, kind, address, uses_tls=tls)
            for name, remote, kind, address, tls in product(
                ("gpu1", ""), (REMOTE, "tcp:127.0.0.1:6642", ""), ("geneve", ""), ("10.83.0.9", ""), (True, False)
            )
        ),
    )
    for one, switch, controller, certificate, modules in product(
        chassis, (True, False), (True, False), (True, False), (("openvswitch", "geneve"), ("openvswitch",), ())
    ):
        yield replace(
            WORKING,
            chassis=one,
            switch_active=switch,
            controller_active=controller,
            has_certificate=certificate,
            modules=modules,
        )
