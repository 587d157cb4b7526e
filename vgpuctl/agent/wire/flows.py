# SPDX-License-Identifier: Apache-2.0
"""Counters of OpenFlow flows, added up by cookie. Python 3.9, standard library only."""

from typing import Tuple

from vgpuctl.agent.wire.values import dataclass

MOST_COOKIES = 1024
"""In one question; a tenant with 200 rules has some 400."""


@dataclass(frozen=True)
class FlowQuestion:
    """The flows that are asked for. cookies: 8 hex digits each."""

    cookies: Tuple[str, ...]


@dataclass(frozen=True)
class FlowCount:
    """The flows of one cookie. cookie: 8 hex digits. age_s: of the oldest one: what was counted, was counted since."""

    cookie: str
    packets: int
    bytes: int
    age_s: float


@dataclass(frozen=True)
class FlowCounts:
    """The cookies of a question that have flows on the host. is_running: whether an ovn-controller keeps them."""

    is_running: bool
    counts: Tuple[FlowCount, ...] = ()
