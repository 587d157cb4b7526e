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
