# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus and Alertmanager for the tests: own folders, own ports on loopback, gone at the end.

Both end with the process that started them, even when that is killed.
"""

import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

_START_LIMIT_S = 60
_STOP_LIMIT_S = 15
_T = TypeVar("_T")


def need(*programs: str) -> None:
    """Skip the test where a program is not installed; fail it where all tests must run."""
    missing = [one for one in programs if shutil.which(one) is None]
    if missing:
        reason = f"{', '.join(missing)}: apt-get install prometheus prometheus-alertmanager"
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(reason)
        pytest.skip(reason)


def promtool(*arguments: str, folder: Path) -> tuple[int, str]:
    """Run promtool in a folder: its exit code and its output."""
    need("promtool")
    done = subprocess.run(
        ["promtool", *arguments],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def wait_for(ask: Callable[[], _T | None], what: str, limit_s: float = 60) -> _T:
    """Ask until there is an answer. Fails with what was waited for."""
    give_up = time.monotonic() + limit_s
    while time.monotonic() < give_up:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"no {what} within {limit_s} s")


class Prometheus:
    """A running server. rules: its rule files' folder, read again by `reload`."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def get(self, path: str, **query: str) -> Any:
        """Ask the HTTP API; returns `data`. Raises RuntimeError with Prometheus's message for a bad query."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path} {query}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """The series of an instant query."""
        found: list[Mapping[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def alerts(self) -> list[Mapping[str, Any]]:
        """Every pending or firing alert."""
        found: list[Mapping[str, Any]] = self.get("alerts")["alerts"]
        return found

    def firing(self, **labels: str) -> list[Mapping[str, Any]]:
        """The firing alerts with these labels."""
        return [
            one
            for one in self.alerts()
            if one["state"] == "firing" and all(one["labels"].get(name) == value for name, value in labels.items())
        ]


class Webhook:
    """Receives what Alertmanager sends. notes: every alert of every notification, in their order."""

    def __init__(self) -> None:
        self.notes: list[Mapping[str, Any]] = []
        notes = self.notes

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                notes.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    @contextlib.contextmanager
    def receiving(self) -> Iterator["Webhook"]:
        """Receive during the block."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(_STOP_LIMIT_S)

    def heard(self, status: str, **labels: str) -> list[Mapping[str, Any]]:
        """Alerts that were sent with a status (`firing`, `resolved`) and these labels."""
        return [
            one
            for one in list(self.notes)
            if one["status"] == status and all(one["labels"].get(name) == value for name, value in labels.items())
        ]


@contextlib.contextmanager
def running_prometheus(config: Mapping[str, Any], rules: Mapping[str, str] | None = None) -> Iterator[Prometheus]:
    """A Prometheus with a configuration and rule files (text by name) of its own."""
    need("prometheus")
    with _folder() as folder:
        for name, text in (rules or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        written = {**config, "rule_files": [str(folder / name) for name in rules or {}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(written), encoding="utf-8")
        address = f"127.0.0.1:{_unused_port()}"
        arguments = [
            "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}",
            "--log.level=warn",
        ]  # fmt: skip
        with _running(arguments, folder, f"http://{address}/-/ready"):
            yield Prometheus(f"http://{address}", folder)


@contextlib.contextmanager
def running_alertmanager(config: Mapping[str, Any]) -> Iterator[str]:
    """An Alertmanager with a configuration of its own; yields its address `127.0.0.1:PORT`."""
    need("prometheus-alertmanager")
    with _folder() as folder:
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        address = f"127.0.0.1:{_unused_port()}"
        arguments = [
            "prometheus-alertmanager", "--config.file=alertmanager.yml", "--storage.path=data",
            f"--web.listen-address={address}", "--cluster.listen-address=", "--log.level=warn",
        ]  # fmt: skip
        with _running(arguments, folder, f"http://{address}/-/ready"):
            yield address


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-prometheus-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _running(arguments: Sequence[str], folder: Path, ready: str) -> Iterator[None]:
    log = folder / "log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "--", *arguments],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=written, stderr=written,
        )  # fmt: skip
    try:

        def answers() -> bool:
            assert process.poll() is None, f"{arguments[0]} ended:\n{log.read_text(errors='replace')}"
            with contextlib.suppress(OSError), urllib.request.urlopen(ready, timeout=5) as answer:
                return bool(answer.status == 200)
            return False

        wait_for(answers, f"answer of {arguments[0]}", _START_LIMIT_S)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_LIMIT_S)


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
