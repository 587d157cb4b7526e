# SPDX-License-Identifier: Apache-2.0
"""Slurm's client programs on this machine, run against one cluster with limits of time and size.

A program talks to a tenant's slurmctld, so what it prints is a tenant's: it is read up to a limit and no further.
"""

import functools
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpuctl.bounded_program import Ended, ProgramTooLate, ProgramTooLong, run_bounded
from vgpuctl.clusters.slurm.config_file import SlurmConfig
from vgpuctl.errors import ClusterRefused, ClusterUnreachable
from vgpuctl.logs import timed
from vgpuctl.model.printable import printable

ANSWER_S = 20.0
"""Slurm's programs themselves give up on a silent slurmctld after 9 to 10 s (MessageTimeout, 22.05)."""
MOST_BYTES = 8 * 1024 * 1024
"""Of one answer: 1,024 nodes in 16 partitions, 500 bytes each."""
_USUAL_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin")
_SHOWN = 300
# Slurm's strings of ESLURM and SLURM_COMMUNICATIONS errors (src/common/slurm_errno.c).
_SILENT = re.compile(
    r"unable to contact slurm controller|connection refused|timed out|zero bytes were transmitted|"
    r"could not establish a configuration source|communication connection failure|socket timed out",
    re.IGNORECASE,
)


class SlurmPrograms:
    """The programs, with one slurm.conf, which is checked before each of them runs."""

    def __init__(self, config: SlurmConfig, *, answer_s: float = ANSWER_S) -> None:
        self._config = config
        self._name = config.name
        self._answer_s = answer_s

    def run(self, program: str, arguments: Sequence[str], *, what: str) -> str:
        """Run a program and return its output. what: in words, for messages: `cordon gpu-001`.

        Raises ClusterUnreachable when slurmctld does not answer in time, else ClusterRefused with Slurm's words.
        """
        path = find_program(program)
        if path is None:
            raise ClusterUnreachable(
                f"cannot {what} in {self._name}: {program} is not installed on this machine",
                hint="install Slurm's client programs (Debian, Ubuntu: slurm-client; RHEL, SUSE: slurm)",
            )
        # Slurm reads more variables than these; none of ours concerns a tenant's cluster.
        environment = {"SLURM_CONF": str(self._config.checked()), "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        with timed("slurm", program=program, cluster=self._name) as fields:
            ended = self._bounded([path, *arguments], environment, what)
            fields["exit"] = ended.status
        if ended.status == 0:
            return ended.output
        said = printable(" ".join((ended.complaint.strip() or ended.output.strip()).split()))[-_SHOWN:]
        said = said or f"nothing, and ended with {ended.status}"
        if _SILENT.search(ended.complaint):
            raise ClusterUnreachable(
                f"cannot {what} in {self._name}: slurmctld does not answer; {program} says: {said}",
                hint=f"see that slurmctld runs, and that the slurm.conf of {self._name} names it",
            )
        raise ClusterRefused(f"cannot {what} in {self._name}: {program} says: {said}")

    def _bounded(self, argv: Sequence[str], environment: Mapping[str, str], what: str) -> Ended:
        """Run to the end."""
        try:
            return run_bounded(argv, environment=environment, longest_s=self._answer_s, most_bytes=MOST_BYTES)
        except OSError as error:
            raise ClusterUnreachable(f"cannot {what} in {self._name}: {argv[0]}: {error.strerror}") from error
        except ProgramTooLong as error:
            raise ClusterRefused(
                f"cannot {what} in {self._name}: {Path(argv[0]).name} writes more than {MOST_BYTES} bytes"
            ) from error
        except ProgramTooLate as error:
            raise self._late(argv, what) from error

    def _late(self, argv: Sequence[str], what: str) -> ClusterUnreachable:
        return ClusterUnreachable(
            f"cannot {what} in {self._name}: {Path(argv[0]).name} had no answer of slurmctld within"
            f" {self._answer_s:g} s",
            hint=f"see that slurmctld runs, and that the slurm.conf of {self._name} names it",
        )


@functools.cache
def find_program(program: str) -> str | None:
    """The absolute path of a program: of PATH, or where Slurm is usually installed."""
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    return shutil.which(program, path=os.pathsep.join([*folders, *_USUAL_FOLDERS]))
