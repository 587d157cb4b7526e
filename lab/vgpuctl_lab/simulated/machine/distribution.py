# SPDX-License-Identifier: Apache-2.0
"""A distribution's names and users for the services of Open vSwitch and OVN, and those enabled at first."""

from dataclasses import dataclass, field

from vgpuctl_lab.simulated.machine.shape import Shape

DOMAINS = "run/libvirt/qemu"
"""Where libvirt keeps a file of each running domain."""


@dataclass(frozen=True)
class Distribution:
    """One. switch, controller: its services. enabled: units that its packages enable. static: that cannot be.

    users: its users by name. ovn_user: whom ovn-controller runs as. files: those of its packages. has_network_manager:
    whether NetworkManager runs, which takes every interface that it is not kept from.
    """

    operating_system: str
    switch: str
    controller: str
    enabled: tuple[str, ...]
    static: tuple[str, ...] = ()
    users: dict[str, int] = field(default_factory=lambda: {"root": 0, "libvirt-qemu": 64055})
    ovn_user: str = "root"
    files: dict[str, str] = field(default_factory=dict)
    has_network_manager: bool = False

    @property
    def ovn_services(self) -> tuple[str, str]:
        """Switch and controller."""
        return self.switch, self.controller


DEFAULT = "debian"
ENVIRONMENT = "/etc/sysconfig/ovn"
# Debian's openvswitch-switch and ovn-host packages; Fedora's and RHEL's openvswitch and ovn-host (their spec files).
DISTRIBUTIONS = {
    DEFAULT: Distribution(
        operating_system="Simulated host of vgpuctl's lab",
        switch="openvswitch-switch.service",
        controller="ovn-controller.service",
        enabled=("openvswitch-switch.service", "ovn-host.service"),
        static=("ovn-controller.service",),
    ),
    "rhel": Distribution(
        operating_system="Simulated host of vgpuctl's lab with the names of RHEL",
        switch="openvswitch.service",
        controller="ovn-controller.service",
        enabled=(),
        users={"root": 0, "openvswitch": 985, "qemu": 107},
        ovn_user="openvswitch",
        has_network_manager=True,
        files={ENVIRONMENT: '# OVN_USER_ID="root"\nOVN_USER_ID="openvswitch:hugetlbfs"\n'},
    ),
}


def distribution_of(shape: Shape) -> Distribution:
    """The distribution of a machine."""
    return DISTRIBUTIONS[shape.distribution]
