# SPDX-License-Identifier: Apache-2.0
"""Rules of the two hosts and of the domain: versions, processors, and what QEMU and libvirt do not move."""

from collections.abc import Callable

from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.planner.moves.case import MoveCase, MoveHost
from vgpuctl.planner.moves.rule import Found, MoveRule, differs, is_before, whole

_LIVE = MoveKind.LIVE
_NOVA = "openstack/nova virt/libvirt/driver.py"
_LIBVIRT = "libvirt src/qemu/qemu_migration.c"
_DOMAIN = "the running domain of {case.vm.name}"


def _too_old(name: str, for_mdev: str, for_vf: str) -> Callable[[MoveCase], Found]:
    """Tell which hosts have a version that is too old for the VM's devices."""

    def look(case: MoveCase) -> Found:
        if not case.gpus:
            return ""
        wanted = for_mdev if all(gpu.is_mdev for gpu in case.gpus) else for_vf
        known = {host.name: getattr(host, name) for host in (case.here, case.there)}
        old = [f"{host} has {version}" for host, version in known.items() if is_before(version, wanted)]
        if old:
            return f"{', '.join(old)}, and {wanted} is needed"
        return None if any(is_before(version, wanted) is None for version in known.values()) else ""

    return look


def _machine_is_unknown(case: MoveCase) -> bool | None:
    machine, machines = case.domain.machine, case.there.machines
    return None if machine is None or machines is None else machine not in machines


def _cpu_differs(case: MoveCase) -> Found:
    """A guest with its host's own CPU was told of all its features, and keeps on using them."""
    mode = case.domain.cpu_mode
    if mode is None:
        return None
    if mode == "maximum":
        older = differs(case.here.qemu, case.there.qemu)
        return None if older is None else "versions of QEMU" if older else ""
    if mode != "host-passthrough":
        return ""
    here, there = case.here.cpu, case.there.cpu
    if here is None or there is None:
        return None
    names = [
        ("model", (here.vendor, here.model) != (there.vendor, there.model)),
        ("features", here.features != there.features),
        ("microcode", differs(here.microcode, there.microcode)),
    ]
    found = [name for name, is_other in names if is_other]
    return " and ".join(found) if found or (("microcode", None) not in names) else None


def _cpu_does_not_fit(case: MoveCase) -> bool | None:
    domain = case.domain
    if domain.cpu_mode is None:
        return None
    if domain.cpu_mode in ("host-passthrough", "maximum", "default"):
        return False
    return None if domain.cpu_runs_there is None else not domain.cpu_runs_there


def _of_domain(name: str) -> Callable[[MoveCase], Found | bool]:
    """Tell what a field of the running domain says against a move."""

    def look(case: MoveCase) -> Found | bool:
        value: object = getattr(case.domain, name)
        if value is None:
            return None
        if isinstance(value, tuple):
            return ", ".join(value)
        return value if isinstance(value, (str, bool)) else str(value or "")

    return look


def _from_newer(case: MoveCase) -> bool | None:
    here = case.here.qemu
    return None if here is None else is_before(case.there.qemu, here)


def _with_precopy_there_alone(case: MoveCase) -> bool | None:
    """True if only the other host's kernel has devices send state while the VM runs."""
    here, there = is_before(case.here.kernel, "6.2"), is_before(case.there.kernel, "6.2")
    if not case.gpus or here is False or there is True:
        return False
    return None if here is None or there is None else True


def _of_kernel(case: MoveCase) -> Found:
    """Tell which hosts run a kernel without version 2 of VFIO's migration protocol."""
    if not case.gpus:
        return ""
    known: list[tuple[MoveHost, bool | None]] = [
        (host, is_before(host.kernel, "5.18")) for host in (case.here, case.there)
    ]
    old = [f"{host.name} runs {host.kernel}" for host, is_old in known if is_old]
    return " and ".join(old) if old or None not in [is_old for _host, is_old in known] else None


def _without_dma_log(case: MoveCase) -> bool | None:
    if not case.gpus:
        return False
    return None if case.here.logs_dma is None else not case.here.logs_dma


