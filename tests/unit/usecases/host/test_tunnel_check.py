# SPDX-License-Identifier: Apache-2.0
"""Tunnels that carry packets or not, judged by the counters of both ends."""

from vgpuctl.agent.wire.ovn import TunnelProbe, TunnelWay
from vgpuctl.usecases.host.check_hosts import tunnel_states

A, B, C = "10.84.0.1", "10.84.0.2", "10.84.0.3"


def probe(address: str, *received: tuple[str, int], refused: str | None = None) -> TunnelProbe:
    return TunnelProbe(address, tuple(TunnelWay(remote, 6081, count, refused) for remote, count in received))


def test_a_tunnel_on_which_nothing_more_arrived_is_silent_whatever_came_before() -> None:
    first = {"a": probe(A, (B, 100)), "b": probe(B, (A, 7))}
    states = tunnel_states(first, {"a": probe(A, (B, 106)), "b": probe(B, (A, 7))})
    assert [one.is_silent for one in (*states["a"], *states["b"])] == [False, True]


def test_an_end_that_was_not_seen_to_send_is_not_judged() -> None:
    first = {"a": probe(A, (B, 5), (C, 0)), "b": probe(B)}
    states = tunnel_states(first, {"a": probe(A, (B, 5), (C, 0)), "b": probe(B)})
    assert [one.is_silent for one in states["a"]] == [False, False]


def test_a_host_that_fell_out_between_the_rounds_is_left_out() -> None:
    first = {"a": probe(A, (B, 5)), "b": probe(B, (A, 1))}
    states = tunnel_states(first, {"a": probe(A, (B, 5), refused="No route to host")})
    assert list(states) == ["a"]
    assert [(one.is_silent, one.refused) for one in states["a"]] == [(False, "No route to host")]
