# SPDX-License-Identifier: Apache-2.0
"""An operator at a shell: runs the real command with a store and an inventory of the test's own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from tests.e2e.output_schemas import check_output
from tests.e2e.warm_start import warm_start


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Operator:
    """Runs `vgpuctl`; nothing of the developer's own settings leaks in.

    without: variables of `environment` that are left out.
    """

    home: Path
    inventory: Path
    database: str
    variables: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()

    @property
    def command(self) -> list[str]:
        """The program and its first arguments."""
        return [sys.executable, "-m", "vgpuctl"]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the command: the test's inventory, store and home."""
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            # The agent that a run has packed is taken by the next one, as by any user's.
            "XDG_CACHE_HOME": str(user_cache_path()),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "VGPUCTL_INVENTORY": str(self.inventory),
            "VGPUCTL_DATABASE_URL": self.database,
            "PYTHONWARNINGS": "error",
            # An emulated host shares two processors with all other tests.
            "VGPUCTL_COMMAND_TIMEOUT": "300",
            "VGPUCTL_CLUSTER_NETWORKS": "127.0.0.0/8",
            # No file of the developer's own counts.
            "VGPUCTL_CONFIG": "",
            **self.variables,
        }
        return {name: value for name, value in given.items() if name not in self.without}

    def at(self, now: float) -> "Operator":
        """The same operator whose commands read this from the clock, in seconds since the epoch, all the time."""
        return replace(self, variables={**self.variables, "VGPUCTL_TESTS_NOW": repr(now)})

    def later(self, seconds: float) -> "Operator":
        """The same operator so much later: what a test would have to wait for has happened."""
        return self.at(time.time() + seconds)

    def start(
        self, *arguments: str, program: Sequence[str] = ("-m", "vgpuctl"), **options: Any
    ) -> "subprocess.Popen[str]":
        """Start a command and leave it running."""
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            **{"stderr": subprocess.PIPE, **options},
        )

    def run(self, *arguments: str, program: Sequence[str] = (), timeout_s: float = 400) -> Done:
        """Run a command to its end. Its JSON must fit the command's published schema."""
        _, module = program or ("-m", "tests.e2e.other_clock" if "VGPUCTL_TESTS_NOW" in self.variables else "vgpuctl")
        code, out, err = warm_start().run(module, arguments, self.environment, timeout_s)
        assert "Traceback" not in err, err
        check_output(arguments, out)
        return Done(code, out, err)

    def run_on_terminal(self, *arguments: str) -> str:
        """Run a command to its end on a terminal. Returns what it wrote there, on stdout and stderr."""
        environment = {**self.environment, "TERM": "xterm-256color"}
        return warm_start().run_on_terminal("vgpuctl", arguments, environment, 400)[1]

    def does(self, *arguments: str, timeout_s: float = 400) -> Done:
        """Run a command that must succeed."""
        done = self.run(*arguments, timeout_s=timeout_s)
        assert done.code == 0, f"vgpuctl {' '.join(arguments)} ended with {done.code}\n{done.out}\n{done.err}"
        return done

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed, with --json, and read what it printed."""
        return json.loads(self.does(*arguments, "--json").out)

    def ends(self, code: int, *arguments: str) -> Any:
        """Run a command that must end with this exit code, with --json, and read what it printed."""
        done = self.run(*arguments, "--json")
        assert done.code == code, f"vgpuctl {' '.join(arguments)} ended with {done.code}\n{done.out}\n{done.err}"
        return json.loads(done.out)

    def is_refused(self, *arguments: str) -> Mapping[str, Any]:
        """Run a command that must fail with an error for people, and return it as JSON with its exit code."""
        done = self.run(*arguments, "--json")
        assert done.code != 0, f"vgpuctl {' '.join(arguments)} succeeded\n{done.out}"
        lines = [line for line in done.err.splitlines() if line.startswith('{"error"')]
        if not lines:
            return {"exit_code": done.code, "message": done.err, "reference": "usage", "hint": None, "context": []}
        error: dict[str, Any] = json.loads(lines[-1])["error"]
        return {**error, "exit_code": done.code}

    def delete_all_vms(self) -> None:
        """Delete every VM without waiting for its guest."""
        self.does("delete-vm", "--all", "--all-tenants", "--yes", "--timeout", "0")


def forgetful(operator: Operator, home: Path, *tenants: str) -> Operator:
    """The same operator with a store that knows these tenants and nothing else."""
    other = replace(operator, database=f"sqlite:///{home}/other.db")
    for tenant in tenants:
        other.does("create-tenant", tenant)
    return other
