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

        Raises ClusterUnreachable where there is none, ClusterRefused for one that others may change, UsageError for a
        name that is none.
        """
        parse_pool_name(self.cluster, what="cluster")
        if "/" in self.tenant or self.tenant in ("", ".", ".."):
            raise ClusterRefused(f"'{printable(self.tenant[:80])}' is no name of a tenant")
        folder = self.folder.absolute()
        path = folder / self.tenant / self.cluster / FILE
        for part in (folder, folder / self.tenant, path.parent, path):
            self._check(part, path)
        return path

    def _check(self, part: Path, path: Path) -> None:
        try:
            status = part.lstat()
        except OSError as error:
            raise ClusterUnreachable(
                f"{self.name} has no {FILE}: {part}: {error.strerror}",
                hint=f"copy the cluster's slurm.conf to {path}, owned by root",
            ) from error
        is_wanted = stat.S_ISREG if part == path else stat.S_ISDIR
        if not is_wanted(status.st_mode):
            kind = "regular file" if part == path else "folder"
            raise ClusterRefused(f"{part} is no {kind}, so it is not used for {self.name}")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ClusterRefused(
                f"{part} may be changed by others (mode {stat.S_IMODE(status.st_mode):04o}, user {status.st_uid}),"
                f" and a {FILE} names programs that run here",
                hint=f"chown root {part}; chmod go-w {part}",
            )
