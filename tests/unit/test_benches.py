# SPDX-License-Identifier: Apache-2.0
"""The pages name the benches that there are."""

import re
from pathlib import Path

from tests.bench.daily_tasks import Taken, table
from tests.bench.guard import MEASURES, named_commit

_ROOT = Path(__file__).parents[2]
_PAGES = sorted((_ROOT / "docs").rglob("*.md"))
_NAMED = re.compile(r"tests(?:\.bench\.|/bench/)([a-z_]+)")


def test_every_bench_stands_with_its_command_on_a_page() -> None:
    named = {name for page in _PAGES for name in _NAMED.findall(page.read_text())}
    programs = {
        file.stem for file in (_ROOT / "tests/bench").glob("*.py") if 'if __name__ == "__main__":' in file.read_text()
    }
    assert programs - named == set(), "benches of no page"
    assert named - {file.stem for file in (_ROOT / "tests/bench").glob("*.py")} == set(), "a page's bench is missing"


def test_the_guard_compares_with_the_commit_of_the_page() -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", named_commit())
    page = (_ROOT / "docs/performance.md").read_text()
    assert all(f"`{name}`" in page for name in MEASURES), "a measure of the guard that the page does not explain"


def test_the_daily_tasks_are_counted() -> None:
    others = {"incus": None, "virsh": ["virsh list"], "openstack": ["a", "b"]}
    tasks = [
        {"task": "Look", "before": ["vgpuctl list-vms -A"], "now": ["vgpuctl list-vms"], **others},
        {"task": "New", "before": None, "now": ["vgpuctl map", "vgpuctl top"], **others},
    ]
    taken: dict[str, list[Taken | None]] = {"before": [Taken(2.0, 30), None], "now": [Taken(1.0, 4), Taken(0.5, None)]}
    rows = table(tasks, taken).splitlines()
    assert rows[2:4] == [
        "| Look | 1 / 20 / 30, 2.0 s | 1 / 17 / 4, 1.0 s | - | 1 / 11 | 2 / 4 |",
        "| New | - | 2 / 24 / -, 0.5 s | - | 1 / 11 | 2 / 4 |",
    ]
    assert rows[-2:] == [
        "before: 20 keys of the tasks of every version; of all its tasks 30 lines read and 2 s",
        "now: 17 keys of the tasks of every version; of all its tasks 4 lines read and 2 s",
    ]
