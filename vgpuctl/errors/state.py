# SPDX-License-Identifier: Apache-2.0
"""Errors of a request that the store contradicts, and of files and servers that the run needs."""

from vgpuctl.errors.base import VgpuctlError


class StateError(VgpuctlError):
    """The store and the request disagree."""

    reference = "state"
    exit_code = 6


class NotFound(StateError):
    """The store knows no such tenant, VM or host."""

    reference = "not-found"


class VmDiffers(StateError):
    """A VM of this name exists with another specification."""

    reference = "vm-differs"


class TenantDiffers(StateError):
    """A tenant of this name exists with other quotas, pools or another preemption policy."""

    reference = "tenant-differs"


class NodesStillLeave(StateError):
    """The nodes of a pool that is deleted still drain; their VMs are deleted first."""

    reference = "nodes-still-leave"


class ConcurrentChange(StateError):
    """Another run changed the same thing first."""

    reference = "concurrent-change"


class DataLost(StateError):
    """A volume of the VM was on a dead host's own storage."""

    reference = "data-lost"


class FileNotWritten(StateError):
    """A file on this machine cannot be written: the disk is full or read-only, or the user may not."""

    reference = "file-not-written"


class FileNotTrusted(StateError):
    """A file is not used, because others than its user may have written it, or may read the secret in it."""

    reference = "file-not-trusted"


class PrometheusUnusable(StateError):
    """A Prometheus server cannot be asked for past readings, or its answer cannot be used."""

    reference = "prometheus-unusable"
