# SPDX-License-Identifier: Apache-2.0
"""The stable codes of rejections; docs/placement.md explains each."""

from enum import StrEnum


class Code(StrEnum):
    """Why a host or a GPU cannot take a request."""

    HOST_UNKNOWN = "host-unknown"
    HOST_WANTED_OTHER = "host-wanted-other"
    HOST_POOL = "host-pool"
    HOST_MAINTENANCE = "host-maintenance"
    HOST_CORDONED = "host-cordoned"
    HOST_DRAINED = "host-drained"
    HOST_FENCED = "host-fenced"
    HOST_LABELS = "host-labels"
    GROUP_APART = "group-apart"
    GROUP_TOGETHER = "group-together"
    HOST_TOO_SMALL = "host-too-small"
    HOST_CPUS = "host-cpus"
    HOST_MEMORY = "host-memory"
    HOST_HUGEPAGES = "host-hugepages"
    HOST_NUMA = "host-numa"
    HOST_FIRMWARE = "host-firmware"
    HOST_TPM = "host-tpm"
    HOST_CHASSIS = "host-chassis"
    HOST_UNREAD = "host-unread"
    HOST_SILENT = "host-silent"
    NO_GPU = "no-gpu"
    NOT_TOGETHER = "not-together"

    WRONG_BOARD = "wrong-board"
    NO_SUCH_TYPE = "no-such-type"
    GPU_LABELS = "gpu-labels"
    GPU_QUARANTINE = "gpu-quarantine"
    GPU_CORDONED = "gpu-cordoned"
    GPU_PROBLEM = "gpu-problem"
    DECLARED_OTHERWISE = "declared-otherwise"
    RESERVED_BY_LEASE = "reserved-by-lease"
    RESERVED_IN_CALENDAR = "reserved-in-calendar"
    CARD_IN_USE = "card-in-use"
    HOST_DISPLAY = "host-display"
    DRIVER = "driver"
    NO_IOMMU = "no-iommu"
    GROUP_NOT_ISOLATED = "group-not-isolated"
    NO_SRIOV = "no-sriov"
    VFS_NOT_ENABLED = "vfs-not-enabled"
    VFS_ENABLED = "vfs-enabled"
    NO_FREE_VF = "no-free-vf"
    LIBVIRT_TOO_OLD = "libvirt-too-old"
    NO_CONSOLE = "no-console"
    VGPU_PARAMS = "vgpu-params"
    GUEST_DRIVER = "guest-driver"
    GUEST_MPS = "guest-mps"
    COMPUTE_PROMISE = "compute-promise"
    MIG_ON = "mig-on"
    NO_MIG_INSTANCE = "no-mig-instance"
    EQUAL_SIZE = "equal-size"
    TYPE_ALONE = "type-alone"
    NO_PLACE_LEFT = "no-place-left"
    GPU_FULL = "gpu-full"
    REFUSED_BY_HOST = "refused-by-host"
    FABRIC_MODE = "fabric-mode"
    FABRIC_MANAGER = "fabric-manager"
    FABRIC_LINKS = "fabric-links"
    NO_PARTITION = "no-partition"
    PARTITION_TAKEN = "partition-taken"
    PARTITION_ACTIVE = "partition-active"

    def follows_from_the_request(self) -> bool:
        """True if it follows from the request, operators' words and the cards' models, whatever the hosts' state is."""
        return self in (
            Code.HOST_UNKNOWN,
            Code.HOST_WANTED_OTHER,
            Code.HOST_POOL,
            Code.HOST_MAINTENANCE,
            Code.HOST_CORDONED,
            Code.HOST_DRAINED,
            Code.HOST_FENCED,
            Code.HOST_LABELS,
            Code.HOST_TOO_SMALL,
            Code.HOST_CPUS,
            Code.NO_GPU,
            Code.WRONG_BOARD,
            Code.GPU_LABELS,
            Code.GPU_QUARANTINE,
            Code.GPU_CORDONED,
        )

    def is_for_ever(self) -> bool:
        """True if it is of the cards and hosts: nothing that ends and no operator's act admits the request."""
        return self.is_of_the_model() or self in (
            Code.HOST_UNKNOWN,
            Code.HOST_WANTED_OTHER,
            Code.HOST_TOO_SMALL,
            Code.HOST_CPUS,
            Code.NO_GPU,
            Code.NO_PARTITION,
        )

    def is_never(self) -> bool:
        """True if the host could not take the request even when it was empty."""
        return self.is_for_ever() and self is not Code.HOST_CPUS

    def admits_residents(self) -> bool:
        """True if it keeps new VMs away, but not those that are on the host and start again."""
        return self in (Code.HOST_MAINTENANCE, Code.HOST_CORDONED, Code.GPU_CORDONED)

    def is_of_the_model(self) -> bool:
        """True if the GPU's model cannot serve the request, whatever its state is."""
        return self in (Code.WRONG_BOARD, Code.NO_SUCH_TYPE)
