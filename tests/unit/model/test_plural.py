# SPDX-License-Identifier: Apache-2.0
"""Numbers of things in messages."""

from vgpuctl.model.plural import all_are, counted


def test_one_thing_is_no_plural() -> None:
    assert (counted(1, "seat"), counted(2, "seat"), counted(0, "seat")) == ("1 seat", "2 seats", "0 seats")
    assert all_are(1, "seat", " of vws") == "the only seat of vws is"
    assert all_are(2, "VF") == "all 2 VFs are"
