# SPDX-License-Identifier: Apache-2.0
"""web: the real command over simulated hosts, read by requests and by Chromium."""

import contextlib
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.chromium_fixture import Chromium, browser
from tests.e2e.operator import Operator
from tests.self_signed import make_certificate

__all__ = ["browser"]

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
TEMPLATES = Path(__file__).parents[3] / "templates"
TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class RunningWeb:
    """One `vgpuctl serve web`."""

    url: str
    process: "subprocess.Popen[str]"
    trusted: Path | None = None

    def get(self, path: str, token: str | None = None, accept: str = "*/*") -> tuple[int, str]:
        """Status and text of an answer."""
        request = urllib.request.Request(self.url + path, headers={"Accept": accept})
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        context = None if self.trusted is None else ssl.create_default_context(cafile=str(self.trusted))
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_for(self, path: str, text: str) -> str:
        """Ask until a page has a text."""
        end = time.monotonic() + 90
        while text not in (page := self.get(path)[1]):
            assert time.monotonic() < end, page
            time.sleep(0.2)
        return page


@contextlib.contextmanager
def running_web(operator: Operator, *options: str, trusted: Path | None = None) -> Iterator[RunningWeb]:
    """Run `vgpuctl serve web` on a free port during the block; it must end well when it is told to."""
    process = operator.start("serve", "web", "--listen", "127.0.0.1:0", *options)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "serving on http" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield RunningWeb(said[-1].split(" on ")[1].strip().removesuffix("/"), process, trusted)
        process.terminate()
        assert process.wait(60) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def web(fleet_operator: Operator) -> Iterator[RunningWeb]:
    """The pages of four hosts; tenant acme has a VM with an A40-8Q on sim-001."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-hosts")
    fleet_operator.does("create-vm", "web-1", "--tenant", "acme", "--gpu", "A40-8Q", "--host", "sim-001", *SIZE)
    with running_web(fleet_operator, "--interval", "1") as running:
        yield running


def test_pages_show_the_store_and_what_is_measured_now(web: RunningWeb) -> None:
    page = web.wait_for("/", "acme/web-1, A40-8Q, 8 GiB, share of a VM, uses")
    assert page.count('aria-labelledby="host-') == 4
    text = web.wait_for("/tenants/acme/vms/web-1", "Last readings of A40-8Q")
    assert "Framebuffer used" in text and "sim-001" in text
    # The readings are kept, and drawn once there is one.
    web.wait_for("/tenants/acme/vms/web-1", "<polyline")


def test_scripts_and_operators_filter_the_map_by_state(web: RunningWeb, fleet_operator: Operator) -> None:
    every = json.loads(web.get("/", accept="application/json")[1])["hosts"]
    gpu = next(one["gpus"][0]["address"] for one in every if one["name"] == "sim-002")
    fleet_operator.does("quarantine-gpu", "sim-002", gpu, "--reason", "new <b>riser</b>")
    page = web.wait_for("/?state=quarantine", "sim-002")
    assert page.count('aria-labelledby="host-') == 1 and "new &lt;b&gt;riser" in page
    status, text = web.get("/?state=quarantine", accept="application/json")
    (host,) = json.loads(text)["hosts"]
    assert (status, host["name"]) == (200, "sim-002")
    assert [(one["address"], one["states"]) for one in host["gpus"]] == [(gpu, ["quarantine"])]
    fleet_operator.does("unquarantine-gpu", "sim-002", gpu, "--reason", "it is well")


def test_a_gpu_off_the_bus_is_found_by_each_of_its_states(
    web: RunningWeb, fleet_operator: Operator, fleet: lab.LabFolder
) -> None:
    lab.faults.begin("sim-003", "fallen", folder=fleet)
    try:
        fleet_operator.does("list-gpus", "--refresh", "--limit", "sim-003")
        for state in ("quarantine", "unreadable"):
            heading = '<a href="/hosts/sim-003">sim-003</a> <span class="chip'
            found = web.wait_for(f"/?state={state}", heading).partition(heading)[2].partition("</section>")[0]
            assert '<li class="alarm">' in found and "(off-the-bus)" in found
    finally:
        lab.faults.clear("sim-003", folder=fleet)


def test_metrics_are_served_beside_the_pages(web: RunningWeb) -> None:
    status, text = web.get("/metrics")
    assert status == 200 and 'vgpuctl_host_state{host="sim-001",state="up"} 1.0' in text


def test_what_a_command_changes_is_on_the_pages(web: RunningWeb, fleet_operator: Operator) -> None:
    fleet_operator.does("cordon-host", "sim-002", "--reason", "new <b>cables</b>")
    page = web.wait_for("/", "new &lt;b&gt;cables")
    assert "host-cordoned" in page
    assert "host-cordoned" in web.get("/events?host=sim-002")[1]
    fleet_operator.does("uncordon-host", "sim-002")


def test_a_host_that_does_not_answer_is_told_and_the_pages_go_on(
    web: RunningWeb, fleet: lab.LabFolder, fleet_operator: Operator
) -> None:
    lab.faults.begin("sim-003", "power-off", folder=fleet)
    try:
        web.wait_for("/hosts/sim-003", "no readings: ")
        assert web.get("/")[0] == 200
        # What the server finds itself is what it says of the host, and what commands know.
        web.wait_for("/metrics", 'vgpuctl_host_state{host="sim-003",state="unreachable"} 1.0')
        web.wait_for("/", ": unreachable: ")
        found = {one["name"]: one["state"] for one in json.loads(web.get("/", accept="application/json")[1])["hosts"]}
        assert found == {"sim-001": "up", "sim-002": "up", "sim-003": "unreachable", "sim-004": "up"}
        known = fleet_operator.does("list-hosts", "--cached", "-o", "csv", "--columns", "host,state").out.splitlines()
        assert "sim-003,unreachable" in known and "sim-001,ok" in known
    finally:
        lab.faults.clear("sim-003", folder=fleet)
    end = time.monotonic() + 90
    while "no readings: " in web.get("/hosts/sim-003")[1]:
        assert time.monotonic() < end
        time.sleep(0.2)
    web.wait_for("/metrics", 'vgpuctl_host_state{host="sim-003",state="up"} 1.0')
    assert "sim-003,ok" in fleet_operator.does("list-hosts", "--cached", "-o", "csv", "--columns", "host,state").out


def test_the_pages_of_a_real_fleet_in_a_browser(web: RunningWeb, browser: Chromium) -> None:
    with browser.page() as page:
        for path in ("/", "/hosts/sim-001", "/tenants/acme/vms/web-1", "/states", "/events"):
            page.open(web.url + path)
            assert page.problems() == [], path
        page.open(f"{web.url}/")
        page.run("document.querySelector('svg a[href=\"/tenants/acme/vms/web-1\"]').focus()")
        page.follow()
        assert page.run("document.querySelector('h1').textContent").startswith("VM web-1")
        assert [one for one in page.asked() if not one.startswith(web.url)] == []


def test_with_a_token_and_tls_only_who_has_it_reads(fleet_operator: Operator, tmp_path: Path) -> None:
    make_certificate(tmp_path, "server", "server")
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)
    options = ("--cached", "--web-config", str(tmp_path / "web.yml"), "--token-file", str(tmp_path / "token"))
    with running_web(fleet_operator, *options, trusted=tmp_path / "server.pem") as running:
        assert running.url.startswith("https://")
        assert running.get("/")[0] == 401
        assert running.get("/", TOKEN[:-1] + "0")[0] == 401
        status, text = running.get("/", TOKEN)
        assert status == 200 and "sim-001" in text
        assert running.get("/metrics", TOKEN)[0] == 404  # nothing is measured with --cached


def test_other_machines_are_not_served_without_protection(fleet_operator: Operator) -> None:
    done = fleet_operator.run("serve", "web", "--listen", "0.0.0.0:0", "--cached")
    assert done.code == 2 and "no TLS and no login" in done.err and "--token-file" in done.err
    done = fleet_operator.run("serve", "web", "--listen", "127.0.0.1:0", "--token-file", "/nowhere/token")
    assert done.code == 2 and "cannot be read" in done.err
    bad = fleet_operator.run("serve", "web", "--cached", "--listen", "127.0.0.1:0", "--prometheus", "ftp://here")
    assert bad.code == 2 and "no HTTP address" in bad.err


def test_one_page_is_printed_without_a_server(fleet_operator: Operator) -> None:
    done = fleet_operator.does("serve", "web", "--print", "/hosts/sim-001")
    assert done.out.startswith("<!doctype html>") and "Host sim-001" in done.out
    done = fleet_operator.run("serve", "web", "--print", "/hosts/none")
    assert done.code == 2 and "404" in done.err


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("/capacity?gpu=A40-8Q&memory=x", "--memory is 'x', which is not a size"),
        ("/capacity?gpu=nonsense", "nonsense"),
        ("/capacity?gpu=A40-8Q&vcpus=many", "many"),
        ("/events?since=x", "since 'x' is no time"),
    ],
)
def test_a_page_that_is_none_is_refused_with_its_reason(page: str, reason: str, fleet_operator: Operator) -> None:
    done = fleet_operator.run("serve", "web", "--print", page)
    assert done.code == 2 and "is no page: 4" in done.err and reason in done.err.partition("is no page")[2]
