# SPDX-License-Identifier: Apache-2.0
"""A real `vgpuctl serve exporter` for the length of a block, and requests to it."""

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.operator import Operator

Found = TypeVar("Found")
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values by the sample's name and labels."""


@dataclass(frozen=True)
class RunningExporter:
    """One exporter."""

    url: str
    process: "subprocess.Popen[str]"

    def get(self, path: str) -> tuple[int, str, str]:
        """Return status, Content-Type and text of an answer."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def json(self, path: str) -> Any:
        """Return the JSON of an answer of http_sd."""
        status, content_type, text = self.get(path)
        assert (status, content_type) == (200, "application/json"), text
        return json.loads(text)

    def series(self, path: str = "/metrics") -> Series:
        """Return every sample of a page."""
        status, _content_type, text = self.get(path)
        assert status == 200, text
        return parse(text)

    def wait_for(self, what: str, is_true: Callable[[Series], object], path: str = "/metrics") -> Series:
        """Ask until a page is as wanted."""
        return _wait(what, lambda: self.series(path), is_true)

    def wait_for_targets(self, path: str, role: str) -> list[dict[str, Any]]:
        """Ask until http_sd has targets of a role."""

        def read() -> list[dict[str, Any]]:
            return [one for one in self.json(path) if one["labels"]["__meta_vgpuctl_role"] == role]

        return _wait(f"targets of {role}", read, bool)


def _wait(what: str, read: Callable[[], Found], is_true: Callable[[Found], object]) -> Found:
    end = time.monotonic() + 60
    while not is_true(found := read()):
        assert time.monotonic() < end, f"{what}: {found}"
        time.sleep(0.1)
    return found


def parse(text: str) -> Series:
    """Read a page of the text format."""
    found: Series = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            key = one.name, tuple(sorted(one.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = one.value
    return found


def values(series: Series, name: str, **labels: str) -> list[float]:
    """Return the values of the samples with a name and these labels."""
    return [value for (one, has), value in series.items() if one == name and labels.items() <= dict(has).items()]


@contextlib.contextmanager
def running_exporter(operator: Operator, *options: str) -> Iterator[RunningExporter]:
    """Run `vgpuctl serve exporter` on a free port during the block."""
    process = operator.start("serve", "exporter", "--listen", "127.0.0.1:0", "--interval", "1", *options)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if " on http" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield RunningExporter(said[-1].split(" on ")[1].strip().removesuffix("/metrics"), process)
        process.terminate()
        assert process.wait(60) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
