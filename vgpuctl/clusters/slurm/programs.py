# SPDX-License-Identifier: Apache-2.0
"""Slurm's client programs on this machine, run against one cluster with limits of time and size.

A program talks to a tenant's slurmctld, so what it prints is a tenant's: it is read up to a limit and no further.
"""

import functools
import os
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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
            status, output, complaint = self._bounded([path, *arguments], environment, what)
            fields["exit"] = status
        if status == 0:
            return output
        said = printable(" ".join((complaint.strip() or output.strip()).split()))[-_SHOWN:]
        said = said or f"nothing, and ended with {status}"
        if _SILENT.search(complaint):
            raise ClusterUnreachable(
                f"cannot {what} in {self._name}: slurmctld does not answer; {program} says: {said}",
                hint=f"see that slurmctld runs, and that the slurm.conf of {self._name} names it",
            )
        raise ClusterRefused(f"cannot {what} in {self._name}: {program} says: {said}")

    def _bounded(self, argv: Sequence[str], environment: Mapping[str, str], what: str) -> tuple[int, str, str]:
        """Run to the end. Returns exit status, output and complaints."""
        give_up = time.monotonic() + self._answer_s
        try:
            process = subprocess.Popen(
                argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ClusterUnreachable(f"cannot {what} in {self._name}: {argv[0]}: {error.strerror}") from error
        assert process.stdout is not None and process.stderr is not None
        read = {process.stdout: bytearray(), process.stderr: bytearray()}
        with process, selectors.DefaultSelector() as selector:
            try:
                for stream in read:
                    selector.register(stream, selectors.EVENT_READ)
                while selector.get_map():
                    for key, _events in selector.select(max(0.0, give_up - time.monotonic())):
                        stream = process.stdout if key.fileobj is process.stdout else process.stderr
                        piece = os.read(stream.fileno(), 65_536)
                        read[stream] += piece
                        if not piece:
                            selector.unregister(stream)
                    if sum(map(len, read.values())) > MOST_BYTES:
                        raise ClusterRefused(
                            f"cannot {what} in {self._name}: {Path(argv[0]).name} writes more than {MOST_BYTES} bytes"
                        )
                    if time.monotonic() > give_up:
                        raise self._late(argv, what)
                status = process.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired as error:
                raise self._late(argv, what) from error
            finally:
                if process.returncode is None:
                    process.kill()
        return status, read[process.stdout].decode(errors="replace"), read[process.stderr].decode(errors="replace")

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
