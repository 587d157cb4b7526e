# SPDX-License-Identifier: Apache-2.0
"""The document of SLURM_RESUME_FILE: which jobs a node is resumed for (reference clusters, section 6.1).

22.05 and 23.02 name the keys differently, and every key may be missing. The nodes to resume are in the
program's argument; a document that cannot be read only costs the ids of the jobs.
"""

import os
import stat
import sys
from dataclasses import dataclass, field

import msgspec

from vgpuctl.errors import ClusterRefused, UsageError
from vgpuctl.model.hostlist import expand
from vgpuctl.model.printable import printable
from vgpuctl.typed_json import decode

VARIABLE = "SLURM_RESUME_FILE"
MOST_BYTES = 4 * 1024 * 1024
MOST_NAMES = 65_536
"""Of all jobs together."""
_LAST_JOB = 2**32 - 1


@dataclass(frozen=True)
class _Job:
    """One job. nodes: in 22.05, all of its nodes that are resumed; nodes_resume: the same from 23.02 on."""

    job_id: int | None = None
    nodes: str | None = None
    nodes_resume: str | None = None


@dataclass(frozen=True)
class _Document:
    jobs: list[_Job] = field(default_factory=list)


def read_resume_file(path: str) -> bytes:
    """The content of the file, which slurmctld keeps for some seconds only; of stdin for `-`. Raises ClusterRefused."""
    content = sys.stdin.buffer.read(MOST_BYTES + 1) if path == "-" else _content(path)
    if len(content) > MOST_BYTES:
        raise ClusterRefused(f"{VARIABLE} has more than {MOST_BYTES} bytes")
    return content


def _content(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ClusterRefused(f"{VARIABLE} is no regular file: {printable(path[:200])}")
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ClusterRefused(f"{VARIABLE} cannot be read: {printable(path[:200])}: {reason}") from error


def jobs_of_nodes(content: bytes) -> dict[str, list[str]]:
    """The ids of the jobs for which each node is resumed, by node. Raises ClusterRefused for another text."""
    try:
        document: _Document = decode(content, _Document)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ClusterRefused(f"{VARIABLE} is no document of Slurm: {printable(str(error)[:200])}") from error
    found: dict[str, list[str]] = {}
    names_left = MOST_NAMES
    for job in document.jobs:
        if job.job_id is None or not 0 < job.job_id <= _LAST_JOB:
            continue
        try:
            names = expand(job.nodes_resume or job.nodes or "")
        except UsageError as error:
            raise ClusterRefused(f"{VARIABLE}, job {job.job_id}: {error.message}") from error
        names_left -= len(names)
        if names_left < 0:
            raise ClusterRefused(f"{VARIABLE} names more than {MOST_NAMES} nodes")
        for name in names:
            jobs = found.setdefault(name, [])
            if str(job.job_id) not in jobs:
                jobs.append(str(job.job_id))
    return found
