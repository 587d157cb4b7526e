# SPDX-License-Identifier: Apache-2.0
"""The names of tests are short whatever their parameters are: each worker holds and sends all of them."""

import pytest


@pytest.mark.parametrize("text", ["x" * 2**20, b"\xff" * 2**20, "\n" * 2**20, "short"])
def test_a_long_parameter_makes_no_long_name(text: str | bytes, request: pytest.FixtureRequest) -> None:
    assert len(request.node.nodeid) < 250
    assert (str(len(text)) in request.node.name) == (text != "short")


def test_no_test_has_a_long_name(request: pytest.FixtureRequest) -> None:
    longest = max((item.nodeid for item in request.session.items), key=len)
    assert len(longest) < 1000, longest
