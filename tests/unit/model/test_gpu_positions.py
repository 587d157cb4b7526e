# SPDX-License-Identifier: Apache-2.0
"""A GPU keeps its position when others come or go."""

from dataclasses import replace

from vgpuctl.model.gpu_positions import gpu_ports, gpus_of_positions, placed_gpus, spare_ports_of_gpus
from vgpuctl.model.gpu_request import parse_gpu_request

TWO = parse_gpu_request("2*A40-8Q")
T4 = parse_gpu_request("T4-2Q")


def test_positions_follow_the_order_until_one_leaves() -> None:
    placed = placed_gpus((TWO, T4))
    assert [(one.text, one.position) for one in placed] == [("A40-8Q", 0), ("A40-8Q", 1), ("T4-2Q", 2)]
    left = gpus_of_positions([placed[0], placed[2]])
    assert [(one.text, one.position) for one in left] == [("A40-8Q", 0), ("T4-2Q", 2)]
    assert placed_gpus(left) == left
    assert gpu_ports(left) == 3


def test_a_new_gpu_takes_the_first_free_position() -> None:
    placed = (replace(T4, position=1),)
    assert [one.position for one in placed_gpus((*placed, T4, T4))] == [1, 0, 2]


def test_positions_that_follow_from_the_order_are_not_stored() -> None:
    assert gpus_of_positions(placed_gpus((TWO,))) == (replace(TWO, text="A40-8Q", count=1),) * 2
    assert gpus_of_positions([replace(T4, position=0)]) == (T4,)


def test_a_gpu_on_a_spare_port_needs_no_port_of_its_own() -> None:
    gpus = gpus_of_positions([replace(T4, position=0), replace(T4, position=1, spare_port=2)])
    assert (gpu_ports(gpus), spare_ports_of_gpus(gpus)) == (1, {1: 2})
