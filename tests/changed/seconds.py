# SPDX-License-Identifier: Apache-2.0
"""How long each test file takes, as a run of the whole suite recorded it in tests/data/seconds_of_tests.json.

As a plugin of pytest it records: `bash scripts/test -p tests.changed.seconds`. Files that did not run keep their
figures; files that are gone lose them.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

_RECORDED = "tests/data/seconds_of_tests.json"
_TEST_S = {"tests/e2e": 5.0, "tests/integration": 2.0, "tests/lab": 4.0}
"""One test function, where nothing of its folder is recorded; 0.5 in other folders."""


@dataclass(frozen=True)
class Seconds:
    """Wall seconds of one file's tests with what they set up: those that need an emulated host, and the others.

    Recorded ones are rounded up to tenths: 0 means that the file has no such test.
    """

    others: float = 0
    on_emulated_host: float = 0


def recorded(root: Path) -> dict[str, Seconds]:
    """The recorded figures of a checkout by the test file's path below its root; none where nothing was recorded."""
    file = root / _RECORDED
    if not file.exists():
        return {}
    return {name: Seconds(*both) for name, both in json.loads(file.read_text(encoding="utf-8")).items()}


def seconds_of(tests: Mapping[str, int], known: Mapping[str, Seconds]) -> dict[str, Seconds]:
    """The figures of each test file. tests: how many test functions each has.

    An unrecorded file takes as long for each of them as the recorded ones below the same folder of tests/.
    """
    recorded_s: dict[str, float] = defaultdict(float)
    counted: dict[str, int] = defaultdict(int)
    for test in tests.keys() & known.keys():
        recorded_s[_room(test)] += known[test].others
        counted[_room(test)] += tests[test]

    def estimate(test: str) -> Seconds:
        room = _room(test)
        return Seconds(tests[test] * (recorded_s[room] / counted[room] if counted[room] else _TEST_S.get(room, 0.5)))

    return {test: known[test] if test in known else estimate(test) for test in tests}


def _room(test: str) -> str:
    return "/".join(PurePosixPath(test).parts[:2])


class _Recorder:
    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._sums[report.nodeid.partition("::")[0]]["kernel_lab" in report.keywords] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        root = Path(session.config.rootpath)
        both = {name: [one.others, one.on_emulated_host] for name, one in recorded(root).items()}
        both |= {name: [math.ceil(one * 10) / 10 for one in sums] for name, sums in self._sums.items()}
        lines = [f"  {json.dumps(name)}: {json.dumps(both[name])}" for name in sorted(both) if (root / name).exists()]
        (root / _RECORDED).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that gathers the results of all workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder())
