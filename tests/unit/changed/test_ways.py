# SPDX-License-Identifier: Apache-2.0
"""The tests that a change reaches, in small checkouts of a few files each."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.changed.checkout import Checkout
from tests.changed.ways import is_test, shortest_ways, what_reads_what


def near(root: Path, files: Mapping[str, str], *changed: str) -> list[str]:
    """The test files that read any changed place, nearest first."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    gone = frozenset(place for place in changed if "::" not in place and place not in files)
    found = shortest_ways(what_reads_what(Checkout(root, frozenset(files), gone)), changed)
    return sorted(filter(is_test, found), key=lambda test: (found[test].length, test))


TEST = "tests/unit/test_one.py"


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        pytest.param(
            {"vgpuctl/fit.py": "def fit(): ...", TEST: "from vgpuctl.fit import fit\ndef test_it(): fit()"},
            "vgpuctl/fit.py::fit",
            id="an import",
        ),
        pytest.param(
            {"docs/uses/a.md": "", "b.md": "", TEST: 'def test_it(): ROOT.glob("docs/uses/*.md")'},
            "docs/uses/a.md",
            id="a pattern of files",
        ),
        pytest.param(
            {"docs/uses/a.md": "", "b.md": "", TEST: 'def test_it(): (ROOT / "docs").rglob("*.md")'},
            "docs/uses/a.md",
            id="a pattern of files at any depth",
        ),
        pytest.param(
            {
                "vgpuctl/fit.py": "def fit(): ...",
                "vgpuctl/place.py": "def place():\n    from vgpuctl.fit import fit\n    fit()",
                TEST: "from vgpuctl import place\ndef test_it(): place.place()",
            },
            "vgpuctl/fit.py::fit",
            id="an import inside a function",
        ),
        pytest.param(
            {
                "vgpuctl/errors/__init__.py": "from vgpuctl.errors.room import NoRoom",
                "vgpuctl/errors/room.py": "class NoRoom: ...",
                TEST: "from vgpuctl.errors import NoRoom\ndef test_it(): NoRoom()",
            },
            "vgpuctl/errors/room.py::NoRoom",
            id="a package that imports the name",
        ),
        pytest.param(
            {
                "vgpuctl/rows.py": "class Row:\n    state = 1",
                "vgpuctl/text.py": "def text(row: 'Row'): return row.state\nfrom vgpuctl.rows import Row",
                TEST: "from vgpuctl.text import text\ndef test_it(): text(1)",
            },
            "vgpuctl/rows.py::Row",
            id="a type in quotes",
        ),
        pytest.param(
            {"vgpuctl/leases.py": "class Leases:\n    def hold(self): ...", TEST: "def test_it(any): any.hold()"},
            "vgpuctl/leases.py::Leases.hold",
            id="a method's name",
        ),
        pytest.param(
            {
                "vgpuctl/cli/vm/create_vm.py": "",
                "vgpuctl/usecases/vm/create_vm.py": "",
                TEST: "X = ['create-vm', 'web']",
            },
            "vgpuctl/usecases/vm/create_vm.py",
            id="a command",
        ),
        pytest.param(
            {"vgpuctl/usecases/vm/create_vm.py": "", "tests/e2e/vm/test_create_vm_again.py": ""},
            "vgpuctl/usecases/vm/create_vm.py",
            id="the name of a module",
        ),
        pytest.param(
            {
                "vgpuctl/agent/changes/vf_profile.py": "def ensure(): ...",
                "vgpuctl/agent/dispatch.py": "import_module(f'vgpuctl.agent.changes.{op}')",
                TEST: "OP = 'vf-profile.set'",
            },
            "vgpuctl/agent/changes/vf_profile.py::ensure",
            id="an operation of the agent",
        ),
        pytest.param(
            {"tests/unit/conftest.py": "def fleet(): ...", TEST: "def test_it(fleet): ..."},
            "tests/unit/conftest.py::fleet",
            id="a fixture",
        ),
        pytest.param(
            {"templates/domain.xml.j2": "", TEST: "NAME = 'domain.xml.j2'"}, "templates/domain.xml.j2", id="a template"
        ),
        pytest.param(
            {"tests/data/domains/a.xml": "", TEST: "DATA = Path(__file__).parents[1] / 'data' / 'domains'"},
            "tests/data/domains/a.xml",
            id="a folder of data",
        ),
        pytest.param(
            {"vgpuctl/web/page.py": "", "vgpuctl/web/static/page.css": "", TEST: "import vgpuctl.web.page as p\np.x"},
            "vgpuctl/web/static/page.css",
            id="data that no file names",
        ),
        pytest.param({"Makefile": "", TEST: "(ROOT / 'Makefile').read_text()"}, "Makefile", id="a file of the root"),
        pytest.param({TEST: "from vgpuctl.gone import x\ndef test_it(): x()"}, "vgpuctl/gone.py", id="a removed file"),
        pytest.param({TEST: ""}, TEST, id="the test itself"),
    ],
)
def test_a_change_reaches_the_test_that_reads_it_by(files: dict[str, str], changed: str, tmp_path: Path) -> None:
    assert len(near(tmp_path, files, changed)) == 1


def test_a_change_of_one_function_is_none_of_its_neighbour(tmp_path: Path) -> None:
    files = {
        "vgpuctl/fit.py": "def fit(): ...\ndef rank(): ...",
        "tests/test_fits.py": "from vgpuctl.fit import fit\nfit()",
        "tests/test_ranks.py": "from vgpuctl import fit\nfit.rank()",
    }
    assert near(tmp_path, files, "vgpuctl/fit.py::rank") == ["tests/test_ranks.py"]


def test_who_reads_one_is_nearer_than_who_reads_many(tmp_path: Path) -> None:
    names = [f"part_{number}" for number in range(16)]
    files = {
        "vgpuctl/fit.py": "\n".join(f"def {name}(): ..." for name in names),
        "tests/test_all.py": f"from vgpuctl.fit import {', '.join(names)}\nALL = [{', '.join(names)}]",
        "tests/test_some.py": "from vgpuctl.fit import part_3\npart_3()",
    }
    assert near(tmp_path, files, "vgpuctl/fit.py::part_3") == ["tests/test_some.py", "tests/test_all.py"]


def test_a_file_that_is_no_python_has_no_parts(tmp_path: Path) -> None:
    assert near(tmp_path, {TEST: "def test_it(: ..."}, TEST) == [TEST]
