# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that a test drives by the DevTools protocol over a pipe; no port is opened, no library needed.

Each page has a browser context of its own: no cookies or cache of another test.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAM = "chromium"
_ANSWER_S = 60.0


class Chromium:
    """One browser process. Messages are JSON, each with a NUL behind it."""

    def __init__(self, process: "subprocess.Popen[bytes]", write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._numbers = itertools.count(1)
        self._received = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Call a method and return its result."""
        number = next(self._numbers)
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        for answer in self._messages(_ANSWER_S):
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
        raise AssertionError(f"{method} had no answer; exit status {self._process.poll()}")

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        """Wait for an event of a page that was not taken yet, and take it."""
        for _ in itertools.chain([None], self._messages(_ANSWER_S)):
            for event in self.events:
                if event["method"] == method and event.get("sessionId") == session:
                    self.events.remove(event)
                    return event
        raise AssertionError(f"no event {method}")

    def _messages(self, limit_s: float) -> Iterator[dict[str, Any]]:
        """The messages that come; events are kept too."""
        deadline = time.monotonic() + limit_s
        while True:
            text, separator, rest = self._received.partition(b"\0")
            if separator:
                self._received = rest
                message = json.loads(text)
                if "method" in message:
                    self.events.append(message)
                yield message
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return
            data = os.read(self._read, 1 << 20)
            if not data:
                return
            self._received += data

    @contextmanager
    def page(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True
    ) -> "Iterator[Page]":
        """Open an empty page."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        if not script:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            yield page
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)
            self.events = [one for one in self.events if one.get("sessionId") != session]


@dataclass
class Page:
    """One tab. problems: errors and warnings of its console, exceptions, and refusals of its policy."""

    browser: Chromium
    session: str
    requests: list[str] = field(default_factory=list)

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of this page."""
        return self.browser.call(method, self.session, **parameters)

    def open(self, url: str) -> None:
        """Load a page to its end."""
        self._forget("Page.loadEventFired")
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.browser.wait_for("Page.loadEventFired", self.session)

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript, waited for if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int, *, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            given = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **given)

    def tab(self) -> None:
        """Press Tab."""
        self.press("Tab", 9)

    def follow(self) -> None:
        """Press Enter and wait for the page that comes."""
        self._forget("Page.loadEventFired")
        self.press("Enter", 13, text="\r")
        self.browser.wait_for("Page.loadEventFired", self.session)

    def type(self, text: str) -> None:
        """Type into the field that has the focus; a browser gives it to `autofocus` some time after the page's load."""
        deadline = time.monotonic() + _ANSWER_S
        while self.run("document.activeElement?.tagName") != "INPUT":
            assert time.monotonic() < deadline, "no field has the focus"
            time.sleep(0.05)
        self.call("Input.insertText", text=text)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of what is seen, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def problems(self) -> list[str]:
        """Complaints of the browser so far."""
        found = []
        for event in self._own():
            given = event["params"]
            if event["method"] == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(given["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(given["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(given["args"]))
        return found

    def asked(self) -> list[str]:
        """The URL of every request so far."""
        sent = (event["params"] for event in self._own() if event["method"] == "Network.requestWillBeSent")
        return [one["request"]["url"] for one in sent]

    def dialogs(self) -> int:
        """How many dialogs a script has opened."""
        return sum(event["method"] == "Page.javascriptDialogOpening" for event in self._own())

    def _own(self) -> list[dict[str, Any]]:
        return [one for one in self.browser.events if one.get("sessionId") == self.session]

    def _forget(self, method: str) -> None:
        own = [one for one in self._own() if one["method"] == method]
        self.browser.events = [one for one in self.browser.events if one not in own]


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """A browser with a new profile in a folder."""
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        f"--user-data-dir={profile}",
        "--remote-debugging-pipe",
        "about:blank",
    ]
    # The browser reads from descriptor 3 and writes to descriptor 4.
    command = ["bash", "-c", f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"', "bash", PROGRAM, *arguments]
    process = subprocess.Popen(
        command,
        pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    browser = Chromium(process, write, read)
    try:
        yield browser
        browser.call("Browser.close")
    finally:
        os.close(write)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(read)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for a test file. VGPUCTL_TESTS_MUST_RUN=1 (CI) makes its absence a failure."""
    if shutil.which(PROGRAM) is None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail("Chromium looks at the pages: apt-get install chromium")
        pytest.skip("Chromium looks at the pages: apt-get install chromium")
    with chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running
