# SPDX-License-Identifier: Apache-2.0
"""Every inventory under tests/data/inventory is listed exactly as the installed ansible-core lists it.

A case is a folder with `case.json`: sources (and limit, working_folder) and the files they name.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.inventory import load_inventory

DATA = Path(__file__).parents[2] / "data" / "inventory"
CASES = sorted(path.parent.name for path in DATA.glob("*/case.json"))


def _case(name: str) -> tuple[Path, list[str], str | None]:
    described = json.loads((DATA / name / "case.json").read_text())
    folder = DATA / name / described.get("working_folder", ".")
    sources = [text if "," in text else str(DATA / name / text) for text in described["sources"]]
    limit = described.get("limit")
    return folder, sources, f"@{DATA / name / limit[1:]}" if limit and limit.startswith("@") else limit


def _listed(text: str) -> Any:
    listing = json.loads(text)
    listing["_meta"].setdefault("profile", "inventory_legacy")  # ansible-core before 2.19 does not print it
    return json.dumps(listing, indent=4, ensure_ascii=False)


@pytest.fixture(scope="module")
def printed_by_ansible(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    asked = {}
    for name in CASES:
        folder, sources, limit = _case(name)
        arguments = [word for source in sources for word in ("-i", source)] + (["--limit", limit] if limit else [])
        asked[name] = {"folder": str(folder), "arguments": arguments}
    home = tmp_path_factory.mktemp("ansible")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"HOME": str(home), "ANSIBLE_LOCALHOST_WARNING": "0", "LC_ALL": "C.UTF-8"}
    answered = subprocess.run(
        [sys.executable, Path(__file__).with_name("ansible_reference.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr
    printed: dict[str, str] = json.loads(answered.stdout)
    return printed


@pytest.mark.parametrize("name", CASES)
def test_listing_is_the_one_of_ansible(
    name: str, printed_by_ansible: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sources, limit = _case(name)
    monkeypatch.chdir(folder)
    ours = json.dumps(load_inventory(sources).as_ansible_list(limit, with_secrets=True), indent=4, ensure_ascii=False)
    assert ours == _listed(printed_by_ansible[name])


def test_there_are_many_cases() -> None:
    assert len(CASES) >= 50
