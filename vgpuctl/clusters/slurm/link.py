# SPDX-License-Identifier: Apache-2.0
"""One Slurm cluster, read and told by Slurm's own programs (reference clusters, section 6.3; 22.05 and newer)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpuctl.clusters.slurm.config_file import SlurmConfig
from vgpuctl.clusters.slurm.programs import ANSWER_S, SlurmPrograms
from vgpuctl.errors import ClusterRefused
from vgpuctl.model.cluster_member import ClusterMember
from vgpuctl.model.printable import printable

MARK = "vgpuctl: "
"""Begins the reasons that vgpuctl gives, by which it knows its own cordons."""

_NODE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_JOB = re.compile(r"[0-9]{1,10}")
_NAME_WIDTH, _STATE_WIDTH, _REASON_WIDTH = 70, 200, 300
# The same text from 20.02 on, while sinfo's JSON has another shape in each version. Fields have fixed widths, so
# that a reason cannot look like a state.
_FORMAT = f"NodeList:{_NAME_WIDTH},StateComplete:{_STATE_WIDTH},Reason:{_REASON_WIDTH}"
_LONGEST_REASON = 200
_GONE = "its VM is gone"
_NAME = re.compile(r"[!-~]{1,64}")
_OFF = frozenset({"POWERED_DOWN", "POWERING_DOWN"})
_POWERING_UP = frozenset({"POWERING_UP", "POWER_UP"})
_ABSENT = frozenset({*_OFF, *_POWERING_UP, "NOT_RESPONDING", "INVALID_REG", "REBOOT_ISSUED"})
_WORKING = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING"})
# A job with one of these is on its node.
_ON_NODE = "CONFIGURING,COMPLETING,RUNNING,SUSPENDED,STOPPED,SIGNALING,STAGE_OUT"


@dataclass(frozen=True)
class _Row:
    """A node as sinfo shows it. words: its state, in upper case."""

    words: frozenset[str]
    reason: str

    @property
    def is_ours(self) -> bool:
        return self.reason.startswith(MARK)

    @property
    def has_our_drain(self) -> bool:
        return "DRAIN" in self.words and self.is_ours

    @property
    def is_off(self) -> bool:
        return bool(self.words & _OFF)


class SlurmLink:
    """One cluster by its slurm.conf. Implements vgpuctl.usecases.running.cluster_link.ClusterLink.

    Nodes that Slurm has powered down are seen only with `PrivateData=cloud` in its slurm.conf; without it they are
    unknown, and then there is nothing to tell.
    """

    def __init__(self, config: SlurmConfig, *, answer_s: float = ANSWER_S) -> None:
        self._programs = SlurmPrograms(config, answer_s=answer_s)
        self._name = config.name

    def members(self) -> Sequence[ClusterMember]:
        """The nodes that slurmctld knows, by name."""
        return [
            ClusterMember(
                name=name,
                is_ready=bool(row.words & _WORKING) and not row.words & _ABSENT,
                is_cordoned="DRAIN" in row.words,
                has_our_cordon=row.has_our_drain,
                is_off=row.is_off,
                reason=row.reason,
            )
            for name, row in sorted(self._rows().items())
        ]

    def cordon(self, node: str, reason: str) -> bool:
        """Set the node to drain. One that is drained already keeps its reason; one that is off needs nothing."""
        row = self._row(node)
        if row is None or row.is_off or "DRAIN" in row.words:
            return False
        self._update(node, "drain", f"cordon {node}", reason_text(reason))
        return True

    def uncordon(self, node: str) -> bool:
        """Take back a drain whose reason is ours."""
        row = self._row(node)
        if row is None or not row.has_our_drain:
            return False
        self._resume(node)
        return True

    def relabel(self, node: str, labels: Mapping[str, str | None]) -> None:
        """Nothing: slurm.conf has a node's features before it is placed."""

    def drain(self, node: str) -> Sequence[str]:
        """The jobs that are still on the node, by id. A drained node ends them itself, each in its time."""
        row = self._row(node)
        if row is None or row.is_off:
            return []
        what = f"list the jobs on {node}"
        arguments = ["--noheader", f"--nodelist={node}", f"--states={_ON_NODE}", "--format=%A"]
        jobs = self._programs.run("squeue", arguments, what=what).split()
        strange = next((job for job in jobs if _JOB.fullmatch(job) is None), None)
        if strange is not None:
            raise ClusterRefused(f"cannot {what} in {self._name}: squeue says '{printable(strange[:80])}'")
        return sorted(set(jobs), key=int)

    def refuse(self, node: str, reason: str) -> None:
        """Set the node down, which queues its jobs again, and power it down, so that Slurm may ask for it again.

        The reason stays in `scontrol show node` until Slurm gives the node to a job again. Tested with 22.05.
        """
        row = self._row(node)
        if row is None or row.is_off:
            return
        self._turn_off(node, reason)

    def forget(self, node: str, provider_id: str) -> None:
        """Say that a node whose VM is gone is down and off, so that its jobs are queued again. Slurm keeps its name.

        Without `down`, a job on it would be completing until SlurmdTimeout. Tested with 22.05.
        A node that powers up is left: Slurm has asked for it again, or has its own limit for it (ResumeTimeout).
        """
        row = self._row(node)
        if row is None or row.words & _POWERING_UP:
            return
        if not row.is_off and "POWER_DOWN" not in row.words:
            self._turn_off(node, _GONE)
        elif row.is_off and row.is_ours and row.words & {"DRAIN", "DOWN"}:
            self._resume(node)

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _row(self, node: str) -> _Row | None:
        """One node, None if Slurm does not know it. Its name is checked: Slurm reads it as an expression."""
        if _NODE.fullmatch(node) is None:
            raise ClusterRefused(f"'{printable(node[:80])}' is no name of a node of {self._name}")
        return self._rows(f"--nodes={node}").get(node)

    def _rows(self, *options: str) -> dict[str, _Row]:
        arguments = ["--noheader", "--all", "--Node", *options, f"--Format={_FORMAT}"]
        what = "read the nodes"
        rows: dict[str, _Row] = {}
        for line in self._programs.run("sinfo", arguments, what=what).splitlines():
            name = line[:_NAME_WIDTH].strip()
            words = line[_NAME_WIDTH : _NAME_WIDTH + _STATE_WIDTH].strip()
            reason = line[_NAME_WIDTH + _STATE_WIDTH :].strip()
            if words.lower() == "n/a":  # a partition without nodes
                continue
            if _NAME.fullmatch(name) is None or not words:
                raise ClusterRefused(f"cannot {what} in {self._name}: sinfo says '{printable(line.strip()[:120])}'")
            rows[name] = _Row(state_words(words), "" if reason == "none" else reason)
        return rows

    def _turn_off(self, node: str, reason: str) -> None:
        self._update(node, "down", f"set {node} down", reason_text(reason))
        self._update(node, "power_down_force", f"power {node} down", reason_text(reason))

    def _resume(self, node: str) -> None:
        """Take back our drain and our reason.

        Slurm 22.05 removes the reason with the drain. 24.11 keeps it, ignores an empty one, and takes a blank.
        """
        self._update(node, "resume", f"uncordon {node}", " ")

    def _update(self, node: str, state: str, what: str, reason: str) -> None:
        arguments = ["update", f"nodename={node}", f"state={state}", f"reason={reason}"]
        self._programs.run("scontrol", arguments, what=what)


def state_words(text: str) -> frozenset[str]:
    """The words of a node's state in upper case: `idle+cloud+powered_down`."""
    return frozenset(word.strip("*~#!%$@^-") for word in text.upper().split("+"))


def reason_text(reason: str) -> str:
    """A reason for Slurm: one line that begins with our mark, at most 200 characters."""
    line = printable(" ".join(reason.split()))
    return (line if line.startswith(MARK) else f"{MARK}{line}")[:_LONGEST_REASON]
