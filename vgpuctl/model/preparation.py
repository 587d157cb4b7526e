# SPDX-License-Identifier: Apache-2.0
"""A host as plain sh sees it over SSH, before anything is installed there: no Python, no root, no libvirt needed."""

from dataclasses import dataclass

PYTHON_FLOOR = (3, 9)


@dataclass(frozen=True)
class PythonThere:
    """One Python interpreter of the host."""

    path: str
    version: tuple[int, int]

    @property
    def is_new_enough(self) -> bool:
        """True if the agent runs on it."""
        return self.version >= PYTHON_FLOOR


@dataclass(frozen=True)
class ProbedCard:
    """One PCI function of class display or accelerator. vendor, device: four hex digits.

    total_vfs: None where the function has no SR-IOV. has_unassigned_memory: True if the firmware gave one of its
    memory BARs no address. is_vgpu_host: True if the driver has the file that only its vGPU edition has.
    """

    address: str
    vendor: str
    device: str
    subsystem: str
    driver: str | None
    total_vfs: int | None = None
    has_unassigned_memory: bool = False
    is_vgpu_host: bool = False


@dataclass(frozen=True)
class Preparation:
    """One host. An empty value means that it is not there, or that the login may not see it.

    distribution: os-release's ID, then ID_LIKE. release: its ID and VERSION_ID, such as `debian 13`. programs, modules,
    sockets (of libvirt), units (unit files), processes: names out of the lists that are looked for.
    cpu_virtualisation: `vmx`, `svm` or empty. mounted_pages_kib: of hugetlbfs. pages: (size in KiB, how many).
    firewalls: those that are switched on. needs_become: the login is not root. has_fabric_sdk: Fabric Manager's library
    libnvfm.so.1 is there.
    """

    distribution: tuple[str, ...] = ()
    release: str = ""
    operating_system: str = "Linux"
    kernel: str = ""
    machine: str = ""
    command_line: str = ""
    user_id: int = 0
    pythons: tuple[PythonThere, ...] = ()
    programs: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    has_modules_list: bool = False
    sockets: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()
    processes: frozenset[str] = frozenset()
    cpu_virtualisation: str = ""
    has_kvm: bool = False
    has_iommu: bool = False
    cards: tuple[ProbedCard, ...] = ()
    nvidia_driver: str | None = None
    firmware_builds: tuple[str, ...] = ()
    mounted_pages_kib: frozenset[int] = frozenset()
    pages: tuple[tuple[int, int], ...] = ()
    firewalls: tuple[str, ...] = ()
    selinux: str = ""
    has_secure_boot: bool | None = None
    is_proxmox: bool = False
    has_fabric_sdk: bool = False

    @property
    def needs_become(self) -> bool:
        """True if the login is not root."""
        return self.user_id != 0
