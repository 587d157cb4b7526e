# SPDX-License-Identifier: Apache-2.0
"""Hostlist expressions are read and written as Slurm does, or refused."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.slurm_programs import find_slurm
from vgpuctl.errors import UsageError
from vgpuctl.model.hostlist import LONGEST_EXPRESSION, MOST_NAMES, compress, expand
from vgpuctl.model.printable import printable

# Answers of Slurm 22.05.8 to `scontrol show hostnames`; repeated names are left out here.
EXPANDED = {
    "": [],
    ",": [],
    "gpu-001": ["gpu-001"],
    "a,,b": ["a", "b"],
    "gpu[08-11]": ["gpu08", "gpu09", "gpu10", "gpu11"],
    "a[001-10]": [f"a{number:03d}" for number in range(1, 11)],
    "a[9-010]": ["a9", "a10"],
    "a[08-8]": ["a08"],
    "a[00]": ["a00"],
    "a[0-1]": ["a0", "a1"],
    "a[1,1]": ["a1"],
    "gpu[1-2],gpu[2-3]": ["gpu1", "gpu2", "gpu3"],
    "x[1-2]y[3-4]": ["x1y3", "x1y4", "x2y3", "x2y4"],
    "a[1-2][3-4]": ["a13", "a14", "a23", "a24"],
    "a[1-2]-b[1-2]": ["a1-b1", "a1-b2", "a2-b1", "a2-b2"],
    "a-[1-2],a-b[1]": ["a-1", "a-2", "a-b1"],
    "a1b[1-2]": ["a1b1", "a1b2"],
    "gpu1-gpu3": ["gpu1-gpu3"],
    "[1-3]": ["1", "2", "3"],
    "a[99999999999]": ["a99999999999"],
    "gpu-[001-002,010],big-001": ["gpu-001", "gpu-002", "gpu-010", "big-001"],
}
REFUSED = {
    "a[3-1]": "counts down",
    "a[]": "no range",
    "a[01-10:3]": "no range",
    "a[1x]": "no range",
    "a[-2]": "no range",
    "a[1--2]": "no range",
    "a[1-2,]": "no range",
    "a[,1]": "no range",
}
REFUSED_BY_US = {
    "a[1-2]]": "do not match",  # Slurm 22.05 refuses it too, 24.11 does not
    "a[1-2": "not closed",
    "x[1-2][": "not closed",
    "a]b": "do not match",
    "a[[1]]": "do not match",
    "a[1-]": "no range",
    "a[ 1-2]": "no range",
    "a b": "without spaces",
    "a\tb": "without spaces",
    "a\x1b[1]": "without spaces",
    "gpü[1-2]": "without spaces",
    f"a[{'9' * 16}]": "no range",
    "a[٣]": "no range",
    "a[1-4097]": "names 4097 nodes",
    "a[0-999999999999999]": "names 1000000000000000 nodes",
    "a[1-64]b[1-64],c": "names 4097 nodes",
    "a[1-9]" * 200: "nodes, more than",
    "a" * (LONGEST_EXPRESSION + 1): "characters, more than",
}


@pytest.mark.parametrize(("expression", "names"), EXPANDED.items())
def test_an_expression_names_what_slurm_makes_of_it(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


def test_text_after_a_bracket_is_read_as_newer_slurm_does() -> None:
    assert expand("gpu[09-11]-ib,a[1-2]x") == ["gpu09-ib", "gpu10-ib", "gpu11-ib", "a1x", "a2x"]


def test_as_many_names_as_allowed_are_expanded() -> None:
    assert len(expand("a[1-64]b[1-64]")) == MOST_NAMES


@pytest.mark.parametrize(("expression", "why"), (REFUSED | REFUSED_BY_US).items())
def test_what_is_no_expression_is_refused_with_the_reason(expression: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        expand(expression)
    assert printable(refused.value.message) == refused.value.message and len(refused.value.message) < 400


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        ([], ""),
        (["gpu1", "gpu2", "gpu10", "gpu010"], "gpu[1-2,10,010]"),
        ([f"gpu-{number:03d}" for number in range(1, 65)], "gpu-[001-064]"),
        (["b1", "a1", "a2"], "b1,a[1-2]"),
        (["a", "b"], "a,b"),
        (["a098", "a099", "a100"], "a[098-100]"),
        (["a99", "a100"], "a[99-100]"),
        (["a00", "a1"], "a[00,1]"),
        (["a1b", "a2b"], "a1b,a2b"),
        (["b3", "b1", "b2"], "b[3,1-2]"),
        (["x1y3", "x1y4", "x2y3"], "x1y[3-4],x2y3"),
        (["a1", "a1"], "a1"),
    ],
)
def test_names_are_compressed_as_slurm_does(names: list[str], expression: str) -> None:
    assert compress(names) == expression


@pytest.mark.parametrize("name", ["", "a[1", "a,b", "a b", "a\n", "ü"])
def test_a_name_that_no_expression_holds_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        compress([name])


NAMES = st.lists(
    st.one_of(
        st.from_regex(r"[a-c]-?[0-9]{1,4}", fullmatch=True),
        st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True),
        st.from_regex(r"[0-9]{1,20}", fullmatch=True),
    ),
    max_size=40,
)


@given(NAMES)
def test_what_was_compressed_expands_to_the_same_names(names: list[str]) -> None:
    assert expand(compress(names)) == list(dict.fromkeys(names))


@given(st.text(alphabet="ab1290[]-,: \x00", max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand(text)
    except UsageError:
        return
    assert len(names) <= MOST_NAMES
    assert expand(compress(names)) == names


class TestRealSlurm:
    """The same expressions, asked of the installed Slurm."""

    def test_it_expands_the_same(self, tmp_path: Path) -> None:
        for expression, names in EXPANDED.items():
            assert list(dict.fromkeys(_scontrol(tmp_path, "hostnames", expression).split())) == names, expression

    def test_it_refuses_what_it_is_said_to_refuse(self, tmp_path: Path) -> None:
        for expression in REFUSED:
            assert "Invalid hostlist" in _scontrol(tmp_path, "hostnames", expression), expression

    def test_both_make_the_same_of_generated_names(self, tmp_path: Path) -> None:
        """One call for many sets of names: each set has a letter of its own at the front."""
        names = [f"{letter}-{number:03d}" for letter in "abc" for number in (1, 2, 3, 7, 64, 99, 100, 101, 999)]
        assert _scontrol(tmp_path, "hostlist", ",".join(names)).strip() == compress(names)
        assert _scontrol(tmp_path, "hostnames", compress(names)).split() == names


def _scontrol(folder: Path, what: str, argument: str) -> str:
    """The output of `scontrol show`. It wants a slurm.conf, and asks no daemon."""
    programs = find_slurm()
    config = folder / "slurm.conf"
    config.write_text(
        "ClusterName=t\nSlurmctldHost=localhost(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\nNodeName=x\n"
    )
    done = subprocess.run(
        [programs / "scontrol", "show", what, argument],
        env={**os.environ, "SLURM_CONF": str(config)},
        capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout + done.stderr
