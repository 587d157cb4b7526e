# SPDX-License-Identifier: Apache-2.0
"""The kept history: how values become samples, what goes with age, and processes that write and read at once."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.errors import StoreUnusable
from vgpuctl.telemetry.history import HOUR_S, KEPT_S, MINUTE_S, History, MeasuredValue, Sample, Subject
from vgpuctl.telemetry.prometheus_server import PrometheusServer

NOON = 1_790_000_000 // HOUR_S * HOUR_S
GPU = Subject("gpu", "gpu1", "GPU-1", "0000:41:00.0")
VGPU = Subject("vgpu", "gpu1", "0000:41:00.4", "0000:41:00.0", "acme", "web-1", "A40-8Q")


def value(number: float, subject: Subject = GPU, measure: str = "utilization_ratio") -> MeasuredValue:
    return MeasuredValue(subject, measure, number)


def samples(history: History, *, step_s: int = MINUTE_S, subject: Subject = GPU, **where: str) -> list[Sample]:
    """The samples of one object around noon."""
    found = history.series(
        subject.kind, "utilization_ratio", since=NOON - 86_400, until=NOON + 86_400, step_s=step_s, **where
    )
    return found.get(subject, [])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history.db"


def test_values_of_one_step_become_one_sample(path: Path) -> None:
    half: Any = pytest.approx(0.5)
    with History(path) as history:
        for second, number in ((0, 0.2), (20, 0.4), (40, 0.9), (60, 0.5), (3600, 1.0)):
            history.add(NOON + second, [value(number)])
        assert samples(history) == [
            Sample(NOON, 3, half, 0.2, 0.9, 1),
            Sample(NOON + 60, 1, 0.5, 0.5, 0.5, 1),
            Sample(NOON + 3600, 1, 1.0, 1.0, 1.0, 1),
        ]
        assert samples(history, step_s=HOUR_S) == [
            Sample(NOON, 4, half, 0.2, 0.9, 2),
            Sample(NOON + 3600, 1, 1.0, 1.0, 1.0, 1),
        ]


def test_an_hour_counts_each_minute_once_in_any_order(path: Path) -> None:
    with History(path) as history:
        for second in (300, 0, 301, 59, 3599):
            history.add(NOON + second, [value(1.0)])
        (hour,) = samples(history, step_s=HOUR_S)
        assert (hour.count, hour.minutes) == (5, 3)


def test_objects_are_kept_apart_and_found_by_their_fields(path: Path) -> None:
    other = Subject("vgpu", "gpu2", "0000:41:00.4", "0000:41:00.0", "globex", "web-1", "A40-8Q")
    with History(path) as history:
        history.add(NOON, [value(0.1), value(0.2, VGPU), value(0.3, other), value(9.0, VGPU, "power_watts")])
        every = history.series("vgpu", "utilization_ratio", since=NOON, until=NOON + 60)
        assert {one.tenant: each[0].mean for one, each in every.items()} == {"acme": 0.2, "globex": 0.3}
        assert list(
            history.series("vgpu", "utilization_ratio", since=NOON, until=NOON + 60, vm="web-1", host="gpu2")
        ) == [other]


@pytest.mark.parametrize(
    ("kind", "measure", "where"),
    [
        ("vgpu", "utilization_ratio", "colour"),
        ("vgpu", "utilization_ratio", "share"),
        ("vgpu", "utilization_ratio", "object"),
        ("vm", "memory_rss_bytes", "object"),
        ("vm", "memory_rss_bytes", "gpu"),
        ("gpu", "power_watts", "object"),
        ("gpu", "power_watts", "vm"),
        ("host", "memory_available_bytes", "tenant"),
        ("licence", "seats", "host"),
    ],
)
def test_every_source_refuses_what_one_cannot_select_by(path: Path, kind: str, measure: str, where: str) -> None:
    with History(path) as history:
        for source in (history, PrometheusServer("http://127.0.0.1:1")):
            with pytest.raises(TypeError, match=where):
                source.series(kind, measure, since=0, until=60, step_s=60, **{where: "a"})


def test_a_range_has_the_step_that_it_begins_in_and_not_the_one_at_its_end(path: Path) -> None:
    with History(path) as history:
        for second in (0, 60, 120):
            history.add(NOON + second, [value(1.0)])
        found = history.series("gpu", "utilization_ratio", since=NOON + 30, until=NOON + 120)
        assert [one.at for one in found[GPU]] == [NOON, NOON + 60]


def test_names_of_tenants_are_data(path: Path) -> None:
    name = "'; DROP TABLE samples; --\x00\u202e\n"
    strange = Subject("vm", "gpu1", name, tenant=name, vm=name)
    with History(path) as history:
        history.add(NOON, [value(1.0, strange)])
        assert list(history.series("vm", "utilization_ratio", since=NOON, until=NOON + 1, tenant=name)) == [strange]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_no_number_is_left_out(path: Path, number: float) -> None:
    with History(path) as history:
        history.add(NOON, [value(number), value(0.5, VGPU)])
        assert samples(history) == []
        assert samples(history, subject=VGPU)[0].mean == 0.5


def test_pruning_removes_each_step_at_its_age_and_objects_without_samples(path: Path) -> None:
    with History(path) as history:
        history.add(NOON, [value(1.0)])
        history.prune(NOON + KEPT_S[MINUTE_S])
        assert len(samples(history)) == 1
        history.prune(NOON + KEPT_S[MINUTE_S] + 1)
        assert samples(history) == [] and len(samples(history, step_s=HOUR_S)) == 1
        history.prune(NOON + KEPT_S[HOUR_S] + 1)
        assert samples(history, step_s=HOUR_S) == []
        assert sqlite3.connect(path).execute("SELECT count(*) FROM objects").fetchone() == (0,)
        history.add(NOON, [value(1.0)])
        assert len(samples(history)) == 1


def test_another_writer_may_prune_what_this_one_has_cached(path: Path) -> None:
    with History(path) as one, History(path) as other:
        one.add(NOON, [value(1.0)])
        other.prune(NOON + KEPT_S[HOUR_S] + 1)
        other.add(NOON, [value(0.5, VGPU)])
        one.add(NOON, [value(0.25)])
        assert samples(one)[0].mean == 0.25
        assert samples(one, subject=VGPU) == [Sample(NOON, 1, 0.5, 0.5, 0.5, 1)]


def test_a_reader_sees_what_is_written_after_it_opened(path: Path) -> None:
    with History(path) as writer:
        writer.add(NOON, [value(1.0)])
        with History(path, read_only=True) as reader:
            assert len(samples(reader)) == 1
            writer.add(NOON + 60, [value(1.0)])
            assert len(samples(reader)) == 2
            with pytest.raises(StoreUnusable, match="readonly"):
                reader.add(NOON, [value(1.0)])


def test_a_relative_path_is_fine(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parents[1])
    with History(Path("h%20?.db")) as history:
        history.add(NOON, [value(1.0)])
    with History(Path("h%20?.db"), read_only=True) as history:
        assert len(samples(history)) == 1


def test_a_missing_file_cannot_be_read_and_is_not_made(path: Path) -> None:
    with pytest.raises(StoreUnusable, match="unable to open"):
        History(path, read_only=True)
    assert not path.exists()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough for a header" * 40, "other", "newer", b""]
)
def test_a_file_that_is_no_history_is_refused(path: Path, content: bytes | str, read_only: bool) -> None:
    path.parent.mkdir()
    if isinstance(content, bytes):
        path.write_bytes(content)
        if not content and not read_only:
            History(path).close()  # an empty file is a new one
            return
    else:
        if content == "newer":
            History(path).close()
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99" if content == "newer" else "CREATE TABLE precious (id)")
        database.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match=r"not a database|not a history|layout 99") as caught:
        History(path, read_only=read_only)
    assert str(path) in caught.value.message and "--history" in (caught.value.hint or "")
    assert path.read_bytes() == before


def test_a_file_that_breaks_while_it_is_open_is_an_error_of_the_history(path: Path) -> None:
    with History(path) as history:
        history.add(NOON, [value(1.0)])
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(len(path.read_bytes()) - 4096))
    with pytest.raises(StoreUnusable), History(path) as history:
        samples(history)


def test_a_folder_in_its_place_is_an_error_of_the_history(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreUnusable, match="unable to open"):
        History(path)


_WRITE = """
import sys
from pathlib import Path
from vgpuctl.telemetry.history import History, MeasuredValue, Subject
path, name, noon = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with History(path) as history:
    for minute in range(40):
        values = [MeasuredValue(Subject("gpu", name, f"GPU-{i}"), "utilization_ratio", 0.5) for i in range(4)]
        values.append(MeasuredValue(Subject("gpu", "shared", "GPU-0"), "utilization_ratio", 1.0))
        history.add(noon + minute * 60, values)
        if minute % 10 == 9:
            history.prune(noon + minute * 60)
