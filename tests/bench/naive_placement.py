# SPDX-License-Identifier: Apache-2.0
"""First fit and best fit for vGPUs of one size per GPU: the rules that the shipped placement is measured against.

Hosts and requests are those of the vGPU placement benchmark, see vgpu_policy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Answer = tuple[int, list[tuple[int, int]]]


class Choice(NamedTuple):
    """One way to place a request: the host, its GPUs, and the GiB of the vGPU on each. left: after it on that GPU."""

    host: int
    gpus: tuple[int, ...]
    gib: int
    opens: bool
    wasted_gib: int
    left: int
    untouched: int


def first(_: Choice) -> tuple[int, ...]:
    """First fit: the first host and GPU, and the smallest size there."""
    return ()


def tightest(one: Choice) -> tuple[int, ...]:
    """Best fit: an opened GPU, the least waste, the least left; for whole cards the host with the fewest untouched."""
    if one.opens and not one.left:
        return (one.untouched, one.gib)
    return (one.opens, one.wasted_gib, one.left)


class Naive:
    """A fleet that one of the rules fills."""

    def __init__(self, hosts: Sequence[Mapping[str, Any]], rule: Callable[[Choice], tuple[int, ...]]) -> None:
        self._hosts = hosts
        self._rule = rule
        self._held: dict[int, Answer] = {}
        self.carried: list[list[list[int]]] = [[[] for _ in host["gpus"]] for host in hosts]

    def place(self, request: Mapping[str, Any]) -> Answer | None:
        """Place one request and count it as taken; None when it fits nowhere."""
        found = min(
            self._choices(request), key=lambda one: (self._rule(one), one.host, one.gpus, one.gib), default=None
        )
        if found is None:
            return None
        cards = self._hosts[found.host]["gpus"]
        whole = request["kind"] == "passthrough"
        parts = [(gpu, cards[gpu]["framebuffer_gib"] if whole else found.gib) for gpu in found.gpus]
        for gpu, gib in parts:
            self.carried[found.host][gpu].append(gib)
        self._held[request["number"]] = (found.host, parts)
        return found.host, parts

    def release(self, number: int) -> None:
        """Take back what a request was given."""
        host, parts = self._held.pop(number)
        for gpu, gib in parts:
            self.carried[host][gpu].remove(gib)

    def _choices(self, request: Mapping[str, Any]) -> Iterator[Choice]:
        for number, host in enumerate(self._hosts):
            carried = self.carried[number]
            untouched = [gpu for gpu, there in enumerate(carried) if not there]
            if request["kind"] == "passthrough":
                wanted = tuple(untouched[: request["count"]])
                if len(wanted) == request["count"]:
                    gib = host["gpus"][wanted[0]]["framebuffer_gib"]
                    yield Choice(number, wanted, gib, opens=True, wasted_gib=0, left=0, untouched=len(untouched))
                continue
            for gpu, described in enumerate(host["gpus"]):
                there = carried[gpu]
                for gib, most in described["sizes"].items():
                    if not is_allowed(request, described, gib) or (there and there[0] != gib) or len(there) >= most:
                        continue
                    wasted, left = gib - request["gib"], most - len(there) - 1
                    yield Choice(number, (gpu,), gib, not there, wasted, left, len(untouched))


def is_allowed(request: Mapping[str, Any], gpu: Mapping[str, Any], gib: int) -> bool:
    """Return whether the request asks for a vGPU of this size on this model."""
    if request["kind"] == "passthrough":
        return bool(gib == gpu["framebuffer_gib"])
    if request["kind"] == "memory":
        return bool(gib >= request["gib"])
    return bool(gpu["board"] == request["board"] and gib == request["gib"])
