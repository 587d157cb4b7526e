# SPDX-License-Identifier: Apache-2.0
"""Network functions on the host of a packet test: the real agent with a /run and a /var/lib of its own.

The agent runs in the namespace that Open vSwitch carries packets in, where its internal ports begin. There is no
systemd, so that programs are started once.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vgpuctl.agent.wire.envelope import Reply, Request, reply_from_json, request_to_json
from vgpuctl.agent.wire.network_function import FunctionFacts, NetworkFunction, SetNetworkFunction
from vgpuctl.agent.wire.steps import Change

_WEB = Path(__file__).with_name("web.py")
_ROOT = Path(__file__).parents[3]


class FunctionHost:
    """The agent on a host as a context manager. namespace: of its Open vSwitch; folder: of that one's sockets."""

    def __init__(self, namespace: str, folder: Path) -> None:
        (pid,) = (
            pid
            for pid in subprocess.run(
                ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True
            ).stdout.split()
            if Path(f"/proc/{pid}/comm").read_text().strip() == "ovs-vswitchd"
        )
        prepare = (
            "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib"
            f" && mkdir -p /run/openvswitch && echo {pid} >/run/openvswitch/ovs-vswitchd.pid"
            f" && exec {sys.executable} -m vgpuctl.agent"
        )
        command = ["nsenter", f"--net=/run/netns/{namespace}", "unshare", "--mount", "sh", "-c", prepare]
        environment = {**os.environ, "OVS_RUNDIR": str(folder), "PYTHONPATH": str(_ROOT)}
        self._agent = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=_ROOT
        )
        self._names: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in sorted(self._names):
            self.ask(Request("apply", (SetNetworkFunction(name, None),)))
        assert self._agent.stdin is not None
        self._agent.stdin.close()
        self._agent.wait(30)

    def ask(self, request: Request) -> Reply:
        """Ask the agent."""
        assert self._agent.stdin is not None and self._agent.stdout is not None
        self._agent.stdin.write(json.dumps(request_to_json(request)) + "\n")
        self._agent.stdin.flush()
        return reply_from_json(json.loads(self._agent.stdout.readline()))

    def bring(self, name: str, function: NetworkFunction | None, *, dry_run: bool = False) -> Change:
        """Have a function so, or not have it."""
        self._names.add(name)
        reply = self.ask(Request("apply", (SetNetworkFunction(name, function),), dry_run=dry_run))
        assert reply.problem is None, reply.problem
        return reply.changes[0]

    def run(self, *command: str) -> str:
        """Run a program where the agent runs its own."""
        inside = ["nsenter", f"--target={self._agent.pid}", "--mount", "--net", *command]
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def read(self, name: str | None = None) -> dict[str, FunctionFacts]:
        """The functions of the host; the one of this name answers its queries."""
        reply = self.ask(Request("functions", target=name))
        assert reply.problem is None and reply.functions is not None, reply.problem
        return {one.name: one for one in reply.functions.functions}


def begin_web(prefix: Sequence[str], *words: str) -> "subprocess.Popen[str]":
    """Start a command of web.py. prefix: what brings it into its namespace."""
    command = ["setpriv", "--pdeathsig", "KILL", *prefix, sys.executable, "-I", "-S", str(_WEB), *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def begin_server(prefix: Sequence[str], name: str, port: int, *, slow_s: float = 0.3) -> "subprocess.Popen[str]":
    """Start a web server and wait until it listens."""
    server = begin_web(prefix, "serve", name, str(port), str(slow_s))
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n", name
    return server
