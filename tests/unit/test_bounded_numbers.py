# SPDX-License-Identifier: Apache-2.0
"""No text of a host, a guest or a user has so many digits that Python refuses to make a number of them.

Python raises ValueError for more than 4,300 digits, which nobody expects of a match of digits.
"""

import re

import pytest

from tests.unit.uses_of_names import PACKAGE
from vgpuctl.catalog import board, type_by_id
from vgpuctl.catalog.vgpu_versions import parse_driver
from vgpuctl.cli.options.listen_address import listen_address
from vgpuctl.errors import UsageError
from vgpuctl.model.version import version_of

_LONG = "9" * 5000
_UNBOUNDED = re.compile(r"\((?:\?P<\w+>)?(?:\\d|\[0-9\]|\[1-9\]\\d)[+*]\)")


def test_every_group_of_digits_in_a_pattern_says_how_many_there_may_be() -> None:
    """A group of digits alone is made a number, so it is written `(\\d{1,18})`."""
    found = [
        f"{path.relative_to(PACKAGE)}:{number}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in _UNBOUNDED.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize("pattern", [r"a(\d+)", r"(?P<x>[0-9]+)b", r"([1-9]\d*)", r"(\d*)"])
def test_the_rule_sees_unbounded_groups(pattern: str) -> None:
    assert _UNBOUNDED.search(pattern)


def test_long_numbers_are_read_as_unknown() -> None:
    assert parse_driver(f"570.{_LONG}") is None
    assert type_by_id(board("nvidia-a40"), f"nvidia-{_LONG}") is None
    assert version_of(f"{_LONG}.1") == (999_999_999, 1)
    with pytest.raises(UsageError, match="is no address with a port"):
        listen_address(f"127.0.0.1:{_LONG}")
