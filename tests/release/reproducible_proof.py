# SPDX-License-Identifier: Apache-2.0
"""`make release` of the same commit in another folder gives the same bytes, the Debian package included."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1800)
def test_a_build_in_another_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert changed.stdout == "", "commit first: what is compared is a build of the commit"
    other = tmp_path / "in-another-folder"
    subprocess.run(["git", "clone", "--quiet", ROOT, other], check=True)
    (other / ".venv").symlink_to(ROOT / ".venv")
    done = subprocess.run(["bash", "scripts/release"], cwd=other, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = ((folder / "dist/SHA256SUMS").read_text().splitlines() for folder in (ROOT, other))
    assert any(line.endswith(".deb") for line in first)
    assert first == second