HOST_RULES = (
    MoveRule(
        "qemu-too-old", _LIVE, "QEMU cannot move GPUs: {found}",
        "update QEMU", "QEMU's versions on {here.name} and {there.name}", _NOVA,
        whole(_too_old("qemu", "8.1", "8.2.2")),
    ),
    MoveRule(
        "libvirt-too-old", _LIVE, "libvirt cannot move GPUs: {found}",
        "update libvirt", "libvirt's versions on {here.name} and {there.name}", _NOVA,
        whole(_too_old("libvirt", "8.6", "10.0")),
    ),
    MoveRule(
        "kernel-too-old", _LIVE, "the kernel cannot move GPUs: {found}, and 5.18 is needed",
        "update the kernel", "the kernels of {here.name} and {there.name}", "Linux include/uapi/linux/vfio.h",
        whole(_of_kernel),
    ),
    MoveRule(
        "precopy-differs", _LIVE,
        "the kernel {there.kernel} of {there.name} waits for state that the one of {here.name}, {here.kernel}, does not"
        " send while the VM runs, so that the move never ends",
        "update the kernel of {here.name} to 6.2 or newer, or move the VM cold",
        "the kernels of {here.name} and {there.name}",
        "Linux 6.2, VFIO_MIGRATION_PRE_COPY; seen with QEMU 10.0 (switchover-ack)",
        whole(_with_precopy_there_alone),
    ),
    MoveRule(
        "dma-log", _LIVE,
        "the kernel {here.kernel} of {here.name} cannot tell which memory a device has written: it is built without "
        "CONFIG_IOMMUFD_DRIVER", "boot {here.name} with a kernel that has it, or move the VM cold",
        "the configuration of the kernel of {here.name}",
        "Linux drivers/iommu/iommufd/Kconfig; QEMU says `ram_save_setup failed: Operation not supported`",
        whole(_without_dma_log),
    ),
    MoveRule(
        "qemu-older", _LIVE, "QEMU of {there.name} ({there.qemu}) is older than that of {here.name} ({here.qemu})",
        "update QEMU on {there.name}: a running VM goes to an equal or newer QEMU",
        "QEMU's versions on {here.name} and {there.name}", "QEMU docs/devel/migration", whole(_from_newer),
    ),
    MoveRule(
        "machine-unknown", _LIVE, "QEMU of {there.name} has no machine type {case.domain.machine}",
        "update QEMU on {there.name}, or restart the VM", "the VM's machine type and those of {there.name}",
        "QEMU docs/devel/migration", whole(_machine_is_unknown),
    ),
    MoveRule(
        "cpu-differs", _LIVE, "the guest has the CPU of {here.name} itself, and {there.name} has other {found}",
        "choose a host with equal processors, microcode and QEMU",
        "the processors of {here.name} and {there.name}", "libvirt formatdomain.html, host-passthrough",
        whole(_cpu_differs),
    ),
    MoveRule(
        "cpu-does-not-fit", _LIVE, "{there.name} cannot run the guest's CPU",
        "choose a host with a CPU that has its features",
        "libvirt's comparison of the guest's CPU on {there.name}", "libvirt virConnectCompareHypervisorCPU",
        whole(_cpu_does_not_fit),
    ),
    MoveRule(
        "invtsc", _LIVE, "the guest's CPU has invtsc, and its frequency is not fixed",
        "set the frequency of the TSC in the domain", _DOMAIN, _LIBVIRT, whole(_of_domain("has_free_invtsc")),
    ),
    MoveRule(
        "viommu", _LIVE, "the guest has an IOMMU of its own", "remove it from the domain", _DOMAIN,
        "QEMU hw/vfio/migration.c", whole(_of_domain("has_viommu")),
    ),
    MoveRule(
        "virtiofs", _LIVE, "the guest has a folder of its host by virtiofs", "remove it from the domain", _DOMAIN,
        _LIBVIRT, whole(_of_domain("has_virtiofs")),
    ),
    MoveRule(
        "snapshots", _LIVE, "libvirt has {found} snapshots of the domain", "delete them: `virsh snapshot-delete`",
        "the snapshots of {case.vm.name}", _LIBVIRT, whole(_of_domain("snapshots")),
    ),
    MoveRule(
        "block-job", _LIVE, "a block job runs on {found}", "wait for its end, or end it: `virsh blockjob`",
        "the block jobs of {case.vm.name}", _LIBVIRT, whole(_of_domain("block_jobs")),
    ),
    MoveRule(
        "job", _LIVE, "libvirt is doing something else with the domain: {found}",
        "wait for its end: `virsh domjobinfo`",
        "libvirt's job of {case.vm.name}", _LIBVIRT, whole(_of_domain("job")),
    ),
    MoveRule(
        "disk-cache", _LIVE, "the caches of {found} may lose data in a live move",
        "restart the VM with cache none or directsync", _DOMAIN, _LIBVIRT, whole(_of_domain("unsafe_disks")),
    ),
    MoveRule(
        "transient-disk", _LIVE, "{found} is discarded when the VM ends", "remove it from the domain", _DOMAIN,
        _LIBVIRT, whole(_of_domain("transient_disks")),
    ),
    MoveRule(
        "other-device", _LIVE, "the domain has other devices of its host: {found}",
        "detach them: `virsh detach-device`",
        _DOMAIN, _LIBVIRT, whole(_of_domain("other_devices")),
    ),
)  # fmt: skip
