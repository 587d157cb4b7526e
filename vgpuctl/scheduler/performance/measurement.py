# SPDX-License-Identifier: Apache-2.0
"""One measurement of a VM beside its neighbours, as tables and the kept history give it."""

from dataclasses import dataclass

UNLABELLED = "unlabelled"
"""The workload class of a VM that declares none."""

Neighbour = tuple[str, str]
"""Workload class and profile of another VM on the same GPU."""


@dataclass(frozen=True)
class Measurement:
    """The throughput of one VM while its neighbours stayed the same.

    isolation: how the GPU was shared: `best-effort`, `equal-share` and `fixed-share` of time slices, or `mig`.
    throughput: work per second against the same VM alone on the GPU, above 0. neighbours: workload classes, sorted.
    """

    vm: str
    isolation: str
    workload: str
    profile: str
    neighbours: tuple[str, ...]
    throughput: float
