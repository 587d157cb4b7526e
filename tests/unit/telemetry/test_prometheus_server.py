# SPDX-License-Identifier: Apache-2.0
"""Past readings from Prometheus: what is asked, and answers that are wrong, endless or late."""

import contextlib
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from vgpuctl.errors import PrometheusUnusable, UsageError
from vgpuctl.telemetry.history import Sample, Subject
from vgpuctl.telemetry.prometheus_server import PrometheusServer

NOON = 1_790_000_040 // 60 * 60
Answer = Callable[["_Handler", dict[str, list[str]]], None]


class _Handler(BaseHTTPRequestHandler):
    answer: Answer
    asked: list[tuple[str, dict[str, list[str]], str | None]]

    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.asked.append((self.path, form, self.headers["Authorization"]))
        type(self).answer(self, form)

    def give(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


Serve = Callable[[Answer], tuple[str, list[tuple[str, dict[str, list[str]], str | None]]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve answers until the test ends; the server's URL and what it was asked."""
    running: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> tuple[str, list[tuple[str, dict[str, list[str]], str | None]]]:
        asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        handler = type("Handler", (_Handler,), {"answer": staticmethod(answer), "asked": asked})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        running.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}", asked

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def matrix(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> bytes:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


LABELS = {"host": "gpu1", "gpu": "0000:41:00.0", "tenant": "acme", "vm": "web-1", "share": "u-1", "profile": "A40-8Q"}
SUBJECT = Subject("vgpu", "gpu1", "u-1", "0000:41:00.0", "acme", "web-1", "A40-8Q")


def test_samples_come_from_four_functions_of_a_range(serve: Serve) -> None:
    figures = {"count_over_time": "4", "avg_over_time": "0.5", "min_over_time": "0.25", "max_over_time": "0.75"}

    def answer(handler: _Handler, form: dict[str, list[str]]) -> None:
        figure = figures[form["query"][0].partition("(")[0]]
        handler.give(matrix((LABELS, [(NOON + 60, figure), (NOON + 120, figure)])))

    url, asked = serve(answer)
    named = url.replace("http://", "http://user:p%40ss@") + "/prefix/"
    found = PrometheusServer(named).series(
        "vgpu", "utilization_ratio", since=NOON + 5, until=NOON + 120, tenant='a"c\\me\n', vm="web-1"
    )
    assert found == {SUBJECT: [Sample(NOON, 4, 0.5, 0.25, 0.75, 1), Sample(NOON + 60, 4, 0.5, 0.25, 0.75, 1)]}
    path, form, authorization = asked[0]
    assert path == "/prefix/api/v1/query_range" and authorization == "Basic dXNlcjpwQHNz"
    assert form == {
        "query": [r'count_over_time(vgpuctl_vgpu_utilization_ratio{tenant="a\"c\\me\n",vm="web-1"}[60s])'],
        "start": [str(NOON + 60)],
        "end": [str(NOON + 120)],
        "step": ["60"],
    }
    assert len(asked) == 4


def test_figures_that_disagree_and_numbers_that_are_none(serve: Serve) -> None:
    told: dict[str, list[tuple[float, str]]] = {
        "count": [(NOON + 60, "2"), (NOON + 120, "NaN"), (NOON + 180, "1")],
        "avg": [(NOON + 60, "0.5"), (NOON + 120, "0.25"), (NOON + 180, "NaN"), (NOON + 240, "inf")],
    }
    other = {**LABELS, "vm": "web-2"}

    def answer(handler: _Handler, form: dict[str, list[str]]) -> None:
        figure = form["query"][0].partition("_")[0]
        handler.give(matrix((LABELS, told.get(figure, [])), (other, [(NOON + 60, "NaN" if figure == "avg" else "1")])))

    url, _ = serve(answer)
    (samples,) = PrometheusServer(url).series("vgpu", "utilization_ratio", since=NOON, until=NOON + 180).values()
    assert samples == [Sample(NOON, 2, 0.5, 0.5, 0.5), Sample(NOON + 60, 1, 0.25, 0.25, 0.25)], "no mean, no sample"


def _endless(handler: _Handler, _form: object) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(ConnectionError):  # The client has read enough and closed.
        while True:
            handler.wfile.write(b" " * (1 << 20))


def _drip(handler: _Handler, _form: object) -> None:
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(ConnectionError):  # The client waits no longer.
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda handler, _: handler.give(b"<html>"), "not JSON"),
        (lambda handler, _: handler.give(b"[" * 100_000), "not JSON"),
        (lambda handler, _: handler.give(b"[]"), "without success"),
        (lambda handler, _: handler.give(b'{"status":"error","error":"bad query"}'), "bad query"),
        (lambda handler, _: handler.give(b'{"status":"error","error":"too many"}', 422), "422 too many"),
        (lambda handler, _: handler.give(b"no", 503), "503"),
        (lambda handler, _: handler.give(b"", 302, Location="http://127.0.0.1:1/"), "302"),
        (lambda handler, _: handler.give(b'{"status":"success","data":{"resultType":"vector"}}'), "a vector"),
        (lambda handler, _: handler.give(b'{"status":"success","data":[]}'), "not Prometheus's API"),
        (lambda handler, _: handler.give(matrix(("x", [(1, "1")]))), "not Prometheus's API"),  # type: ignore[arg-type]  # what a wrong server may send
        (lambda handler, _: handler.give(matrix((LABELS, [(1e400, "1")]))), "not Prometheus's API"),
        (_endless, "more than 32 MiB"),
        (_drip, "longer than"),
    ],
)
def test_a_wrong_answer_is_an_error_with_the_servers_name(serve: Serve, answer: Answer, words: str) -> None:
    url, _ = serve(answer)
    with pytest.raises(PrometheusUnusable, match=words) as caught:
        PrometheusServer(url.replace("//", "//user:secret@"), timeout_s=1.0).series(
            "gpu", "power_watts", since=NOON, until=NOON + 60
        )
    assert url in caught.value.message and "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PrometheusUnusable, match="cannot be asked"):
        PrometheusServer("http://127.0.0.1:1").series("gpu", "power_watts", since=NOON, until=NOON + 60)


