# SPDX-License-Identifier: Apache-2.0
"""A user's table of measured throughput."""

from pathlib import Path

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.scheduler.performance.measurement import Measurement
from vgpuctl.specs.performance_table import read_performance_table

CSV = """# measured with our own benchmark
workload,profile,neighbours,throughput,vm
training,A40-8Q,2*vdi render,0.61,acme/t1

vdi,A40-8Q,,1
"""


def test_csv_and_yaml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(CSV.replace(",,1\n", ",,1,\n").replace("vdi,A40-8Q", "vdi,NVIDIA a40-8q"))
    (tmp_path / "table.yml").write_text(
        "- {workload: training, profile: A40-8Q, neighbours: [2*vdi, render], throughput: 0.61, vm: acme/t1}\n"
        "- {workload: vdi, profile: A40-8Q, throughput: 1}\n"
    )
    expected = [
        Measurement("acme/t1", "best-effort", "training", "A40-8Q", ("render", "vdi", "vdi"), 0.61),
        Measurement("row 2", "best-effort", "vdi", "A40-8Q", (), 1.0),
    ]
    assert read_performance_table(tmp_path / "table.csv") == expected
    assert read_performance_table(tmp_path / "table.yml") == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no measurements"),
        (CSV, "4 values for 5 columns"),
        ("workload,profile\n", "throughput is missing"),
        ("workload,profile,throughput,speed\n", "'speed' is no column"),
        ("workload,profile,throughput\nvdi,A40-8Q,fast\n", "table.csv:2: 'fast' is no throughput"),
        ("workload,profile,throughput\nvdi,A40-8Q,nan\n", "'nan' is no throughput"),
        ("workload,profile,throughput\nvdi,A40-8Q,0\n", "'0' is no throughput"),
        ("workload,profile,throughput\nV D I,A40-8Q,1\n", "'V D I' is no workload class"),
        ("workload,profile,throughput\nvdi,,1\n", "'' is no profile"),
        ("workload,profile,throughput,neighbours\nvdi,A40-8Q,1,99*vdi\n", "more than 63 neighbours"),
        ("workload,profile,throughput,isolation\nvdi,A40-8Q,1,none\n", "'none' is no isolation"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_performance_table(path)
    assert said in refused.value.message


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "map.yml").write_text("a: 1\n")
    (tmp_path / "list.yml").write_text("- 1\n")
    (tmp_path / "broken.yml").write_text("- {\n")
    for name in ("bytes.csv", "map.yml", "list.yml", "broken.yml", "missing.csv"):
        with pytest.raises(UsageError):
            read_performance_table(tmp_path / name)
