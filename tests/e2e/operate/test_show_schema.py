# SPDX-License-Identifier: Apache-2.0
"""show-schema prints the published schemas, without inventory and store."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("kind", ["vm", "tenant", "layout"])
def test_the_printed_schema_is_the_published_one(kind: str) -> None:
    program = [sys.executable, "-m", "vgpuctl", "show-schema", kind]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == json.loads((DOCS / "schemas" / f"{kind}.json").read_text(encoding="utf-8"))
