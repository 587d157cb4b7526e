# SPDX-License-Identifier: Apache-2.0
"""Packets that ovn-controller has logged, added up by rule. Python 3.9, standard library only."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass


@dataclass(frozen=True)
class LogMark:
    """How far a log was read. inode: of its file."""

    inode: int
    offset: int


@dataclass(frozen=True)
class LogQuestion:
    """The lines behind a mark; None for the mark of the log's end, without lines."""

    mark: Optional[LogMark] = None


@dataclass(frozen=True)
class LoggedRule:
    """The lines of one ACL. name: the ACL's. verdict, direction: OVN's words. first_at, last_at: as in the log.

    first, last: the packets, as Open vSwitch writes a flow.
    """

    name: str
    verdict: str
    direction: str
    lines: int
    first_at: str
    first: str
    last_at: str
    last: str


@dataclass(frozen=True)
class PacketLog:
    """The new lines of a log. skipped_bytes: that were left out, since there were too many. others: lines of further
    rules. damaged: lines of logged packets that could not be read."""

    mark: LogMark
    rules: Tuple[LoggedRule, ...] = ()
    skipped_bytes: int = 0
    others: int = 0
    damaged: int = 0
