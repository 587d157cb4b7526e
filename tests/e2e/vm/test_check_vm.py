# SPDX-License-Identifier: Apache-2.0
"""check-vm: what the host's driver says, the tenant's consent, and a guest that cannot be asked."""

import json
from pathlib import Path

import pytest

import vgpuctl_lab as lab
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
    proof = tenant.json("check-vm", "web-1", "--tenant", "prover")
    parts = {one["part"]: one for one in proof["findings"]}
    assert proof["verdict"] == "kept" and proof["unasked"].startswith("the tenant does not allow it")
    assert parts["framebuffer of A40-8Q"]["seen"] == "8192 MiB"
    assert parts["licence of A40-8Q"]["seen"] == "licensed"
    assert {one["source"] for one in proof["findings"]} == {"host"}
    shown = tenant.json("show-vm", "web-1", "--tenant", "prover")
    assert shown["proof"]["verdict"] == "kept" and shown["proof"]["at"] == proof["at"]
    assert "promise   kept, checked " in tenant.does("show-vm", "web-1", "--tenant", "prover").out


def test_a_promise_that_is_not_kept_ends_with_code_1(tenant: Operator, fleet: lab.LabFolder) -> None:
    device = tenant.json("top")["shares"][0]["device"]
    play(fleet, "sim-001", f"vgpu:{device} license_state/unlicensed-restricted 0 0:1")
    found = _verdicts(tenant)
    assert found["code"] == "1" and "the promise of prover/web-1 is not kept" in found["out"]
    assert "not-kept  licence of A40-8Q, by the host: promised licensed, seen unlicensed-restricted" in found["out"]
    assert "look: in the guest: `journalctl -u nvidia-gridd`" in found["out"]
    events = tenant.json("list-events", "--kind", "promise-checked")
    assert events[-1]["detail"] == "not-kept" and events[-1]["subject"] == "prover/web-1"


def test_only_the_tenants_file_allows_the_probe(tenant: Operator) -> None:
    assert _onboard(tenant, "true") == ["changed"] and _onboard(tenant, "true") == []
    proof = json.loads(tenant.run("check-vm", "web-1", "--tenant", "prover", "--json").out)
    # The simulated libvirt is its test driver, whose guests have no agent.
    assert "ask the guest agent of prover.web-1 on sim-001" in proof["unasked"]
    assert _onboard(tenant, "false") == ["changed"]
    assert "does not allow" in tenant.run("check-vm", "web-1", "--tenant", "prover").err


def test_a_vm_that_is_off_has_nothing_to_check(tenant: Operator) -> None:
    tenant.does("stop-vm", "web-1", "--tenant", "prover", "--timeout", "0")
    refusal = tenant.is_refused("check-vm", "web-1", "--tenant", "prover")
    assert "prover/web-1 has no promise to check: it is stopped" in refusal["message"]
    tenant.does("offboard-tenant", "prover", "--yes", "--timeout", "0")
