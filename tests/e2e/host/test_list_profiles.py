# SPDX-License-Identifier: Apache-2.0
"""list-profiles: heads, resolution and frame-rate limit of each type, as its host or the catalogue tells them."""

from tests.e2e.operator import Operator


def test_wide_shows_what_each_type_can_show_as_the_host_tells_it(fleet_operator: Operator) -> None:
    rows = fleet_operator.json("list-profiles", "--refresh")
    found = {(one["host"], one["profile"]["name"]): one for one in rows}
    # The first host tells it by NVML, the second and third by the description of each mdev type.
    for host, name, heads, size, pixels, limit in (
        ("sim-001", "A40-1B", 4, [5120, 2880], 16384000, 45),
        ("sim-001", "A40-8Q", 4, [7680, 4320], 66355200, 60),
        ("sim-002", "A40-1A", 1, [1280, 1024], 1310720, 60),
        ("sim-003", "T4-4C", 1, [3840, 2400], None, 60),
    ):
        one = found[host, name]
        assert one["display"] == {"heads": heads, "max_resolution": size, "frame_rate_limit": limit}, (host, name)
        assert (one["max_pixels"], one["display_source"]) == (pixels, "host")
    wide = fleet_operator.does("list-profiles", "-o", "wide").out
    assert "HEADS" in wide and "7680x4320" in wide and "66355200" in wide
    assert "HEADS" not in fleet_operator.does("list-profiles").out
