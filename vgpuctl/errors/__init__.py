# SPDX-License-Identifier: Apache-2.0
"""Every error a user can meet, with its stable reference and exit code: import them from here and nowhere else.

docs/errors.md has the table, made from these classes. The exit codes:
1 VgpuctlError  2 UsageError: bad options or a bad specification  3 InventoryError: the inventory cannot be read
4 HostError: one host did not do what was asked (host.py)  5 NoCapacity: no GPU can take the request (capacity.py)
6 StateError: the store and the request disagree (state.py, store.py, network.py, image.py)
7 GuestError: libvirt refused a domain, volume or network (guest.py, image.py)  8 LabError
9 QuotaExceeded: a tenant asked for more than it was promised  10 PartialFailure: some hosts did and some did not
11 OvnError: OVN's databases did not do what was asked (network.py)
12 ClusterError: a tenant's Kubernetes or Slurm did not do what was asked (cluster.py)
13 WaitTimedOut: VMs did not meet a condition in time
70 Unexpected: a fault of vgpuctl itself, or of the machine it runs on  130 Interrupted: the user pressed Ctrl-C
"""

from vgpuctl.errors.base import (
    Interrupted,
    InventoryError,
    LabError,
    MissingExtra,
    PartialFailure,
    Unexpected,
    UsageError,
    VgpuctlError,
    WaitTimedOut,
)
from vgpuctl.errors.capacity import NoCapacity, NoLicence, PreemptionNeeded, QuotaExceeded
from vgpuctl.errors.cluster import (
    BindRefused,
    BindUnknown,
    ClusterConflict,
    ClusterError,
    ClusterMissing,
    ClusterRefused,
    ClusterUnreachable,
)
from vgpuctl.errors.guest import (
    DomainRejected,
    GuestError,
    NetworkMissing,
    NetworkRejected,
    VolumeExists,
    VolumeRejected,
)
from vgpuctl.errors.host import (
    AgentBroken,
    AgentProblem,
    AuthenticationFailed,
    BecomeFailed,
    CommandFailed,
    CommandTimedOut,
    HostError,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
    LayoutDiffers,
    LayoutRefused,
    LibvirtMissing,
    PythonMissing,
    RestartFailed,
    TooMuchOutput,
    WayFailed,
    WrongHost,
)
from vgpuctl.errors.image import ImageDiffers, ImageInUse, ImageMissing, ImageRejected, ImageUnregistered
from vgpuctl.errors.network import (
    AddressesExhausted,
    NetworkDiffers,
    NetworkInUse,
    OvnError,
    OvnRefused,
    OvnUnreachable,
    VpcObjectDiffers,
)
from vgpuctl.errors.state import (
    ConcurrentChange,
    DataLost,
    FileNotTrusted,
    FileNotWritten,
    NodesStillLeave,
    NotFound,
    PrometheusUnusable,
    StateError,
    TenantDiffers,
    VmDiffers,
)
from vgpuctl.errors.store import (
    StoreNotReconciled,
    StoreNotTheSame,
    StoreOutcomeUnknown,
    StoreReplaced,
    StoreTooNew,
    StoreUnusable,
)

__all__ = [
    "AddressesExhausted",
    "AgentBroken",
    "AgentProblem",
    "AuthenticationFailed",
    "BecomeFailed",
    "BindRefused",
    "BindUnknown",
    "ClusterConflict",
    "ClusterError",
    "ClusterMissing",
    "ClusterRefused",
    "ClusterUnreachable",
    "CommandFailed",
    "CommandTimedOut",
    "ConcurrentChange",
    "DataLost",
    "DomainRejected",
    "FileNotTrusted",
    "FileNotWritten",
    "GuestError",
    "HostError",
    "HostKeyChanged",
    "HostKeyUnknown",
    "HostUnreachable",
    "ImageDiffers",
    "ImageInUse",
    "ImageMissing",
    "ImageRejected",
    "ImageUnregistered",
    "Interrupted",
    "InventoryError",
    "LabError",
    "LayoutDiffers",
    "LayoutRefused",
    "LibvirtMissing",
    "MissingExtra",
    "NetworkDiffers",
    "NetworkInUse",
    "NetworkMissing",
    "NetworkRejected",
    "NoCapacity",
    "NoLicence",
    "NodesStillLeave",
    "NotFound",
    "OvnError",
    "OvnRefused",
    "OvnUnreachable",
    "PartialFailure",
    "PreemptionNeeded",
    "PrometheusUnusable",
    "PythonMissing",
    "QuotaExceeded",
    "RestartFailed",
    "StateError",
    "StoreNotReconciled",
    "StoreNotTheSame",
    "StoreOutcomeUnknown",
    "StoreReplaced",
    "StoreTooNew",
    "StoreUnusable",
    "TenantDiffers",
    "TooMuchOutput",
    "Unexpected",
    "UsageError",
    "VgpuctlError",
    "VmDiffers",
    "VolumeExists",
    "VolumeRejected",
    "VpcObjectDiffers",
    "WaitTimedOut",
    "WayFailed",
    "WrongHost",
]
