# SPDX-License-Identifier: Apache-2.0
"""The HTTP interface of the scheduler extender: PREFIX/VERB by POST, and /healthz and /metrics.

Plain WSGI: a filter call is on the path of every pod that waits, so nothing runs that is not needed. kube-scheduler
takes any status but 200 for an error and does not read its body; what concerns one pod is therefore said with 200.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from vgpuctl.listening.requests import Refusals
from vgpuctl.telemetry.own_metrics import REFUSED_REQUESTS
from vgpuctl.usecases.kubernetes.serve_extender import Extender
from vgpuctl.web.server import ApplicationRules

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_LOGGER = logging.getLogger("vgpuctl.extender")
# Whole nodes are sent where the configuration has nodeCacheCapable false: megabytes in large clusters.
EXTENDER = ApplicationRules(frozenset({"application/json"}), most_body_bytes=64 * 1024 * 1024)
"""What kube-scheduler sends."""

MOST_CALLS = 1024
"""Calls at the same time: members of gangs wait in their binds."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class _Durations:
    """A Prometheus histogram for each verb."""

    def __init__(self, verbs: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._counts = {verb: [0] * (len(_BUCKETS_S) + 1) for verb in verbs}
        self._sums = dict.fromkeys(self._counts, 0.0)

    def add(self, verb: str, seconds: float) -> None:
        with self._lock:
            at = next((number for number, bound in enumerate(_BUCKETS_S) if seconds <= bound), len(_BUCKETS_S))
            self._counts[verb][at] += 1
            self._sums[verb] += seconds

    def lines(self) -> list[str]:
        name = "vgpuctl_extender_request_seconds"
        found = [f"# HELP {name} Duration of a call by verb.", f"# TYPE {name} histogram"]
        with self._lock:
            for verb, counts in self._counts.items():
                total = 0
                for bound, count in zip((*map(str, _BUCKETS_S), "+Inf"), counts, strict=True):
                    total += count
                    found.append(f'{name}_bucket{{verb="{verb}",le="{bound}"}} {total}')
                found.append(f'{name}_sum{{verb="{verb}"}} {self._sums[verb]:.6f}')
                found.append(f'{name}_count{{verb="{verb}"}} {total}')
        return found


def extender_app(
    extender: Extender, prefix: str = "/v1", *, stale_s: float = 60.0, refusals: Refusals | None = None
) -> "Callable[..., list[bytes]]":
    """The WSGI application. stale_s: age of the last refresh from which /healthz answers 503.

    refusals: of its server.
    """
    counted = Refusals() if refusals is None else refusals
    verbs: Mapping[str, Callable[[bytes], bytes]] = {
        f"{prefix}/filter": extender.filter,
        f"{prefix}/prioritize": extender.prioritize,
        f"{prefix}/bind": extender.bind,
        f"{prefix}/preempt": extender.preempt,
    }
    durations = _Durations(path.rpartition("/")[2] for path in verbs)

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> list[bytes]:
        path = environ.get("PATH_INFO", "")
        status, kind, answer = "200 OK", _TEXT, b""
        if path in verbs:
            if environ.get("REQUEST_METHOD") != "POST":
                status, answer = "405 Method Not Allowed", b"POST only\n"
            else:
                length = int(environ.get("CONTENT_LENGTH") or 0)  # which the front has checked
                body = environ["wsgi.input"].read(length)
                began = time.perf_counter()
                try:
                    if len(body) == length:
                        kind, answer = _JSON, verbs[path](body)
                    else:
                        status, answer = "400 Bad Request", b"the body ended early\n"
                except Exception:
                    _LOGGER.error("unexpected error", exc_info=True)
                    status, kind, answer = "500 Internal Server Error", _TEXT, b"unexpected error\n"
                durations.add(path.rpartition("/")[2], time.perf_counter() - began)
        elif path == "/healthz":
            age = extender.age_s()
            if age is None or age > stale_s:
                status, answer = "503 Service Unavailable", b"the API server has not been read\n"
            else:
                answer = b"ok\n"
        elif path == "/metrics":
            answer = "\n".join([*durations.lines(), *_state_lines(extender), *_refusal_lines(counted), ""]).encode()
        else:
            status, answer = "404 Not Found", b"not found\n"
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(answer)))])
        return [answer]

    return app


def _state_lines(extender: Extender) -> list[str]:
    found = []
    for name, value in extender.counts().items():
        is_total = name in ("filter", "prioritize", "bind", "preempt", "refused_bind", "bad_request")
        full = f"vgpuctl_extender_{name}_total" if is_total else f"vgpuctl_extender_{name}"
        found += [f"# TYPE {full} {'counter' if is_total else 'gauge'}", f"{full} {value}"]
    age = extender.age_s()
    if age is not None:
        found += [
            "# TYPE vgpuctl_extender_refresh_age_seconds gauge",
            f"vgpuctl_extender_refresh_age_seconds {age:.3f}",
        ]
    return found


def _refusal_lines(refusals: Refusals) -> list[str]:
    metric = REFUSED_REQUESTS
    found = [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} counter"]
    return found + [f'{metric.name}{{reason="{reason}"}} {number}' for reason, number in refusals.counts().items()]
