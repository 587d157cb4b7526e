# SPDX-License-Identifier: Apache-2.0
"""Rules of the GPUs of a VM: NVML's comparison, NVIDIA's own rules, and what VFIO needs of a device."""

from collections.abc import Callable

from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.model.version import version_of
from vgpuctl.model.vgpu_params import params_against_migration
from vgpuctl.planner.moves.case import MoveCase, MovedGpu, MoveHost
from vgpuctl.planner.moves.rule import Found, Looks, MoveRule, differs, each, either, found, is_before, whole
from vgpuctl.sharing.kind import HandedAs
from vgpuctl.sharing.kinds import kind_of

# The bits of nvml.h.
NVML_VGPU_VM_COMPATIBILITY_COLD = 0x1
NVML_VGPU_VM_COMPATIBILITY_LIVE = 0x8
NVML_VGPU_COMPATIBILITY_LIMIT_HOST_DRIVER = 0x1
NVML_VGPU_COMPATIBILITY_LIMIT_GUEST_DRIVER = 0x2
NVML_VGPU_COMPATIBILITY_LIMIT_GPU = 0x4
NVML_VGPU_COMPATIBILITY_LIMIT_OTHER = 0x80000000

_LIMITS = (
    NVML_VGPU_COMPATIBILITY_LIMIT_HOST_DRIVER
    | NVML_VGPU_COMPATIBILITY_LIMIT_GUEST_DRIVER
    | NVML_VGPU_COMPATIBILITY_LIMIT_GPU
)
_NVML = "NVML, nvmlGetVgpuCompatibility"
_COMPARISON = "NVML's comparison of {gpu.name} with {gpu.there_name} on {there.name}"
_NVIDIA = "NVIDIA AI Enterprise, vGPU live migration"
_VFIO = "QEMU hw/vfio/migration.c"
_LIVE, _COLD = MoveKind.LIVE, MoveKind.COLD
_MIGRATING_DRIVERS = ("xe_vfio_pci",)
"""Drivers of GPUs' VFs that have the VFIO migration protocol. None of them logs DMA."""
_RHEL = ("rhel", "centos", "almalinux", "rocky", "ol")


def _limited(bit: int) -> Callable[[MoveCase, MovedGpu], bool | None]:
    """Tell whether NVML forbids a live move, and names this limit."""

    def look(_case: MoveCase, gpu: MovedGpu) -> bool | None:
        answer = gpu.compatibility
        if answer is None:
            return None
        return not answer.ways & NVML_VGPU_VM_COMPATIBILITY_LIVE and bool(answer.limit_code & bit)

    return look


def _refused_without_limit(_case: MoveCase, gpu: MovedGpu) -> bool | None:
    answer = gpu.compatibility
    if answer is None:
        return None
    return not answer.ways & NVML_VGPU_VM_COMPATIBILITY_LIVE and not answer.limit_code & _LIMITS


def _refused_cold(_case: MoveCase, gpu: MovedGpu) -> bool | None:
    return None if gpu.compatibility is None else not gpu.compatibility.ways & NVML_VGPU_VM_COMPATIBILITY_COLD


def _is_vgpu(gpu: MovedGpu) -> bool:
    return gpu.is_vgpu


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _outside(case: MoveCase, gpu: MovedGpu) -> bool | None:
    accepted = case.there.vgpu_versions
    if gpu.guest_version is None or accepted is None:
        return None
    return not accepted[0] <= gpu.guest_version <= accepted[1]


def _params(_case: MoveCase, gpu: MovedGpu) -> Found:
    return None if gpu.params is None else ", ".join(params_against_migration(gpu.params))


def _is_early_rhel_9(host: MoveHost) -> bool | None:
    """True for RHEL 9 before 9.6, the first release on which two managers may differ."""
    version = _version_of_rhel(host)
    return None if version is None else (9,) <= version < (9, 6)


def _is_rhel_10(host: MoveHost) -> bool | None:
    version = _version_of_rhel(host)
    return None if version is None else version >= (10,)


def _version_of_rhel(host: MoveHost) -> tuple[int, ...] | None:
    """The version of RHEL or of its likes, (0,) for another distribution; None for one that is not known."""
    if host.distribution is None:
        return None
    name, version = host.distribution
    return (version_of(version) or None) if name in _RHEL else (0,)


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _driver_of_rhel(case: MoveCase, _gpu: MovedGpu) -> bool | None:
    is_early = either(_is_early_rhel_9(case.here), _is_early_rhel_9(case.there))
    return _both(is_early, differs(case.here.driver, case.there.driver))


def _vf_of_rhel(case: MoveCase, gpu: MovedGpu) -> bool | None:
    kinds = (gpu.sharing, gpu.there_sharing)
    on_vfs = (None if one is None else kind_of(one).handed_as is HandedAs.TYPED_VF for one in kinds)
    uses_vf = either(*on_vfs)
    return _both(uses_vf, either(_is_early_rhel_9(case.here), _is_early_rhel_9(case.there)))


