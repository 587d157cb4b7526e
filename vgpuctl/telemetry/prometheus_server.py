# SPDX-License-Identifier: Apache-2.0
"""Past readings from a Prometheus server, by its HTTP API, in place of the kept history.

Prometheus's answer is bounded in bytes and in time. The API: prometheus.io/docs/prometheus/latest/querying/api.
"""

import base64
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from vgpuctl.agent.wire.measures import GPU, INSTANCE, VGPU, VM, Measure
from vgpuctl.errors import PrometheusUnusable, UsageError
from vgpuctl.telemetry.history import MINUTE_S, Sample, Subject, kept_measure, require_filters

_MOST_BYTES = 32 << 20
_CHUNK = 1 << 16
_MOST_POINTS = 11_000
"""Prometheus refuses more points of one series in one query."""
_OBJECT = {GPU: "gpu", INSTANCE: "instance", VGPU: "share", VM: "vm"}
"""The label that comes nearest to the name of an object in the kept history."""
_FIGURES = {"count": "count_over_time", "mean": "avg_over_time", "low": "min_over_time", "high": "max_over_time"}


class PrometheusServer:
    """One server. url: its address, with `user:password@` for basic auth. timeout_s: for the whole of one answer."""

    def __init__(self, url: str, *, timeout_s: float = 15.0) -> None:
        """Raises UsageError for a URL that is none."""
        try:
            parts = urllib.parse.urlsplit(url.strip())
            port = parts.port
        except ValueError as error:
            raise UsageError("the URL of Prometheus cannot be read", hint=_FORM) from error
        if "@" in parts.path + parts.query + parts.fragment:
            # A / in the password: what stands behind it would be shown as the path.
            raise UsageError("the URL of Prometheus has an @ after the host", hint="in a password write %2F for /")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError("the URL of Prometheus is no HTTP address", hint=_FORM)
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.name = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
        """The address without a password, for messages."""
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            self._headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        self._opener = urllib.request.build_opener(_NoRedirect)

    def series(
        self, kind: str, measure: str, *, since: float, until: float, step_s: int = MINUTE_S, **where: str
    ) -> dict[Subject, list[Sample]]:
        """As History.series. A sample's minutes are those that its number of scrapes can have covered.

        A step whose mean is no number was not measured: such a mean would be read as 0.
        Raises PrometheusUnusable.
        """
        require_filters(kind, where)
        begin = int(since // step_s * step_s)
        times = range(begin, math.ceil(until), step_s)
        if len(times) > _MOST_POINTS:
            raise PrometheusUnusable(f"{len(times)} points of {step_s} s are more than Prometheus gives at once")
        if not times:
            return {}
        asked = kept_measure(kind, measure)
        selector = ",".join(f"{name}={_quoted(value)}" for name, value in sorted(where.items()))
        found: dict[str, dict[Subject, dict[int, float]]] = {}
        for figure, function in _FIGURES.items():
            # A range ends at its time, so the sample of a step is asked for at the step's end.
            query = f"{function}({asked.metric}{{{selector}}}[{step_s}s])"
            bounds = {"start": str(begin + step_s), "end": str(times[-1] + step_s), "step": str(step_s)}
            found[figure] = self._range(asked, {"query": query, **bounds}, step_s)
        return {
            subject: [
                _sample(at, step_s, mean, {figure: found[figure].get(subject, {}).get(at) for figure in _FIGURES})
                for at, mean in sorted(means.items())
            ]
            for subject, means in found["mean"].items()
            if means
        }

    def _range(self, asked: Measure, parameters: Mapping[str, str], step_s: int) -> dict[Subject, dict[int, float]]:
        answer = self._ask("/api/v1/query_range", parameters)
        try:
            data = answer["data"]
            if data["resultType"] != "matrix":
                raise PrometheusUnusable(f"{self.name} answered with a {data['resultType']}, not a matrix")
            return {
                _subject(asked, one["metric"]): {
                    int(float(at)) - step_s: number
                    for at, text in one["values"]
                    if math.isfinite(number := float(text))
                }
                for one in data["result"]
            }
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise PrometheusUnusable(
                f"{self.name} answered something that is not Prometheus's API: {error!r}"
            ) from error

    def _ask(self, path: str, parameters: Mapping[str, str]) -> Any:
        body = urllib.parse.urlencode(parameters).encode()
        request = urllib.request.Request(f"{self.name}{path}", body, self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                text = self._read(response)
        except urllib.error.HTTPError as error:
            with error:
                raise PrometheusUnusable(
                    f"{self.name} refused the query: {error.code} {_reason(error)}", hint=_HINT
                ) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise PrometheusUnusable(f"{self.name} cannot be asked: {reason}", hint=_HINT) from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PrometheusUnusable(f"{self.name} answered something that is not JSON", hint=_HINT) from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise PrometheusUnusable(f"{self.name} answered without success: {_told(answer)}", hint=_HINT)
        return answer

    def _read(self, response: Any) -> bytes:
        """Read an answer within the bounds, also of a server that sends one byte now and then."""
        end = time.monotonic() + self._timeout_s
        text = bytearray()
        while chunk := response.read1(_CHUNK):
            text += chunk
            if len(text) > _MOST_BYTES:
                raise OSError(f"the answer has more than {_MOST_BYTES >> 20} MiB")
            if time.monotonic() > end:
                raise TimeoutError(f"the answer took longer than {self._timeout_s:g} s")
        return bytes(text)


_FORM = "write http://HOST:PORT or https://USER:PASSWORD@HOST/PREFIX"
_HINT = "name the server with --prometheus URL, or leave it out to use the kept history"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the password to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _quoted(text: str) -> str:
    """A string of PromQL, in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _subject(asked: Measure, labels: Mapping[str, str]) -> Subject:
    def label(name: str) -> str:
        return str(labels.get(name, ""))

    names = (label(name) for name in ("host", _OBJECT.get(asked.of, ""), "gpu", "tenant", "vm", "profile"))
    return Subject(asked.of, *names).part([label(name) for name in asked.labels])


def _sample(at: int, step_s: int, mean: float, figures: Mapping[str, float | None]) -> Sample:
    count = max(1, int(figures["count"] or 1))
    low, high = figures["low"], figures["high"]
    minutes = max(1, min(count, step_s // MINUTE_S))
    return Sample(at, count, mean, mean if low is None else low, mean if high is None else high, minutes)


def _told(answer: object) -> str:
    told = answer.get("error") if isinstance(answer, dict) else None
    return str(told or "no reason")[:200]


def _reason(error: urllib.error.HTTPError) -> str:
    """Prometheus's own words, which are JSON also with a status of failure."""
    try:
        return _told(json.loads(error.read(_CHUNK)))
    except (OSError, HTTPException, ValueError, RecursionError):
        return str(error.reason)[:200]