def test_too_many_points_are_not_asked_for() -> None:
    with pytest.raises(PrometheusUnusable, match="points"):
        PrometheusServer("http://127.0.0.1:1").series("gpu", "power_watts", since=0, until=NOON)
    assert PrometheusServer("http://127.0.0.1:1").series("gpu", "power_watts", since=NOON, until=NOON) == {}


@pytest.mark.parametrize(
    "url", ["", "prometheus:9090", "ftp://x", "http://", "http://[::1", "http://x:99999", "http://x?a"]
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        PrometheusServer(url)


def test_an_address_of_ipv6_keeps_its_brackets() -> None:
    assert PrometheusServer("https://user:pw@[::1]:9090/x/").name == "https://[::1]:9090/x"


@pytest.mark.parametrize(
    ("kind", "measure", "labels", "subject"),
    [
        (
            "host",
            "pool_total_bytes",
            {"host": "gpu1", "pool": "default", "filesystem": "/srv"},
            Subject("host", "gpu1", "").part(["default", "/srv"]),
        ),
        ("host", "memory_total_bytes", {"host": "gpu1", "instance": "gpu1"}, Subject("host", "gpu1", "")),
        (
            "licence",
            "seats",
            {"pool": "dls", "edition": "vws", "state": "free"},
            Subject("licence", "", "").part(["dls", "vws", "free"]),
        ),
    ],
)
def test_labels_of_a_measure_name_a_part_as_in_the_kept_history(
    serve: Serve, kind: str, measure: str, labels: dict[str, str], subject: Subject
) -> None:
    url, asked = serve(lambda handler, _form: handler.give(matrix((labels, [(NOON + 60, "1")]))))
    (found,) = PrometheusServer(url).series(kind, measure, since=NOON, until=NOON + 60)
    assert found == subject
    assert f"(vgpuctl_{kind}_{measure}{{}}[60s])" in asked[0][1]["query"][0]
