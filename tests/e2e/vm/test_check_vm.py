# SPDX-License-Identifier: Apache-2.0
"""check-vm: what each witness says, the tenant's consent, and a guest that cannot be asked."""

import json
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.playing import play

FILE = """
version: 1
tenant: prover
guest_probe: {allowed}
vms:
  - {{name: web-1, gpus: [A40-8Q], vcpus: 1, memory: 96MiB, network: none, host: sim-001}}
"""


@pytest.fixture(scope="module")
def tenant(fleet_operator: Operator) -> Operator:
    _onboard(fleet_operator, "false")
    return fleet_operator


def _onboard(operator: Operator, allowed: str) -> list[str]:
    file = Path(operator.home) / "prover.yml"
    file.write_text(FILE.format(allowed=allowed))
    objects = operator.json("onboard", str(file))["objects"]
    return [one["outcome"] for one in objects if one["kind"] == "guest_probe"]


def _verdicts(operator: Operator) -> dict[str, str]:
    done = operator.run("check-vm", "web-1", "--tenant", "prover")
    return {"code": str(done.code), "out": done.out, "err": done.err}


def test_the_host_proves_what_it_can(tenant: Operator, fleet: lab.LabFolder) -> None:
    device = tenant.json("top")["shares"][0]["device"]
    play(fleet, "sim-001", f"vgpu:{device} license_state/licensed 0 0:1")
    checked = tenant.json("check-vm", "web-1", "--tenant", "prover")
    rows = {one["row"]: one for one in checked["findings"]}
    assert checked["verdict"] == "kept"
    assert checked["notes"] == [
        "the guest was not asked: the tenant does not allow it; `guest_probe: true` in its file does"
    ]
    assert {row: one["witness"] for row, one in rows.items()} == {
        "gpu-type": "host-kernel", "gpu-held": "host-kernel", "framebuffer": "nvml", "compute": "nvml",
        "guest-driver": "nvml", "licence": "nvml", "vcpus": "libvirt", "memory": "libvirt",
    }  # fmt: skip
    assert (rows["framebuffer"]["seen"], rows["licence"]["seen"]) == ("8192 MiB", "licensed")
    shown = tenant.json("show-vm", "web-1", "--tenant", "prover")
    assert {one["finding"]["verdict"] for one in shown["promises"]} == {"kept"}
    assert [one["at"] for one in shown["promises"]] == [pytest.approx(checked["at"], abs=1)] * 8
    assert "promises  8 kept, 0 broken, 0 not looked at; looked at " in tenant.does("show-vm", "prover/web-1").out


def test_a_row_that_is_broken_ends_with_code_1(tenant: Operator, fleet: lab.LabFolder) -> None:
    device = tenant.json("top")["shares"][0]["device"]
    play(fleet, "sim-001", f"vgpu:{device} license_state/unlicensed-restricted 0 0:1")
    found = _verdicts(tenant)
    assert found["code"] == "1" and "the promise to the owner of prover/web-1 is broken" in found["out"]
    assert "broken        licence A40-8Q, by nvml: promised licensed, seen unlicensed-restricted" in found["out"]
    assert "look: in the guest: `journalctl -u nvidia-gridd`" in found["out"]
    events = tenant.json("list-events", "--kind", "promise-checked")
    assert events[-1]["detail"] == "broken" and events[-1]["subject"] == "prover/web-1"
    (observed,) = tenant.json("list-events", "--kind", "promise-observed")
    assert observed["detail"] == "licence A40-8Q: promised licensed, seen unlicensed-restricted"
    assert "broken since " in tenant.does("show-vm", "prover/web-1").out


def test_only_the_tenants_file_allows_the_probe_and_a_silent_guest_is_not_kept(
    tenant: Operator, fleet: lab.LabFolder
) -> None:
    assert _onboard(tenant, "true") == ["changed"] and _onboard(tenant, "true") == []
    play(fleet, "sim-001", f"vgpu:{tenant.json('top')['shares'][0]['device']} license_state/licensed 0 0:1")
    done = tenant.run("check-vm", "web-1", "--tenant", "prover", "--json")
    checked = json.loads(done.out)
    # The simulated libvirt is its test driver, whose guests have no agent.
    (row,) = [one for one in checked["findings"] if one["verdict"] != "kept"]
    assert (done.code, checked["verdict"], row["row"], row["verdict"]) == (
        14, "not-looked-at", "guest-gpus", "not-looked-at",
    )  # fmt: skip
    assert "ask the guest agent of prover.web-1 on sim-001" in row["why"]
    out = tenant.run("check-vm", "web-1", "--tenant", "prover").out
    assert (
        "is kept in the rows that could be looked at, 8 of 9" in out
        and "not looked at guest-gpus: only the guest" in out
    )
    assert _onboard(tenant, "false") == ["changed"]
    assert "does not allow" in tenant.does("check-vm", "web-1", "--tenant", "prover").out


def test_where_nobody_can_be_asked_nothing_is_called_kept(tenant: Operator, fleet: lab.LabFolder) -> None:
    lab.faults.begin("sim-001", "sshd", folder=fleet)
    log = tenant.home / "silent.log"
    try:
        found = _verdicts(tenant)
        tenant.run("check-vm", "web-1", "--tenant", "prover", "--log-file", str(log))
    finally:
        lab.faults.clear("sim-001", folder=fleet)
    assert found["code"] == "14", found
    assert "prover/web-1 could not be looked at in any of its 8 rows" in found["out"], found
    assert "kept" not in found["out"], found
    assert log.read_text().count("event=ssh-login") == 1, "what is asked once is known of every row"


def test_a_vm_that_ended_by_itself_has_one_row(tenant: Operator) -> None:
    with libvirt_of(tenant.inventory, "sim-001") as libvirt:
        libvirt.destroy("prover.web-1")
    for named in (("web-1", "--tenant", "prover"), ("-A", "--all")):
        done = tenant.run("check-vm", *named)
        assert done.code == 1
        assert done.out.splitlines()[:3] == [
            "the promise to the owner of prover/web-1 is broken in every row",
            "broken        it does not run: the domain is shut off",
            "              start it: vgpuctl start-vm prover/web-1; a paused one: vgpuctl repair",
        ]
        assert done.out.count("broken") == 2
    tenant.does("start-vm", "prover/web-1")


def test_a_vm_that_is_off_has_nothing_to_check(tenant: Operator) -> None:
    tenant.does("stop-vm", "web-1", "--tenant", "prover", "--timeout", "0")
    refusal = tenant.is_refused("check-vm", "web-1", "--tenant", "prover")
    assert "prover/web-1 has no promise to check: it is stopped" in refusal["message"]
    for several in (("--all",), ("-A", "--all"), ("web-*",)):
        done = tenant.run("check-vm", *several, *(() if "-A" in several else ("--tenant", "prover")))
        assert (done.code, done.out) == (0, ""), done
        assert "1 VM left out, with no promise to check: 1 stopped" in done.err and "0 VMs: none" in done.err
    assert tenant.run("check-vm", "web-1", "web-1", "--tenant", "prover").code != 0, "it is named"
    tenant.does("offboard-tenant", "prover", "--yes", "--timeout", "0")
