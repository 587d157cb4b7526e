# SPDX-License-Identifier: Apache-2.0
"""Every reader of text from outside, fed with damaged text: none may fail otherwise than by its own error.

A case takes a text that a reader accepts, damages it one to six times and reads it. It fails on any exception that the
reader does not declare, after --seconds, and when what would be printed of the outcome acts on a terminal. Workers are
processes, so that a crash in C is found too; each works in a temporary folder and writes nothing outside it.

The last line of stdout is JSON. The exit code is 1 when a case failed.
Run it with `make fuzz`, or `python -m tests.proof.fuzz --cases 100000 [--seed 1] [--reader NAME] [--only NUMBER]`.
"""

import argparse
import contextlib
import io
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests.proof import fuzz_readers
from tests.proof.guest_readers import GUEST_READERS
from tests.proof.server_readers import SERVER_READERS
from vgpuctl.cli import main as cli
from vgpuctl.cli.shown.output import print_json, print_table
from vgpuctl.errors import UsageError, VgpuctlError

TOKENS = tuple(
    text.encode("utf-8", "surrogatepass")
    for text in (
        *("\0", "\x1b[2J", "\x1b]52;c;eA==\x07", "\x9b", "\u202e", "\ufeff", "\ud800", "é", "🖥", "\r\n", "\t", "\n"),
        *(" ", "--", "- ", ": ", "? ", "#", "'", '"', "\\", "{", "}", "[", "]", "[[", "{{", "{%", "&a ", "*a"),
        *("!!timestamp x", "!!float x", "!!int ''", "!!binary x", "!unsafe ", "!vault ", "!!set ", "!!python/name:os "),
        *("-", "<<: *a", "2024-99-99", "0x" + "f" * 50, "9" * 20, "9" * 400, "9" * 5000, "-1", "1e999"),
        *(".nan", ".inf", "1:59:59", "~"),
        *("null", "true", "NaN", "Infinity", "\\ud800", "\\u0000", "%h", "%", "$(id)", "`id`", ";id", "|"),
        *(
            "~nobody-here/",
            "<!DOCTYPE a>",
            "<a>",
            "</a>",
            "&#x202e;",
            "&#0;",
            "&amp;",
            "../",
            "/",
            "@",
            ",",
            "=",
            "==",
            ">=",
            "*",
            "**",
            "٣",
            "²",
        ),
    )
)
READERS = {**fuzz_readers.READERS, **GUEST_READERS, **SERVER_READERS}
REPEATED = (b"[", b"{", b"- ", b"? ", b"{a: ", b"<a>", b"(", b"1h", b"9", b"a,", b"a.", b"%", b" ", b"\n", b"[0:1]")


class Hang(BaseException):
    """A case took too long."""


def damaged(seeds: tuple[bytes, ...], source: random.Random) -> bytes:
    """Take a seed and damage it one to six times."""
    data = source.choice(seeds)
    for _ in range(source.randint(1, 6)):
        at = source.randint(0, len(data))
        end = min(len(data), at + source.choice((0, 1, 2, 8, 64)))
        kind = source.randrange(7)
        if kind == 0:
            data = data[:at] + source.choice(TOKENS) + data[end:]
        elif kind == 1:
            data = data[:at] + source.choice(TOKENS) + data[at:]
        elif kind == 2:
            data = data[:at] + bytes(source.randrange(256) for _ in range(source.randint(1, 4))) + data[end:]
        elif kind == 3:
            data = data[:at] + data[end:]
        elif kind == 4:
            data = data[:at] + data[at:end] * source.choice((2, 3, 50)) + data[end:]
        elif kind == 5:
            other = source.choice(seeds)
            data = data[:at] + other[source.randint(0, len(other)) :]
        else:
            data = data[:at] + source.choice(REPEATED) * source.choice((10, 200, 3000, 20000)) + data[at:]
    return data


def case(number: int, seed: int, only: str | None) -> tuple[str, bytes]:
    """Reader and content of one case; equal for equal seed and number."""
    source = random.Random(f"{seed}:{number}")
    names = [only] if only is not None else list(READERS)
    name = names[number % len(names)]
    return name, damaged(READERS[name].seeds, source)