"""


def test_processes_that_write_at_once_lose_nothing_and_readers_go_on(path: Path) -> None:
    """Two exporters and readers in another process; every value is there in the end, and no reader is refused."""
    History(path).close()
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITE, str(path), name, str(NOON)], stderr=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    seen: list[int] = []
    problems: list[StoreUnusable] = []

    def read() -> None:
        try:
            with History(path, read_only=True) as reader:
                while any(one.poll() is None for one in writers):
                    found = reader.series("gpu", "utilization_ratio", since=NOON, until=NOON + 86_400)
                    assert all(each.count in (1, 2) for every in found.values() for each in every)
                    seen.append(sum(len(every) for every in found.values()))
        except StoreUnusable as error:
            problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    errors = [one.communicate(timeout=120)[1] for one in writers]
    for thread in threads:
        thread.join()
    assert [one.returncode for one in writers] == [0, 0], errors
    assert problems == [] and seen
    with History(path, read_only=True) as history:
        found = history.series("gpu", "utilization_ratio", since=NOON, until=NOON + 86_400)
        assert {one.host for one in found} == {"one", "two", "shared"}
        assert all(len(each) == 40 for each in found.values())
        shared = found[Subject("gpu", "shared", "GPU-0")]
        assert [one.count for one in shared] == [2] * 40


def test_threads_take_turns(path: Path) -> None:
    with History(path) as history:

        def add() -> None:
            for second in range(30):
                history.add(NOON + second, [value(1.0)])

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.count for one in samples(history)] == [120]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_written", [True, False])
def test_a_user_who_may_only_read_reads(is_written: bool) -> None:
    """Without a writer the log beside the file is missing, and such a user could not make it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "history.db"
        History(path).close()
        path.chmod(0o644)
        history = History(path)
        history.add(NOON, [value(1.0)])
        if not is_written:
            history.close()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                with History(path, read_only=True) as reader:
                    code = 0 if len(samples(reader)) == 1 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        history.close()


def test_a_history_is_for_its_owner_alone_and_keeps_a_mode_that_was_given(tmp_path: Path) -> None:
    path = tmp_path / "readings.db"
    before = os.umask(0o022)
    try:
        with History(path) as history:
            history.add(0.0, [])
            modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
        assert set(modes.values()) == {0o600} and "readings.db-wal" in modes
        path.chmod(0o640)
        History(path).close()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_parts_of_an_object_are_apart_and_have_their_labels(path: Path) -> None:
    host = Subject("host", "gpu1", "")
    pool = host.part(["default", "/srv/a b"])
    assert (host.labels, pool.labels) == ((), ("default", "/srv/a b"))
    with History(path) as history:
        history.add(NOON, [value(1.0, one) for one in (host, pool, host.part(["more", "/"]))])
        found = history.series("host", "utilization_ratio", since=NOON, until=NOON + 60)
    assert sorted(one.labels for one in found) == [(), ("default", "/srv/a b"), ("more", "/")]
    assert host.part([]) == host
