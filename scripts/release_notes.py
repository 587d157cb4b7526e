# SPDX-License-Identifier: Apache-2.0
"""Name the release of CHANGELOG.md's section `Unreleased`, and gather the fragments of docs/changes/ for it.

The section is written by hand, for users: subjects and what each lets them do. towncrier moves the fragments to
docs/changes/released/VERSION.md. With --check nothing is written, and the exit code is 1 when a section is too long.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

MOST_LINES = 40
_NEXT = "## Unreleased"
_DETAILS = "\nAll changes: "
_SUBJECT = re.compile(r"^- \*\*[A-Z][\w ]+\*\*: ", re.M)


def faults(changelog: str) -> list[str]:
    """The faults of the sections of a changelog, a sentence each."""
    told = []
    for number, section in enumerate(re.split(r"^## ", changelog, flags=re.M)[1:]):
        name, _, text = section.partition("\n")
        lines = text.partition(_DETAILS)[0].strip().splitlines()
        if number == 0 and name != "Unreleased":
            told.append(f"the first section is {name}, not Unreleased")
        if len(lines) > MOST_LINES:
            told.append(f"{name} has {len(lines)} lines; {MOST_LINES} are the most: details are for docs/changes/")
        if lines and not _SUBJECT.search(text):
            told.append(f"{name} has no subject, as `- **VMs**: what users can do now`")
        if re.search(r"^#", text, re.M):
            told.append(f"{name} has headings; a subject is a bullet")
    return told


def named(changelog: str, version: str, date: str) -> str:
    """The changelog with its section Unreleased as that of a version, below a new one that is empty.

    Raises ValueError where nothing is written there, or a section is at fault.
    """
    told = faults(changelog)
    text = changelog.partition(f"{_NEXT}\n")[2].partition("\n## ")[0]
    if not told and not text.strip():
        told = ["CHANGELOG.md has nothing under Unreleased: write what users can do now"]
    if told:
        raise ValueError("; ".join(told))
    release = f"## {version} ({date})\n\n{text.strip()}\n{_DETAILS}`docs/changes/released/{version}.md`.\n"
    return changelog.replace(f"{_NEXT}\n{text}", f"{_NEXT}\n\n{release}", 1)


def main() -> int:
    """Name the release, or with --check only look at the sections."""
    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from vgpuctl import __version__

    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        told = faults(text)
        print("\n".join(told), end="\n" * bool(told), file=sys.stderr)
        return 1 if told else 0
    try:
        release = named(text, __version__, f"{datetime.now(UTC):%Y-%m-%d}")
    except ValueError as error:
        print(f"release_notes: {error}", file=sys.stderr)
        return 1
    details = root / "docs" / "changes" / "released" / f"{__version__}.md"
    earlier = details.read_text(encoding="utf-8") if details.exists() else ""
    details.unlink(missing_ok=True)  # towncrier writes no file that is there
    if subprocess.run([sys.executable, "-m", "towncrier", "build", "--yes"], cwd=root, check=False).returncode:
        if earlier:
            details.write_text(earlier, encoding="utf-8")
        return 1
    details.write_text(f"{details.read_text(encoding='utf-8').rstrip()}\n\n{earlier}".rstrip() + "\n", encoding="utf-8")
    changelog.write_text(release, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
