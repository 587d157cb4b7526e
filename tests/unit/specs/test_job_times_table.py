# SPDX-License-Identifier: Apache-2.0
"""A user's table of job sizes and seconds on each card."""

from pathlib import Path

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.scheduler.performance.job_times import TimedJob
from vgpuctl.specs.job_times_table import read_job_times_table

WIDE = """# seconds of 100 multiplications
size,A40,T4
1024, 0.5 ,2

2048,4,16
4096,3.2e1,
"""
ROWS = "size,card,seconds\n" + "".join(
    f"{size},{card},{seconds}\n"
    for size, card, seconds in (("1024", "nvidia a40", "0.5"), ("1024", "T4", "2"), ("2048", "A40", "4.0"),
                                ("2048", "nvidia-t4", "16"), ("4096", "a40", "32"))
)  # fmt: skip


def read(folder: Path, text: str, workload: str | None = None) -> list[TimedJob]:
    """The table with this text."""
    path = folder / "times.csv"
    path.write_text(text)
    return read_job_times_table(path, workload=workload)


def test_a_column_for_each_card_and_a_row_for_each_job_say_the_same(tmp_path: Path) -> None:
    found = read(tmp_path, WIDE, "matmul")
    assert found[0] == TimedJob("matmul", "nvidia-a40", 1024.0, 0.5)
    assert len(found) == 5, "an empty cell is a job that the card was not given"
    assert read(tmp_path, ROWS, "matmul") == found
    assert {one.workload for one in read(tmp_path, WIDE)} == {"unlabelled"}
    named = "workload,card,seconds\n" + "train,A40,10\n" * 3 + ",A40,1\n"
    assert {(one.workload, one.size) for one in read(tmp_path, named, "rest")} == {("train", None), ("rest", None)}


@pytest.mark.parametrize(
    "cell",
    ["nan", "NaN", "inf", "-inf", "-1", "0", "0.0", "350ms", "1 s", "1,5", "1_000", "٣", "0x10", "1e999", "1e-999",
     "fast", "=1+1", "--", "+-1", "1.2.3", "9" * 60],
)  # fmt: skip
@pytest.mark.parametrize("column", ["size", "T4"])
def test_what_is_no_number_above_zero_is_refused_with_its_line(tmp_path: Path, cell: str, column: str) -> None:
    row = {"size": "1024", "A40": "1", "T4": "2"} | {column: f'"{cell}"'}
    with pytest.raises(UsageError) as refused:
        read(tmp_path, "size,A40,T4\n512,1,1\n" + ",".join(row.values()) + "\n")
    assert "times.csv:3" in refused.value.message
    assert ("is no size" if column == "size" else "T4: ") in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no times"),
        ("size,A40\n", "has no times"),
        ("size,A40\n1024,,\n", "3 values for 2 columns"),
        ("size,A40\n1024,1\n", "has at most 1 times of a card, 3 are needed"),
        ("size,A40,T4\n1024,1,2\n2048,8,16\n", "has at most 2 times of a card"),
        ("size\n1024\n", "no column has the seconds of a card"),
        ("size,A40 (ms)\n", "no card is named 'A40 (ms)'"),
        ("size,H100\n", "'H100' is more than one model"),
        ("size,\n", "no card is named ''"),
        ("size,A40,nvidia-a40\n", "two columns are of one card"),
        ("size,A40,A40\n", "a column is there twice"),
        ("size,seconds\n", "card is missing"),
        ("size,card,seconds,unit\n", "'unit' is no column"),
        ("card,seconds\nA41,1\n", "times.csv:2: no card is named 'A41'"),
        ("workload,A40\nV D I,1\n", "'V D I' is no workload class"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert said in refused.value.message
    assert refused.value.hint


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "bytes.csv", tmp_path / "absent.csv", tmp_path):
        with pytest.raises(UsageError):
            read_job_times_table(path)