def _between_rhel(case: MoveCase, _gpu: MovedGpu) -> bool | None:
    here, there = case.here, case.there
    return either(_both(_is_rhel_10(here), _is_early_rhel_9(there)), _both(_is_early_rhel_9(here), _is_rhel_10(there)))


def _there(gpu: MovedGpu, name: str) -> object:
    return None if gpu.there is None else getattr(gpu.there, name)


def _differing(name: str) -> Callable[[MoveCase, MovedGpu], bool | None]:
    """Tell whether the two cards differ in one of their fields."""
    return lambda _case, gpu: differs(getattr(gpu.here, name), _there(gpu, name))


def _card_without(case: MoveCase, gpu: MovedGpu) -> Found:
    bits = {
        f"{gpu.here.address} on {case.here.name}": gpu.here.can_migrate,
        f"{gpu.there_name} on {case.there.name}": gpu.there.can_migrate if gpu.there is not None else None,
    }
    without = [name for name, bit in bits.items() if bit is False]
    return " and ".join(without) if without or None not in bits.values() else None


def _driver(gpu: MovedGpu) -> str | None:
    return None if gpu.driver is None else gpu.driver.replace("-", "_")


def _without_migration(_case: MoveCase, gpu: MovedGpu) -> Found:
    driver = _driver(gpu)
    if gpu.has_migration:
        return ""
    if driver is None:
        return None
    return "" if driver in _MIGRATING_DRIVERS else gpu.driver


def _without_dirty_pages(case: MoveCase, gpu: MovedGpu) -> bool | None:
    is_old = either(*(is_before(host.libvirt, "12.2") for host in (case.here, case.there)))
    return either(_not(gpu.has_iommufd), is_old)


def _without_p2p(case: MoveCase) -> Looks:
    for gpu in case.gpus if len(case.gpus) > 1 else ():
        # RHEL 10 has several vGPUs of NVIDIA among what it supports.
        yield found(_not(True if gpu.is_vgpu else gpu.has_p2p)), gpu


def _on_fabric(case: MoveCase) -> Found | bool:
    return len(case.gpus) > 1 and either(*(gpu.here.on_fabric for gpu in case.gpus))


