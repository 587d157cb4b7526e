# SPDX-License-Identifier: Apache-2.0
"""Style, types, import floors and generated pages are tests too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON_FOLDERS = ["vgpuctl", "lab", "ansible_collections", "templates", "tests", "scripts"]


def _run(*command: str) -> str | None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, check=False, capture_output=True, text=True, timeout=280
    )
    return None if done.returncode == 0 else done.stdout + done.stderr


def _tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).exists()]


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", *PYTHON_FOLDERS),
        ("ruff", "format", "--check", *PYTHON_FOLDERS),
        ("mypy",),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_linter_is_content(command: tuple[str, ...]) -> None:
    complaint = _run(*command)
    assert complaint is None, complaint


def test_imports_point_down() -> None:
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate_docs.py", "--check"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_source_file_names_its_licence() -> None:
    sources = {".py", ".c", ".h", ".S", ".sh", ".j2"}
    for path in _tracked():
        if path.suffix not in sources or "data" in path.parts:
            continue
        wanted = "GPL-2.0-only" if "kernel_module" in path.parts and path.suffix in {".c", ".h"} else "Apache-2.0"
        head = path.read_text(encoding="utf-8")[:300]
        assert f"SPDX-License-Identifier: {wanted}" in head, f"{path.relative_to(ROOT)} lacks {wanted}"


_OF_THE_COMMAND_LINE = ("completion", "help")
"""Commands about the command line itself, which has no use case below."""


def test_one_name_runs_through_the_floors() -> None:
    """A command has a page, a function of its name in usecases, and an end-to-end test, each in its folder.

    The function is in the file of its name, or of its subject.
    """
    from vgpuctl.cli.contents import COMMANDS, FOLDERS, MADE_BY, file_name

    for name in COMMANDS:
        folder, own = FOLDERS[name], file_name(name).replace("-", "_")
        module = MADE_BY.get(name, own)
        below = ROOT / "vgpuctl/usecases" / folder
        wanted = [f"vgpuctl/cli/{folder}/{module}.py", f"docs/commands/{file_name(name)}.md"]
        is_in_subject = any(f"def {own}(" in path.read_text(encoding="utf-8") for path in below.glob("*.py"))
        if not is_in_subject and name not in _OF_THE_COMMAND_LINE:
            wanted.append(f"vgpuctl/usecases/{folder}/{module}.py")
        missing = [one for one in wanted if not (ROOT / one).exists()]
        assert not missing, f"{name}: {', '.join(missing)} is missing"
        tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "e2e" / folder).glob("test_*.py")]
        assert any(f'"{name}"'.replace(" ", '", "') in text for text in tests), (
            f"no test in tests/e2e/{folder} runs {name}"
        )


def test_every_page_of_a_command_has_its_command() -> None:
    from vgpuctl.cli.contents import COMMANDS, file_name

    pages = {path.stem for path in (ROOT / "docs" / "commands").glob("*.md")}
    assert pages - {"vgpuctl", "lab"} == set(map(file_name, COMMANDS))


def test_no_file_is_two_subjects() -> None:
    for path in _tracked():
        if path.suffix in {".py", ".c"} and "data" not in path.parts:
            lines = path.read_text(encoding="utf-8").count("\n")
            assert lines <= 450, f"{path.relative_to(ROOT)} has {lines} lines"


@pytest.mark.parametrize("package", ["vgpuctl", "lab/vgpuctl_lab"])
def test_no_class_name_stands_twice_in_a_package(package: str) -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]
    assert twice == []
