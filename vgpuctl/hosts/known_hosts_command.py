# SPDX-License-Identifier: Apache-2.0
"""ssh_config's KnownHostsCommand: a program that prints lines of known_hosts, as FreeIPA's sss_ssh_knownhosts does."""

import os
import re
import select
import shlex
import subprocess
import time
from collections.abc import Mapping

from vgpuctl.errors import HostKeyUnknown
from vgpuctl.hosts.bounds import KeptErrors
from vgpuctl.hosts.ssh_config import Endpoint
from vgpuctl.trusted_programs import judge_command

_LONGEST_WAIT_S = 30.0
_MOST_BYTES = 2**20
_CHUNK = 64 * 1024
_TOKEN = re.compile(r"%(.)")


def run_known_hosts_command(endpoint: Endpoint, tokens: Mapping[str, str]) -> str:
    """Run the command as ssh does, without a shell, and return its output.

    tokens: the values of KEY_TOKENS. Raises HostKeyUnknown when the command fails, as ssh does, prints too much or
    does not end.
    """
    values = {"%": "%", **tokens}
    line = endpoint.known_hosts_command
    assert line is not None
    program, *words = shlex.split(line.reveal())
    argv = [program, *(_TOKEN.sub(lambda match: values.get(match[1], match[0]), word) for word in words)]
    judge_command(argv)
    errors = KeptErrors()
    try:
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                output, fault = _read(process, errors)
            finally:
                if process.poll() is None:
                    process.kill()
        if fault is None and process.returncode != 0:
            fault = f"ended with exit status {process.returncode}"
    except (OSError, ValueError) as exc:
        output, fault = b"", f"could not be run: {getattr(exc, 'strerror', None) or exc}"
    if fault is not None:
        known = (endpoint.name, endpoint.host, endpoint.user, str(endpoint.port))
        raise HostKeyUnknown(
            f"{endpoint.name}: KnownHostsCommand {line.shown} {fault}",
            context=line.clean(errors.read().decode("utf-8", "replace"), known=known).splitlines()[-10:],
            hint="try the command by hand: it must print lines as of known_hosts, and exit with 0",
        )
    return output.decode(errors="replace")


def _read(process: "subprocess.Popen[bytes]", errors: KeptErrors) -> tuple[bytes, str | None]:
    """Read both streams to their end and wait for the exit; return the output, and a fault if there was one."""
    assert process.stdout is not None and process.stderr is not None
    deadline = time.monotonic() + _LONGEST_WAIT_S
    output = bytearray()
    streams = [process.stdout.fileno(), process.stderr.fileno()]
    late = f"did not end within {_LONGEST_WAIT_S:g} s"
    while streams:
        ready, _, _ = select.select(streams, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return b"", late
        for stream in ready:
            data = os.read(stream, _CHUNK)
            if not data:
                streams.remove(stream)
            elif stream == process.stdout.fileno():
                output += data
            else:
                errors.add(data)
        if len(output) > _MOST_BYTES:
            return b"", f"printed more than {_MOST_BYTES // 2**20} MiB"
    try:
        process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return b"", late
    return bytes(output), None
