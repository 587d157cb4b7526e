# SPDX-License-Identifier: Apache-2.0
"""True if Slurm's own programs are installed on this machine."""

import os
import shutil
from pathlib import Path

import pytest

_CLIENTS = ("scontrol", "sinfo", "squeue", "sbatch", "scancel")
_DAEMONS = ("slurmctld", "slurmd")


def find_slurm() -> Path:
    """The folder of Slurm's client programs. Skips the test without them, or fails where tests must run."""
    return _folder("slurm-client", _CLIENTS)


def find_daemons() -> Path:
    """The folder of slurmctld and slurmd. Skips the test without them, or fails where tests must run."""
    return _folder("slurmctld slurmd", _DAEMONS)


def find_munge() -> Path:
    """The folder of munged and mungekey. Skips the test without them, or fails where tests must run."""
    return _folder("munge", ("munged", "mungekey"))


def _folder(package: str, programs: tuple[str, ...]) -> Path:
    path = f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
    found = [shutil.which(program, path=path) for program in programs]
    if None in found:
        reason = f"{programs[found.index(None)]} is not installed: apt-get install {package}"
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(str(found[0])).parent
