# SPDX-License-Identifier: Apache-2.0
"""vgpuctl 0.1.0, built from the repository's history, and a store that it filled on simulated hosts.

0.1.0 has no files of its own: it is every state before 0.2.0. The one here is the last with schema 0023, so that an
upgrade has something to migrate. Written to tests/data/stores by `python -m tests.release.first_release`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMIT = "abdeb08d"
SCHEMA = "0023"
ROOT = Path(__file__).parents[2]
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--disk", "64MiB")
DUMPS = ROOT / "tests" / "data" / "stores"


class FirstRelease:
    """Its wheels, unpacked, with the libraries of this environment."""

    def __init__(self, folder: Path) -> None:
        tree, wheels = folder / "tree", folder / "wheels"
        self.installed = folder / "installed"
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=False)
        assert archive.returncode == 0, f"the history has no {COMMIT}: fetch all of it ({archive.stderr.decode()})"
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
        built = subprocess.run(
            [*command, "--wheel-dir", str(wheels), str(tree), str(tree / "lab")],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert built.returncode == 0, built.stderr
        for wheel in wheels.iterdir():
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(self.installed)

    def command(self, *arguments: str) -> list[str]:
        """A command line of it, for `environment`."""
        return [sys.executable, "-P", "-m", "vgpuctl", *arguments]

    def environment(self, home: Path, database: str) -> dict[str, str]:
        """The environment of its commands: the lab's folder, inventory, store and home are the test's own."""
        lab = home / "lab"
        key = {"VGPUCTL_KEY_FILE": str(home / "key")} if database.startswith("postgresql") else {}
        return {
            "PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1",
            "PYTHONPATH": str(self.installed), "VGPUCTL_LAB_FOLDER": str(lab), "VGPUCTL_DATABASE_URL": database,
            "VGPUCTL_INVENTORY": str(lab / "simulated" / "inventory.yml"), "VGPUCTL_COMMAND_TIMEOUT": "300",
            **key,
        }  # fmt: skip

    def run(self, home: Path, database: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments), env=self.environment(home, database), cwd=home,
            capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip

    def does(self, home: Path, database: str, *arguments: str) -> str:
        """Run a command that must succeed. Returns its output."""
        done = self.run(home, database, *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def hosts(self, home: Path, database: str) -> Iterator[None]:
        """Two simulated hosts with one A40 each; they end with the test."""
        self.does(home, database, "lab", "up", "--simulated", "2")
        try:
            yield
        finally:
            self.does(home, database, "lab", "down", "--purge")

    def fill(self, home: Path, database: str) -> None:
        """Tenants, quotas, a pool, running and stopped VMs, a queued one with a secret, a reservation, a cordon."""
        (home / "key").write_text("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
        (home / "key").chmod(0o600)
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
            self.does(home, database, *line.split())

    @contextmanager
    def controller(self, home: Path, database: str) -> Iterator["subprocess.Popen[str]"]:
        """A running controller of it, ended by SIGTERM."""
        process = subprocess.Popen(
            self.command("controller"), env=self.environment(home, database), cwd=home, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            time.sleep(15)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)


def _write_dumps() -> None:
    """Write what FirstRelease.fill leaves on both databases, as SQL."""
    import sqlite3

    from tests.postgres_fixture import LocalPostgres, find_programs

    programs = find_programs()
    assert programs is not None, "PostgreSQL is not installed"
    DUMPS.mkdir(parents=True, exist_ok=True)
    head = f"-- Store of vgpuctl 0.1.0 (commit {COMMIT}, schema {SCHEMA}), written by tests/release/first_release.py.\n"
    with tempfile.TemporaryDirectory() as made, LocalPostgres(programs) as server, server.create_database() as url:
        release = FirstRelease(Path(made) / "release")
        for name, database in (("postgresql", url), ("sqlite", f"sqlite:///{made}/store.db")):
            home = Path(made) / name
            home.mkdir()
            with release.hosts(home, database):
                release.fill(home, database)
            if name == "sqlite":
                with sqlite3.connect(f"{made}/store.db") as opened:
                    text = "\n".join(opened.iterdump())
            else:
                dump = [str(programs / "pg_dump"), "--inserts", "--no-owner", "--no-privileges", url]
                text = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
            (DUMPS / f"0.1.0-{name}.sql").write_text(head + text.replace(made, "/tmp/first-release"))


if __name__ == "__main__":
    _write_dumps()
