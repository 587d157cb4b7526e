# SPDX-License-Identifier: Apache-2.0
"""The agent: one JSON request a line on stdin, one JSON reply a line on stdout, until stdin closes."""

import json
import os
import queue
import signal
import sys
import threading
from typing import List, Optional

from vgpuctl import __version__
from vgpuctl.agent import time_limits
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.envelope import Problem, Reply, reply_to_json, request_from_json
from vgpuctl.agent.wire.problem_codes import ProblemCode

MAX_REQUEST_BYTES = 16 << 20


def main(argv: Optional[List[str]] = None) -> None:
    """Serve requests until stdin closes, or do the work of one of the host's own units."""
    if not (sys.argv[1:] if argv is None else argv):
        serve(Host())
        return
    # Not needed for a session over SSH, whose start it would make slower.
    import argparse

    parser = argparse.ArgumentParser(prog="vgpuctl-agent", description=__doc__)
    parser.add_argument("--root", default="/", help="folder to take for the machine's root (default /)")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    apply = commands.add_parser("apply", help="bring the host into the layout of a manifest and end")
    apply.add_argument("--manifest", required=True, metavar="FILE", help="what apply-hosts installed")
    apply.add_argument(
        "--unless-restored", action="store_true", help="end at once where this boot's last run restored everything"
    )
    textfile = commands.add_parser("textfile", help="write the readings for node_exporter and end")
    textfile.add_argument(
        "--after", action="store_true", help="run after the service: write only that it failed, where it did"
    )
    commands.add_parser("functions", help="have the network functions of this host after a boot and end")
    arguments = parser.parse_args(argv)
    if arguments.command == "apply":
        from vgpuctl.agent import restore

        host = Host(arguments.root)
        sys.exit(restore.main(host, arguments.manifest, unless_restored=arguments.unless_restored))
    if arguments.command == "textfile":
        from vgpuctl.agent import textfile_run

        sys.exit(textfile_run.main(Host(arguments.root), has_ended=arguments.after))
    if arguments.command == "functions":
        from vgpuctl.agent import functions_run

        sys.exit(functions_run.main(Host(arguments.root)))
    serve(Host(arguments.root))


def serve(host: Host) -> None:
    """Answer every line of stdin on stdout.

    Requests that were read are answered also when stdin has closed meanwhile; only waits end early then, so a
    change is never left in the middle of a write.
    """
    signal.signal(signal.SIGTERM, _end)
    output = os.dup(1)
    # Nothing but replies may reach the real stdout, whatever a library prints.
    os.dup2(2, 1)
    lines: "queue.Queue[Optional[bytes]]" = queue.Queue()
    threading.Thread(target=_read_lines, args=(host, lines), daemon=True).start()
    while True:
        line = lines.get()
        if line is None:
            break
        reply = json.dumps(reply_to_json(answer_line(host, line)), separators=(",", ":"))
        try:
            _write_all(output, reply.encode() + b"\n")
        except OSError:
            break
    sys.stderr.flush()
    # The reader may still sit in a read of stdin; there is nothing to tidy up.
    os._exit(0)


def _end(number: int, _frame: object) -> None:
    """End with the programs that were started: they are in process groups of their own."""
    time_limits.end_programs(lambda: os._exit(128 + number))


def answer_line(host: Host, line: bytes) -> Reply:
    """Answer one line; whatever goes wrong is a problem in the reply, never the agent's end."""
    try:
        if len(line) > MAX_REQUEST_BYTES:
            raise WireError("", f"a request has at most {MAX_REQUEST_BYTES} bytes")
        request = request_from_json(json.loads(line))
    except (WireError, ValueError, RecursionError) as error:
        return Reply(
            __version__, host.writes, problem=Problem(ProblemCode.BAD_REQUEST, f"the request is wrong: {error}")
        )
    try:
        from vgpuctl.agent.dispatch import answer

        return answer(host, request)
    except Exception as error:  # noqa: BLE001 - the protocol's last resort
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return Reply(__version__, host.writes, problem=Problem(ProblemCode.INTERNAL_ERROR, text))


def _read_lines(host: Host, lines: "queue.Queue[Optional[bytes]]") -> None:
    """Hand on whole lines; half a line at the end of the input is not a request."""
    rest = b""
    while True:
        try:
            data = os.read(0, 1 << 16)
        except OSError:
            data = b""
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            if line.strip():
                lines.put(line)
        if len(rest) > MAX_REQUEST_BYTES:
            lines.put(rest)
            break
    host.stopping.set()
    lines.put(None)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main()
