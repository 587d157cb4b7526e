# SPDX-License-Identifier: Apache-2.0
"""Where the operator keeps the slurm.conf of each cluster: `FOLDER/TENANT/CLUSTER/slurm.conf`.

A slurm.conf names plugins, which Slurm's programs load and run with our rights. So a tenant never names one, and
nobody but root and the operator may write it.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import ClusterRefused, ClusterUnreachable
from vgpuctl.model.node_pool import parse_pool_name
from vgpuctl.model.printable import printable
from vgpuctl.trusted_files import FOUND, opened

FILE = "slurm.conf"


@dataclass(frozen=True)
class SlurmConfig:
    """The slurm.conf of one cluster. folder: of the operator, with one folder per tenant."""

    folder: Path
    tenant: str
    cluster: str

    @property
    def name(self) -> str:
        """The cluster for messages: `TENANT/CLUSTER`."""
        return f"{self.tenant}/{self.cluster}"

    def checked(self) -> Path:
        """The path of the file, after it and its folders were found to be the operator's alone.

        Raises ClusterUnreachable without such a file, FileNotTrusted if others may change it, ClusterRefused if it is
        not a regular file, UsageError for an invalid name of the cluster.
        """
        parse_pool_name(self.cluster, what="cluster")
        if "/" in self.tenant or self.tenant in ("", ".", ".."):
            raise ClusterRefused(f"'{printable(self.tenant[:80])}' is no name of a tenant")
        path = self.folder.absolute() / self.tenant / self.cluster / FILE
        try:
            with opened(path, FOUND) as file:
                if not stat.S_ISREG(os.fstat(file.descriptor).st_mode):
                    raise ClusterRefused(f"{path} is no regular file, so it is not used for {self.name}")
        except OSError as error:
            raise ClusterUnreachable(
                f"{self.name} has no {FILE}: {path}: {error.strerror}",
                hint=f"copy the cluster's slurm.conf to {path}, owned by root",
            ) from error
        return path
