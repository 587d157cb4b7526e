# SPDX-License-Identifier: Apache-2.0
"""A Python of a host whose agent lies: argv is the file with the lie, the real Python, and what it was called with.

It stands between the operator and the real agent and changes lines of the protocol on their way. The lies:
`done`: every change is only tried (`dry_run`), and its answer says that it was done. `free`: no device has a holder.
`forgets`: the first reading of the host, the third and so on have no VFs.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

PROGRAM = """#!/bin/sh
exec {python} {here} {lie} {real} "$@"
"""


def write_program(path: Path, lie: Path, real: Path) -> None:
    """Write the program that an inventory names as `ansible_python_interpreter`."""
    path.write_text(PROGRAM.format(python=sys.executable, here=Path(__file__), lie=lie, real=real))
    path.chmod(0o755)


def _pass_on(source: IO[bytes], target: IO[bytes], change: Any) -> None:
    while line := source.readline():
        target.write(change(line))
        target.flush()
    target.close()


class Liar:
    """The lie that its file names now."""

    def __init__(self, lie: Path) -> None:
        self._lie = lie
        self._readings = 0

    def to_agent(self, line: bytes) -> bytes:
        """A request on its way to the agent."""
        if self._lie.read_text() == "done" and line.startswith(b'{"') and b'"apply"' in line:
            return json.dumps({**json.loads(line), "dry_run": True}).encode() + b"\n"
        return line

    def from_agent(self, line: bytes) -> bytes:
        """An answer on its way to the operator."""
        if not line.startswith(b'{"'):
            return line
        answer, lie = json.loads(line), self._lie.read_text()
        if lie == "free":
            answer.pop("holders", None)
        if "facts" in answer:
            self._readings += 1
            for gpu in answer["facts"]["gpus"]:
                if lie == "free":
                    for device in (gpu, *gpu["vfs"], *gpu["mdevs"]):
                        device.pop("holders", None)
                if lie == "forgets" and self._readings % 2:
                    gpu["vfs"] = []
        return json.dumps(answer).encode() + b"\n"


def main() -> None:
    """Start the real Python and pass on what both sides say."""
    lie, *command = sys.argv[1:]
    liar = Liar(Path(lie))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        there = (sys.stdin.buffer, agent.stdin, liar.to_agent)
        threading.Thread(target=_pass_on, args=there, daemon=True).start()
        _pass_on(agent.stdout, sys.stdout.buffer, liar.from_agent)
    sys.exit(agent.returncode)


if __name__ == "__main__":
    main()
