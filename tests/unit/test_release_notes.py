# SPDX-License-Identifier: Apache-2.0
"""The top of a release is short and by subject; `make release-notes` gives it its version."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.release_notes import MOST_LINES, faults, named

ROOT = Path(__file__).parents[2]
_TOP = "# Changelog\n\n<!-- releases -->\n\n## Unreleased\n"
_OLD = "\n## 0.1.0 (2026-01-01)\n\n- **VMs**: they start.\n"


def test_the_sections_of_the_changelog_are_short_and_by_subject() -> None:
    command = [sys.executable, "scripts/release_notes.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("\n- **VMs**: one.\n" + "- another.\n" * MOST_LINES, "Unreleased has 41 lines"),
        ("\n- Fixed a bug.\n", "Unreleased has no subject"),
        ("\n- **VMs**: one.\n\n### Fixed\n", "Unreleased has headings"),
    ],
)
def test_a_section_that_is_a_list_of_all_changes_is_refused(section: str, told: str) -> None:
    [fault] = faults(_TOP + section + _OLD)
    assert fault.startswith(told)
    with pytest.raises(ValueError, match=told):
        named(_TOP + section + _OLD, "0.2.0", "2026-02-01")


def test_a_release_takes_the_section_and_leaves_an_empty_one() -> None:
    made = named(f"{_TOP}\n- **GPUs**: they are shared.\n{_OLD}", "0.2.0", "2026-02-01")
    release = (
        "## 0.2.0 (2026-02-01)\n\n- **GPUs**: they are shared.\n\nAll changes: `docs/changes/released/0.2.0.md`.\n"
    )
    assert made == f"{_TOP}\n{release}{_OLD}"
    assert faults(made) == []


def test_a_release_without_a_summary_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing under Unreleased"):
        named(_TOP + _OLD, "0.2.0", "2026-02-01")
    assert faults(_OLD) == ["the first section is 0.1.0 (2026-01-01), not Unreleased"]
