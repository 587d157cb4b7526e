# SPDX-License-Identifier: Apache-2.0
"""The document of SLURM_RESUME_FILE: which jobs a node is resumed for (reference clusters, section 6.1).

22.05 and 23.02 name the keys differently, every key may be missing, and newer releases have more of them (features,
extra, reservation), which say nothing that a pool does not say of its nodes. The nodes to resume are in the program's
argument; a job that cannot be read only costs its id, and a document that cannot be read the ids of all.
"""

import os
import stat
import sys
from dataclasses import dataclass, field

import msgspec

from vgpuctl.errors import ClusterRefused, UsageError
from vgpuctl.model.hostlist import expand
from vgpuctl.model.printable import printable
from vgpuctl.trusted_files import NAMED, opened
from vgpuctl.typed_json import decode

VARIABLE = "SLURM_RESUME_FILE"
MOST_BYTES = 4 * 1024 * 1024
MOST_NAMES = 65_536
"""Of all jobs together."""
_LAST_JOB = 2**32 - 1


@dataclass(frozen=True)
class _Number:
    """How Slurm's JSON writes a number that may be unset, from 23.02 on."""

    set: bool = False
    infinite: bool = False
    number: int = 0


@dataclass(frozen=True)
class _Job:
    """One job. nodes: in 22.05, all of its nodes that are resumed; nodes_resume: the same from 23.02 on."""

    job_id: int | _Number | None = None
    nodes: str | None = None
    nodes_resume: str | None = None


@dataclass(frozen=True)
class _Document:
    jobs: list[msgspec.Raw] = field(default_factory=list)


def read_resume_file(path: str) -> bytes:
    """The content of the file, which slurmctld keeps for some seconds only; of stdin for `-`. Raises ClusterRefused."""
    content = sys.stdin.buffer.read(MOST_BYTES + 1) if path == "-" else _content(path)
    if len(content) > MOST_BYTES:
        raise ClusterRefused(f"{VARIABLE} has more than {MOST_BYTES} bytes")
    return content


def _content(path: str) -> bytes:
    try:
        with opened(path, NAMED) as file:
            if not stat.S_ISREG(os.fstat(file.descriptor).st_mode):
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
    for content_of_one in document.jobs:
        job_id, names = _names_of(content_of_one)
        names_left -= len(names)
        if names_left < 0:
            raise ClusterRefused(f"{VARIABLE} names more than {MOST_NAMES} nodes")
        for name in names:
            jobs = found.setdefault(name, [])
            if str(job_id) not in jobs:
                jobs.append(str(job_id))
    return found


def _names_of(content: msgspec.Raw) -> tuple[int, list[str]]:
    """The id of one job and its nodes; no nodes for one that cannot be read or has no id of a job."""
    try:
        job: _Job = decode(bytes(content), _Job)
        names = expand(job.nodes_resume or job.nodes or "")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, UsageError):
        return 0, []
    number = job.job_id
    if isinstance(number, _Number):
        number = number.number if number.set and not number.infinite else None
    if number is None or not 0 < number <= _LAST_JOB:
        return 0, []
    return number, names