GPU_RULES = (
    MoveRule(
        "nvml-no-cold", _COLD,
        "{gpu.name}: NVML says that its guest cannot use {gpu.there_name} on {there.name}, even after it was shut down",
        "update the guest's driver to one that the vGPU manager of {there.name} accepts",
        _COMPARISON, _NVML, each(_refused_cold, _is_vgpu), unread=_LIVE,
    ),
    MoveRule(
        "nvml-host-driver", _LIVE,
        "{gpu.name}: the vGPU managers of {here.name} and {there.name} cannot pass a running vGPU to each other",
        "bring both hosts to one driver branch", _COMPARISON, _NVML,
        each(_limited(NVML_VGPU_COMPATIBILITY_LIMIT_HOST_DRIVER), _is_vgpu),
    ),
    MoveRule(
        "nvml-guest-driver", _LIVE,
        "{gpu.name}: the guest's driver does not work with the vGPU manager of {there.name}",
        "update the guest's driver", _COMPARISON, _NVML,
        each(_limited(NVML_VGPU_COMPATIBILITY_LIMIT_GUEST_DRIVER), _is_vgpu),
    ),
    MoveRule(
        "nvml-gpu", _LIVE, "{gpu.name}: NVML does not pass its vGPU to a card like {gpu.there_name} on {there.name}",
        "choose a host with a card of the same model and the same modes", _COMPARISON, _NVML,
        each(_limited(NVML_VGPU_COMPATIBILITY_LIMIT_GPU), _is_vgpu),
    ),
    MoveRule(
        "nvml-other", _LIVE, "{gpu.name}: NVML forbids a live move to {gpu.there_name} on {there.name}",
        "see the kernel log of {here.name} for NVIDIA's lines", _COMPARISON, _NVML,
        each(_refused_without_limit, _is_vgpu),
    ),
    MoveRule(
        "vgpu-not-migratable", _LIVE, "{gpu.name}: its vGPU does not offer migration",
        "start the guest's driver; see `nvidia-smi vgpu -q` on {here.name}",
        "NVML's migration bit of {gpu.name}", "NVML, nvmlVgpuInstanceGetMetadata",
        each(lambda _case, gpu: _not(gpu.can_migrate), _is_vgpu),
    ),
    MoveRule(
        "card-not-migratable", _LIVE, "{gpu.name}: migration is not offered by {found}",
        "install a vGPU manager that has migration for this card",
        "NVML's migration bits of the cards of {gpu.name}", "NVML, nvmlDeviceGetVgpuMetadata",
        each(_card_without, _is_vgpu),
    ),
    MoveRule(
        "vgpu-version", _LIVE,
        "{gpu.name}: its guest uses vGPU version {gpu.guest_version}, {there.name} accepts "
        "{there.vgpu_versions[0]} to {there.vgpu_versions[1]}",
        "choose a host whose vGPU manager accepts it, or restart the guest with another driver",
        "the vGPU versions of {gpu.name} and of {there.name}", "NVML, nvmlGetVgpuVersion",
        each(_outside, _is_vgpu),
    ),
    MoveRule(
        "board-differs", _LIVE,
        "{gpu.name}: {gpu.here.board} and {gpu.there.board} are different boards",
        "choose a host with the same board: also H100, H200 and H800, and 80 GB PCIe and 94 GB NVL, do not mix",
        "the boards of {gpu.name}", _NVIDIA, each(_differing("board"), _is_vgpu),
    ),
    MoveRule(
        "vgpu-type-differs", _LIVE, "{gpu.name}: its share on {there.name} is of another vGPU type",
        "choose a host with a share of the same type", "the vGPU types of {gpu.name}",
        f"{_NVIDIA}; QEMU resets a vGPU of another type and reports success",
        each(lambda _case, gpu: _not(gpu.has_equal_type), _is_vgpu),
    ),
    MoveRule(
        "ecc-differs", _LIVE, "{gpu.name}: ECC is on on one of the two cards alone",
        "set ECC alike on both cards, and reboot: `nvidia-smi -e`", "the ECC modes of the cards of {gpu.name}",
        _NVIDIA, each(_differing("ecc"), _is_vgpu),
    ),
    MoveRule(
        "vgpu-params", _LIVE, "{gpu.name}: its vGPU has {found}",
        "switch it off: `vgpuctl resize-vm --vgpu-param NAME=0 --restart`", "the parameters of {gpu.name}",
        "NVIDIA vGPU user guide, vGPU migration", each(_params, _is_vgpu),
    ),
    MoveRule(
        "driver-differs", _LIVE,
        "RHEL 9 before 9.6 needs equal NVIDIA drivers, {here.name} has {here.driver}, {there.name} has {there.driver}",
        "install the same driver on both hosts, or update both to RHEL 9.6",
        "distributions and NVIDIA drivers of {here.name} and {there.name}", _NVIDIA, each(_driver_of_rhel, _is_vgpu),
    ),
    MoveRule(
        "vf-on-old-rhel", _LIVE, "{gpu.name}: RHEL 9 before 9.6 does not move vGPUs that are on VFs without mdev",
        "update both hosts to RHEL 9.6", "distributions of {here.name} and {there.name}", _NVIDIA,
        each(_vf_of_rhel, _is_vgpu),
    ),
    MoveRule(
        "rhel-10-and-9", _LIVE, "no vGPU moves between RHEL 10 and RHEL 9 before 9.6",
        "update both hosts to one release", "distributions of {here.name} and {there.name}", _NVIDIA,
        each(_between_rhel, _is_vgpu),
    ),
    MoveRule(
        "sharing-differs", _LIVE,
        "{gpu.name}: it is shared as {gpu.sharing} on {here.name}, and as {gpu.there_sharing} on {there.name}",
        "choose a host that shares its cards in the same way", "the kind of the share on {there.name}", _VFIO,
        each(lambda _case, gpu: differs(gpu.sharing, gpu.there_sharing)),
    ),
    MoveRule(
        "nvlink-partition", _LIVE, "several GPUs on an NVSwitch fabric keep their partition",
        "none: such a VM is moved cold", "the fabric of the VM's GPUs", "NVIDIA Fabric Manager user guide",
        whole(_on_fabric),
    ),
    MoveRule(
        "passthrough", _LIVE, "{gpu.name}: a whole card on {found} has no migration",
        "", "the driver of {gpu.name}", _VFIO,
        each(_without_migration, lambda gpu: gpu.is_card),
    ),
    MoveRule(
        "vf-without-migration", _LIVE, "{gpu.name}: driver {found} of its VF has no migration",
        "bind the VF to a driver of its vendor that has VFIO migration", "the driver of {gpu.name}",
        _VFIO, each(_without_migration, lambda gpu: gpu.is_plain_vf),
    ),
    MoveRule(
        "vf-dirty-pages", _LIVE, "{gpu.name}: nobody can tell which memory its VF has written",
        "use libvirt 12.2 on both hosts, with iommufd and an IOMMU that tracks writes",
        "the iommufd of {gpu.name}, and libvirt of {here.name} and {there.name}", _VFIO,
        each(_without_dirty_pages, lambda gpu: gpu.is_plain_vf),
    ),
    MoveRule(
        "devices-without-p2p", _LIVE, "{gpu.name}: several devices move only if each has the P2P state",
        "move the VM cold", "the P2P state of {gpu.name}", _VFIO, _without_p2p,
    ),
)  # fmt: skip
