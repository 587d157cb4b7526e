# SPDX-License-Identifier: Apache-2.0
"""Checks of libvirt on the host: its daemons, monolithic or modular, and SELinux labels of its pools."""

from collections.abc import Iterator

from vgpuctl.agent.wire.check_ids import CheckId
from vgpuctl.agent.wire.diagnostics import LOG_DAEMON, MODULAR_DAEMONS, MONOLITHIC_DAEMON
from vgpuctl.model.distribution import Package, family_of, install
from vgpuctl.model.plural import counted
from vgpuctl.planner.doctor.examined import Examined
from vgpuctl.planner.doctor.finding import Finding, Severity
from vgpuctl.planner.doctor.host_checks import HOST

_QEMU = "virtqemud"
_USES = {
    _QEMU: "no VM can be seen or started",
    "virtstoraged": "volumes and images cannot be reached",
    "virtnetworkd": "networks of libvirt cannot be reached",
    "virtnwfilterd": "VMs with filtered ports do not start",
    "virtnodedevd": "only `virsh nodedev-list` needs it",
    LOG_DAEMON: "no VM starts, because its console is logged",
}
# selinux-policy, virt.te: types of folders in which a guest's files may be relabelled. The last four are types of
# whole file systems.
_POOL_TYPES = ("virt_image_t", "virt_content_t", "svirt_image_t", "nfs_t", "cifs_t", "fusefs_t", "cephfs_t")


def libvirt_daemons(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: a daemon of libvirt that vgpuctl needs does not listen; modular hosts have one for each kind."""
    daemons = daemons_of(seen)
    if daemons is None:
        return
    if not daemons:
        fix = install([Package.LIBVIRT], family_of(seen.facts.distribution))
        yield Finding(CheckId.LIBVIRT_DAEMONS, Severity.ERROR, HOST, "no daemon of libvirt is installed", fix)
        return
    if _is_up(seen, MONOLITHIC_DAEMON) and _is_up(seen, _QEMU):
        read = f"{MONOLITHIC_DAEMON} and {_QEMU} both listen, each with its own view of the VMs"
        fix = f"`systemctl disable --now {MONOLITHIC_DAEMON}.service {MONOLITHIC_DAEMON}.socket`, or {_QEMU}'s"
        yield Finding(CheckId.LIBVIRT_DAEMONS, Severity.WARNING, HOST, read, fix)
    for name in daemons:
        if _is_up(seen, name):
            continue
        unit = f"{name}.socket" if _is_loaded(seen, f"{name}.socket") else f"{name}.service"
        fix = f"`systemctl enable --now {unit}`"
        if not _is_loaded(seen, unit):
            fix = f"{install([Package.LIBVIRT], family_of(seen.facts.distribution))}, then {fix}"
        severity = Severity.NOTE if name == "virtnodedevd" else Severity.ERROR
        read = f"{name} does not listen: {_USES.get(name, 'no VM can be seen or started')}"
        yield Finding(CheckId.LIBVIRT_DAEMONS, severity, HOST, read, fix)


def daemons_of(seen: Examined) -> tuple[str, ...] | None:
    """The daemons of the host's kind of libvirt; empty where none is installed, None where systemd was not asked."""
    if seen.unit(f"{MONOLITHIC_DAEMON}.service") is None:
        return None
    has_one, has_many = (
        any(_is_loaded(seen, f"{name}.{kind}") for kind in ("service", "socket")) for name in (MONOLITHIC_DAEMON, _QEMU)
    )
    if not has_one and not has_many:
        return ()
    is_modular = has_many and (_is_up(seen, _QEMU) or not has_one) and not _is_up(seen, MONOLITHIC_DAEMON)
    return (*MODULAR_DAEMONS, LOG_DAEMON) if is_modular else (MONOLITHIC_DAEMON, LOG_DAEMON)


def daemon_of(seen: Examined) -> str:
    """The unit that serves QEMU's VMs on this host, for hints."""
    daemons = daemons_of(seen)
    return f"{daemons[0]}.socket" if daemons else "libvirtd.socket or virtqemud.socket"


def libvirt_autostart(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: libvirt itself starts a VM of the store with the host: no layout, share or fence is checked."""
    for domain in seen.domains or ():
        if domain.is_autostarted and domain.uuid in seen.vms:
            read = f"libvirt starts {domain.name} with the host, before vgpuctl has verified its shares"
            fix = f"`vgpuctl repair`, or `virsh autostart --disable {domain.name}` on the host"
            yield Finding(CheckId.LIBVIRT_AUTOSTART, Severity.WARNING, HOST, read, fix)


def stray_vm(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: a VM runs here that the store has on another host, or domains of vgpuctl's are left over."""
    left = []
    for domain in seen.domains or ():
        if domain.uuid in seen.vms:
            continue
        place = seen.elsewhere.get(domain.uuid)
        if place is None or not domain.is_active:
            left += [domain.name] if domain.is_made or place is not None else []
            continue
        read = f"{domain.name} runs here, and the store has its VM on {place}: started there it runs twice"
        fix = f"`virsh shutdown {domain.name}` on the host; or `vgpuctl reconcile-store --begin` where this is the VM"
        yield Finding(CheckId.STRAY_VM, Severity.ERROR, HOST, read, fix)
    if left:
        read = f"{counted(len(left), 'domain')} of VMs that the store does not have here: {', '.join(left)}"
        yield Finding(CheckId.STRAY_VM, Severity.NOTE, HOST, read, "`vgpuctl gc --dry-run` lists what is left over")


def selinux_pool(seen: Examined) -> Iterator[Finding]:
    """Beside the 24: SELinux is enforcing, and a storage pool's folder has a label that guests cannot use."""
    if seen.facts.selinux != "enforcing":
        return
    for pool in seen.diagnostics.pool_labels:
        if pool.type not in _POOL_TYPES:
            read = f"the folder {pool.path} of the pool {pool.pool} has the SELinux type {pool.type or 'none'}"
            fix = f"`semanage fcontext -a -t virt_image_t '{pool.path}(/.*)?'` and `restorecon -R {pool.path}`"
            yield Finding(CheckId.SELINUX_POOL, Severity.WARNING, HOST, read, fix)


def _is_loaded(seen: Examined, unit: str) -> bool:
    found = seen.unit(unit)
    return found is not None and found.load == "loaded"


def _is_up(seen: Examined, daemon: str) -> bool:
    units = (seen.unit(f"{daemon}.socket"), seen.unit(f"{daemon}.service"))
    return any(unit is not None and unit.active == "active" for unit in units)
