# SPDX-License-Identifier: Apache-2.0
"""The agent's entry for the boot unit: what it says about a manifest that cannot be used, and what it leaves behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MANIFEST = "/etc/vgpuctl/manifest.json"


def restore(root: Path, manifest: str | None) -> tuple[int, str, dict[str, object]]:
    """Run the entry on a folder as root: exit status, what the journal gets, the result that is left."""
    for folder in ("etc/vgpuctl", "proc/sys/kernel/random", "sys/bus/pci/devices", "run/lock"):
        (root / folder).mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("0f0f0f0f-0000-4000-8000-000000000001\n")
    if manifest is not None:
        (root / MANIFEST.lstrip("/")).write_text(manifest)
    done = subprocess.run(
        [sys.executable, "-m", "vgpuctl.agent", "--root", str(root), "apply", "--manifest", MANIFEST],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    result = root / "run/vgpuctl/restored.json"
    return done.returncode, done.stderr, json.loads(result.read_text()) if result.exists() else {}


def test_a_missing_card_is_left_alone_and_said(tmp_path: Path) -> None:
    gpu = {"address": "0000:41:00.0", "vendor_id": "10de", "device_id": "2235"}
    step = {"gpu": "0000:41:00.0", "step": {"op": "sriov.set", "address": "0000:41:00.0", "count": 32}}
    code, journal, result = restore(tmp_path, json.dumps({"version": 1, "gpus": [gpu], "steps": [step]}))
    assert code == 1
    assert "<3>0000:41:00.0 is left alone: there is no PCI function 0000:41:00.0" in journal
    assert result["problems"] and result["restored_boot_id"] == "0f0f0f0f-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    "manifest",
    [None, "", "[]", '{"version": 1}', '{"version": 9, "gpus": [], "steps": []}', '{"gpus": [], "steps": [{}]}'],
)
def test_a_manifest_that_cannot_be_used_changes_nothing_and_is_said(tmp_path: Path, manifest: str | None) -> None:
    code, journal, _result = restore(tmp_path, manifest)
    assert code == 1 and "manifest.json" in journal and "Traceback" not in journal


def test_an_empty_manifest_is_restored(tmp_path: Path) -> None:
    code, journal, result = restore(tmp_path, '{"version": 1, "gpus": [], "steps": []}')
    assert (code, result["problems"]) == (0, []) and "the layout is restored" in journal