def run_case(name: str, content: bytes, folder: Path, *, limit_s: float) -> tuple[str, str | None]:
    """Read once. Returns `read` or `refused`, and what was wrong, None when nothing was."""
    reader = READERS[name]
    written, told = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(told):
            outcome = "read"
            try:
                found = reader.read(content, folder)
                print_json(found if isinstance(found, (dict, list, str)) else repr(found))
                print_table(["FOUND"], [[str(found)[:200]]], empty="")
            except reader.refusals as error:
                outcome = "refused"
                shown = error if isinstance(error, VgpuctlError) else UsageError(str(error))
                cli._report(shown, [])
        text = written.getvalue() + told.getvalue()
        acting = sorted({one for one in text if not (one.isprintable() or one in "\n\t\u00a0" or one.isspace())})
        acting = [one for one in acting if ord(one) < 0x20 or 0x7F <= ord(one) <= 0x9F or 0xD800 <= ord(one) <= 0xDFFF]
        if acting or "\u202e" in text:
            return outcome, f"prints {acting!a}"
        return outcome, None
    except Hang:
        return "hung", f"took more than {limit_s:g} s"
    except BaseException as error:  # noqa: BLE001 - this is what the proof looks for
        return "failed", "".join(traceback.format_exception(error)[-3:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def work(arguments: argparse.Namespace, first: int, step: int) -> Iterator[dict[str, Any]]:
    """Run every `step`th case; yield the failures, and the counts last."""
    counts: Counter[str] = Counter()
    slowest = (0.0, -1)
    with tempfile.TemporaryDirectory(prefix="vgpuctl-fuzz-") as temporary:
        folder = Path(temporary)
        for number in range(first, arguments.cases, step):
            if arguments.only is not None and number != arguments.only:
                continue
            (folder / "case").write_text(str(number))
            name, content = case(number, arguments.seed, arguments.reader)
            begun = time.monotonic()
            outcome, wrong = run_case(name, content, folder, limit_s=arguments.seconds)
            slowest = max(slowest, (time.monotonic() - begun, number))
            counts[outcome] += 1
            if wrong is not None:
                yield {"case": number, "reader": name, "wrong": wrong, "content": ascii(content[:300])}
        yield {"counts": dict(counts), "slowest_s": round(slowest[0], 3), "slowest_case": slowest[1]}


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise Hang


def main() -> int:
    """Run all workers and report their findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of one case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--reader", choices=sorted(READERS))
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        signal.signal(signal.SIGALRM, _stop)
        for found in work(arguments, arguments.worker, arguments.workers):
            sys.__stdout__.write(json.dumps(found) + "\n")  # type: ignore[union-attr]
        return 0
    print(f"seed {arguments.seed}, {arguments.cases} cases, {len(READERS)} readers", file=sys.stderr)
    begun = time.monotonic()
    command = [sys.executable, "-m", "tests.proof.fuzz", *sys.argv[1:]]
    workers = [
        subprocess.Popen([*command, "--worker", str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(arguments.workers)
    ]
    counts: Counter[str] = Counter()
    slowest, failed = 0.0, 0
    for worker in workers:
        for line in worker.communicate()[0].splitlines():
            found = json.loads(line)
            if "counts" in found:
                counts.update(found["counts"])
                slowest = max(slowest, found["slowest_s"])
            else:
                failed += 1
                print(f"case {found['case']}, {found['reader']}: {found['wrong']}", file=sys.stderr)
                print(f"  {found['content']}", file=sys.stderr)
        if worker.returncode:
            failed += 1
            print(f"a worker ended with {worker.returncode}", file=sys.stderr)
    summary = {
        "seed": arguments.seed,
        "cases": sum(counts.values()),
        "readers": len(READERS),
        **counts,
        "failures": failed,
        "slowest_s": slowest,
        "seconds": round(time.monotonic() - begun),
    }
    print(json.dumps(summary))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
