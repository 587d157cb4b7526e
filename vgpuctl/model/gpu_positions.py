# SPDX-License-Identifier: Apache-2.0
"""The positions of a VM's GPUs: the guest knows each by its port, so that it keeps it when others come or go."""

from collections.abc import Sequence
from dataclasses import replace

from vgpuctl.model.gpu_request import GpuRequest


def placed_gpus(gpus: Sequence[GpuRequest]) -> tuple[GpuRequest, ...]:
    """One request for each GPU, with its position: its own, else the first that is free. In the requests' order."""
    taken = {gpu.position for gpu in gpus if gpu.position is not None}
    singles = [replace(one, text=one.text_of_one, count=1) for one in gpus for _ in range(one.count)]
    placed = []
    for one in singles:
        if one.position is None:
            position = next(number for number in range(len(singles) + len(taken)) if number not in taken)
            taken.add(position)
            one = replace(one, position=position)
        placed.append(one)
    return tuple(placed)


def gpus_of_positions(placed: Sequence[GpuRequest]) -> tuple[GpuRequest, ...]:
    """The requests to store for GPUs with positions, by position; without them where they follow from the order."""
    ordered = tuple(sorted(placed, key=lambda one: one.position or 0))
    if all(one.position == number and one.spare_port is None for number, one in enumerate(ordered)):
        return tuple(replace(one, position=None) for one in ordered)
    return ordered


def gpu_ports(gpus: Sequence[GpuRequest]) -> int:
    """Number of root ports that GPUs need: up to the last one that is not on a spare port."""
    return max(((one.position or 0) + 1 for one in placed_gpus(gpus) if one.spare_port is None), default=0)


def spare_ports_of_gpus(gpus: Sequence[GpuRequest]) -> dict[int, int]:
    """The spare ports that GPUs are on, by position."""
    return {one.position or 0: one.spare_port for one in placed_gpus(gpus) if one.spare_port is not None}
