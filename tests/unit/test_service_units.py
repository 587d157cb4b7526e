# SPDX-License-Identifier: Apache-2.0
"""The systemd units of vgpuctl's services: systemd accepts them, and a service that was broken into reaches little."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = {
    "vgpuctl-controller@1.service": ROOT / "templates" / "vgpuctl-controller@.service",
    "vgpuctl-web.service": ROOT / "templates" / "vgpuctl-web.service",
    "vgpuctl-exporter.service": ROOT / "vgpuctl" / "telemetry" / "shipped" / "systemd" / "vgpuctl-exporter.service",
}
# Settings that hide a service's process, so that a command takes it for dead (vgpuctl/store/liveness.py).
_HIDING = {
    "ProtectKernelTunables", "ProtectControlGroups", "ProtectProc", "ProcSubset", "PrivatePIDs", "PrivateUsers",
    "RootDirectory",
}  # fmt: skip
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture(params=sorted(UNITS))
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of a unit, as it lies in /etc/systemd/system."""
    name = str(request.param)
    return Path(shutil.copyfile(UNITS[name], tmp_path / name))


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = _analyze("verify", "--man=no", str(unit))
    assert unit.stem.partition("@")[0] not in done.stderr, done.stderr


def test_the_unit_exposes_little(unit: Path) -> None:
    # 2.3 of 10 is what a service needs that reaches hosts over the network (docs/install.md).
    limit = _analyze("security", "--offline=true", "--threshold=25", str(unit))
    assert limit.returncode == 0, limit.stdout[-300:]


def test_commands_outside_see_that_a_service_lives(unit: Path) -> None:
    settings = [line.partition("=")[0] for line in unit.read_text().splitlines() if not line.startswith("#")]
    assert [name for name in settings if name in _HIDING] == []


def test_the_services_are_restricted_alike() -> None:
    def restrictions(text: str) -> list[str]:
        start = text.index("NoNewPrivileges=")
        return [line for line in text[start : text.index("[Install]")].splitlines() if not line.startswith("#")]

    first, *others = [restrictions(path.read_text()) for path in UNITS.values()]
    assert others == [first] * len(others)
