# SPDX-License-Identifier: Apache-2.0
"""Errors of the clusters that tenants run on their nodes."""

from vgpuctl.errors.base import VgpuctlError


class ClusterError(VgpuctlError):
    """A tenant's cluster did not do what was asked."""

    reference = "cluster"
    exit_code = 12


class ClusterUnreachable(ClusterError):
    """The API server or slurmctld does not answer in time."""

    reference = "cluster-unreachable"


class ClusterRefused(ClusterError):
    """The cluster answered, and does not allow it: no right, or an answer that makes no sense."""

    reference = "cluster-refused"


class ClusterConflict(ClusterRefused):
    """The object has changed since it was read, or is what was to be made."""

    reference = "cluster-conflict"


class ClusterMissing(ClusterRefused):
    """The cluster has no such object."""

    reference = "cluster-missing"


class BindRefused(ClusterError):
    """A pod cannot be bound now; kube-scheduler tries again."""

    reference = "bind-refused"


class BindUnknown(ClusterError):
    """The API server was lost before it said whether a pod is bound. Nothing is undone: the next attempt goes on."""

    reference = "bind-unknown"
