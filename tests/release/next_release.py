# SPDX-License-Identifier: Apache-2.0
"""A made-up next release, built as a wheel: this version's files with another number and one migration more.

Nothing was released before this version, so an upgrade of what is there is an upgrade to what may come.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.e2e.operator import Operator
from tests.next_version import SCHEMA, VERSION
from vgpuctl import __version__
from vgpuctl.store.schema import SCHEMA_VERSION

ROOT = Path(__file__).parents[2]
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--disk", "64MiB")
_MIGRATION = "vgpuctl/store/migrations/versions"


def build_next_release(folder: Path) -> Path:
    """Build its wheels of the product and the lab. Returns the folder where they are unpacked."""
    tree, wheels, installed = folder / "tree", folder / "wheels", folder / "installed"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith(("tests/", "docs/")) and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    _change(tree / "vgpuctl/__init__.py", lambda text: text.replace(f'"{__version__}"', f'"{VERSION}"'))
    _change(tree / "vgpuctl/store/schema/__init__.py", lambda text: text.replace(f'"{SCHEMA_VERSION}"', f'"{SCHEMA}"'))
    made_up = (ROOT / "tests/next_version/versions/made_up.py").read_text(encoding="utf-8")
    lines = [line for line in made_up.splitlines() if not line.startswith(("from tests", "from vgpuctl"))]
    text = (
        "\n".join(lines).replace("= SCHEMA_VERSION", f'= "{SCHEMA_VERSION}"').replace("= SCHEMA\n", f'= "{SCHEMA}"\n')
    )
    (tree / _MIGRATION / f"v{SCHEMA}_made_up.py").write_text(f"{text}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    built = subprocess.run(
        [*command, "--wheel-dir", str(wheels), str(tree), str(tree / "lab")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    for wheel in wheels.iterdir():
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(installed)
    return installed


def _change(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text(encoding="utf-8")
    after = change(before)
    assert after != before, path
    path.write_text(after, encoding="utf-8")


def fill(operator: Operator) -> None:
    """Create one of each object that an upgrade must keep, such as VMs, quotas and a reservation."""
    home = operator.home
    (home / "user-data").write_text("#cloud-config\nhostname: nightly\n")
    lines = (
        "create-tenant acme",
        "create-tenant umbrella",
        "set-quota acme vms=9 shares:A40-8Q=6",
        "create-network back --tenant acme --cidr 10.20.0.0/24 --host sim-001",
        f"create-vm web-1 --tenant acme --gpu A40-24Q --network none {' '.join(SIZE)}",
        f"create-vm web-2 --tenant acme --gpu A40-24Q --network none --for 8h {' '.join(SIZE)}",
        f"create-vm idle --tenant umbrella --gpu A40-24Q --network none {' '.join(SIZE)}",
        "stop-vm idle --tenant umbrella --timeout 0",
        f"create-vm nightly --tenant umbrella --gpu A40-48Q --network none --for 8h --queue"
        f" --user-data {home}/user-data {' '.join(SIZE)}",
        "reserve batch --tenant acme --gpu A40-24Q --from 2036-12-01T00:00 --until 2036-12-02T00:00",
        "cordon-host sim-002 --reason memory",
    )
    for line in lines:
        operator.does(*line.split())
