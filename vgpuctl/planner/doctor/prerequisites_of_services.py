# SPDX-License-Identifier: Apache-2.0
"""Prerequisites among programs and services: QEMU, libvirt, UEFI builds, huge pages, OVN, the firewall."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.model.distribution import Package, describe_missing_mount, mount_huge_pages
from vgpuctl.model.host_parts import TPM_PROGRAMS
from vgpuctl.model.layout import Encapsulation
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.prerequisites import HOST, Newcomer, installing

_MONOLITHIC, _MODULAR = "libvirtd", "virtqemud"
_MODULAR_DAEMONS = ("virtqemud", "virtstoraged", "virtnetworkd", "virtnwfilterd")
_LOG_DAEMON = "virtlogd"
_PORTS = {Encapsulation.GENEVE: 6081, Encapsulation.VXLAN: 4789}
_DEFAULT_NETWORK = "default"


def qemu(host: Newcomer) -> Iterator[Finding]:
    """QEMU is not installed."""
    if not {"qemu-system-x86_64", "qemu-kvm"} & host.there.programs:
        yield installing(Package.QEMU, host, CheckId.QEMU, "neither qemu-system-x86_64 nor qemu-kvm is there")


def libvirt(host: Newcomer) -> Iterator[Finding]:
    """libvirt is not installed."""
    if not {_MONOLITHIC, _MODULAR} & host.there.programs:
        yield installing(Package.LIBVIRT, host, CheckId.LIBVIRT, "neither libvirtd nor virtqemud is there")
    elif "virt-ssh-helper" not in host.there.programs:
        read = "virt-ssh-helper is missing; libvirt before 6.7 does not have it"
        yield installing(Package.LIBVIRT, host, CheckId.LIBVIRT, read)


def libvirt_daemons(host: Newcomer) -> Iterator[Finding]:
    """libvirt is installed, and one of its daemons does not listen."""
    silent = _silent_daemons(host) if {_MONOLITHIC, _MODULAR} & host.there.programs else []
    if silent:
        command = f"systemctl enable --now {' '.join(f'{name}.socket' for name in silent)}"
        read = f"{', '.join(silent)} {'does' if len(silent) == 1 else 'do'} not listen in /run/libvirt"
        yield Finding(CheckId.LIBVIRT_DAEMONS, Severity.ERROR, HOST, read, command, command)


def _silent_daemons(host: Newcomer) -> list[str]:
    """Daemons without a socket. A host has either the monolithic daemon or the modular ones."""
    sockets = host.there.sockets
    if host.networks is not None:  # libvirt answered; its log daemon is asked when a VM starts
        return [] if f"{_LOG_DAEMON}-sock" in sockets else [_LOG_DAEMON]
    is_modular = "virtqemud-sock" in sockets or (
        "libvirt-sock" not in sockets and ("virtqemud.socket" in host.there.units or _MODULAR in host.there.programs)
    )
    if is_modular:
        wanted = {f"{name}-sock": name for name in (*_MODULAR_DAEMONS, _LOG_DAEMON)}
    else:
        wanted = {"libvirt-sock": _MONOLITHIC, "virtlogd-sock": _LOG_DAEMON}
    return [name for socket, name in wanted.items() if socket not in sockets]


def libvirt_network(host: Newcomer) -> Iterator[Finding]:
    """libvirt's network `default`, which VMs use unless they name another, is missing or off."""
    if host.networks is None or host.networks.get(_DEFAULT_NETWORK):
        return
    start = "virsh net-start default && virsh net-autostart default"
    if _DEFAULT_NETWORK in host.networks:
        yield Finding(
            CheckId.LIBVIRT_NETWORK, Severity.NOTE, HOST, "libvirt's network default is not active", start, start
        )
        return
    command = f"virsh net-define /usr/share/libvirt/networks/default.xml && {start}"
    read = "libvirt has no network default; VMs then need --network NAME or tenants' networks"
    yield Finding(CheckId.LIBVIRT_NETWORK, Severity.NOTE, HOST, read, command, command)


def guest_firmware(host: Newcomer) -> Iterator[Finding]:
    """No UEFI build for guests is installed; VMs with --firmware bios need none."""
    if not host.there.firmware_builds:
        found = installing(Package.FIRMWARE, host, CheckId.GUEST_FIRMWARE, "there is no UEFI build for guests")
        yield Finding(found.check, Severity.WARNING, found.subject, found.read, found.fix, found.command)


def guest_tpm(host: Newcomer) -> Iterator[Finding]:
    """A program of the TPM emulator is missing, which guests with --tpm on need, such as Windows 11."""
    missing = [name for name in TPM_PROGRAMS if name not in host.there.programs]
    if missing:
        read = f"the host has no {' and no '.join(missing)}; VMs with --tpm on are not placed here"
        found = installing(Package.SWTPM, host, CheckId.GUEST_TPM, read)
        yield Finding(found.check, Severity.NOTE, found.subject, found.read, found.fix, found.command)


def hugepages_mount(host: Newcomer) -> Iterator[Finding]:
    """Huge pages are kept or declared, and no hugetlbfs of their size is mounted."""
    declared = {size_kib for size_kib, count in host.layout.hugepages if count} if host.layout else set()
    kept = {size_kib for size_kib, count in host.there.pages if count}
    for size_kib in sorted((declared | kept) - host.there.mounted_pages_kib):
        severity = Severity.ERROR if size_kib in declared else Severity.WARNING
        yield Finding(
            CheckId.HUGEPAGES_MOUNT, severity, HOST, describe_missing_mount(size_kib), mount_huge_pages(size_kib)
        )


def ovn(host: Newcomer) -> Iterator[Finding]:
    """The layout declares OVN, and its packages or modules are missing."""
    network = host.layout.network if host.layout else None
    if network is None:
        return
    missing = [name for name in ("ovs-vsctl", "ovn-controller") if name not in host.there.programs]
    if missing:
        yield installing(Package.OVN_HOST, host, CheckId.OVN, f"the host has no {', '.join(missing)}")
    for name in ("openvswitch", str(network.encapsulation)):
        if host.there.has_modules_list and name not in host.there.modules:
            read = f"the kernel {host.there.kernel} has no module {name}"
            yield Finding(CheckId.OVN, Severity.ERROR, HOST, read, "install the kernel's package of modules")


def firewall(host: Newcomer) -> Iterator[Finding]:
    """A firewall is on, and the layout declares tunnels. vgpuctl itself needs only SSH's port; libvirt needs none."""
    network = host.layout.network if host.layout else None
    if network is None:
        return
    port = _PORTS[network.encapsulation]
    commands = {
        "firewalld": f"firewall-cmd --permanent --add-port={port}/udp && firewall-cmd --reload",
        "ufw": f"ufw allow from {network.tunnels} to any port {port} proto udp",
    }
    for name in host.there.firewalls:
        read = f"{name} is on; tunnels between the hosts need UDP {port}, and ping says nothing about it"
        yield Finding(CheckId.FIREWALL, Severity.WARNING, HOST, read, commands[name], commands[name])
