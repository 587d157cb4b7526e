# SPDX-License-Identifier: Apache-2.0
"""Write the pages that are made from the code: docs/commands/*.md from --help, docs/errors.md from the error tree.

Also the JSON schemas under docs/schemas/ and the tables of fields inside pages written by hand.
With --check nothing is written, and the exit code is 1 when a page is not what the code says.
"""

import difflib
import functools
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from page_parts import ROOT, between
from room_pages import with_rooms
from site_pages import site_pages
from telemetry_pages import METRICS, monitoring_files, with_alerts, with_measures, with_metrics

from vgpuctl import errors
from vgpuctl.agent.wire.diagnostics import LOG_PATTERNS
from vgpuctl.agent.wire.vf_health import NVIDIA_VENDOR
from vgpuctl.catalog.lookup import boards, types_of
from vgpuctl.cli.contents import FOLDERS, MADE_BY, file_name
from vgpuctl.cli.forms.conventions import CONNECTION
from vgpuctl.cli.forms.json_schema import output_schema, schema_of
from vgpuctl.cli.lists.listing import Column, Listing
from vgpuctl.cli.main import command
from vgpuctl.cli.telemetry.top_lines import COLUMNS, TopColumn
from vgpuctl.model.capture import SUFFIX, read_capture
from vgpuctl.model.configuration import VARIABLES
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.exhaustible import EXHAUSTIBLE, Exhaustible
from vgpuctl.model.faults import FAULTS
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode
from vgpuctl.model.move_verdict import MoveKind
from vgpuctl.model.promise import Moment, PromiseRow
from vgpuctl.model.times import format_duration
from vgpuctl.planner.doctor import CHECKS
from vgpuctl.planner.doctor.prerequisites_table import PREREQUISITES
from vgpuctl.planner.moves.judge import MOVE_RULES
from vgpuctl.scheduler.advice.advice import AdviceKind
from vgpuctl.scheduler.advice.tunable import describe_tunable
from vgpuctl.sharing.xids import CLASSES
from vgpuctl.specs.chassis import CHASSIS
from vgpuctl.specs.configuration import CONTEXT
from vgpuctl.specs.fencing import FENCING
from vgpuctl.specs.field import Table
from vgpuctl.specs.fields_page import describe_fields
from vgpuctl.specs.health import HEALTH
from vgpuctl.specs.layout import GPU, LAYOUT
from vgpuctl.specs.layout_match import MATCH
from vgpuctl.specs.moves import MOVES
from vgpuctl.specs.placing import GPU_PLACING, PLACING
from vgpuctl.specs.schema import SCHEMAS
from vgpuctl.specs.telemetry import TELEMETRY
from vgpuctl.specs.vm import VM
from vgpuctl.web.page_types import PAGES

_TABLES: dict[str, tuple[Table[Any], ...]] = {
    "health": (HEALTH,),
    "maintenance": (FENCING,),
    "moves": (MOVES,),
    "vm-file": (VM,),
    "layout": (LAYOUT, GPU, MATCH),
    "monitoring": (TELEMETRY,),
    "networks": (CHASSIS,),
    "placement": (PLACING, GPU_PLACING),
}
"""Pages written by hand, and their tables of fields."""
_RECORDED = ("create-vm web-1", "list-vms\n", "create-vm render-4", "map")
"""Beginnings of the tutorial's commands that the README shows."""
_RECORDED_WIDTH = 110
OUTPUT = ROOT / "docs" / "schemas" / "output"
PAGE_SCHEMAS = ROOT / "docs" / "schemas" / "pages"
"""Schemas of what commands print with --json."""


_PLACEHOLDER = re.compile(r"\{([\w.]+)[^}]*\}")


def pages() -> dict[Path, str]:
    """Every generated page, by path."""
    context = click.Context(command, info_name="vgpuctl")
    made = site_pages(context)
    for name in command.list_commands(context):
        one = command.get_command(context, name)
        if one is not None and (schema := output_schema(one)) is not None:
            made[OUTPUT / f"{file_name(name)}.json"] = _json_text(schema)
    for name, kind in PAGES.items():
        made[PAGE_SCHEMAS / f"{name}.json"] = _json_text(
            schema_of(kind, f"JSON of the page {name} of vgpuctl serve web")
        )
    made[ROOT / "docs" / "errors.md"] = _errors_page()
    made[ROOT / "docs" / "doctor.md"] = _doctor_page()
    for name, tables in _TABLES.items():
        page = ROOT / "docs" / f"{name}.md"
        made[page] = functools.reduce(_with_table, tables, page.read_text(encoding="utf-8"))
    monitoring = ROOT / "docs" / "monitoring.md"
    made[monitoring] = functools.reduce(with_metrics, METRICS.items(), made[monitoring])
    advice = ROOT / "docs" / "advice.md"
    made[advice] = _with_advice_kinds(advice.read_text(encoding="utf-8"))
    events = ROOT / "docs" / "events.md"
    made[events] = _with_event_kinds(events.read_text(encoding="utf-8"))
    configuration = ROOT / "docs" / "configuration.md"
    made[configuration] = _with_settings(_with_connection(configuration.read_text(encoding="utf-8")))
    architecture = ROOT / "docs" / "architecture.md"
    made[architecture] = with_rooms(architecture.read_text(encoding="utf-8"))
    readme = ROOT / "README.md"
    made[readme] = _with_targets(between(readme.read_text(encoding="utf-8"), "recording", "recording", _recording()))
    contributing = ROOT / "CONTRIBUTING.md"
    made[contributing] = between(contributing.read_text(encoding="utf-8"), "tests", "tests", _test_rows())
    health = ROOT / "docs" / "health.md"
    made[health] = _with_findings(made[health])
    made[monitoring] = with_alerts(made[monitoring])
    made.update(monitoring_files())
    telemetry = ROOT / "docs" / "telemetry.md"
    made[telemetry] = with_measures(telemetry.read_text(encoding="utf-8"))
    terminal = ROOT / "docs" / "terminal.md"
    shown = between(terminal.read_text(encoding="utf-8"), "columns of top", "columns", _top_rows())
    made[terminal] = between(shown, "lists", "lists", _list_rows())
    promises = ROOT / "docs" / "promises.md"
    made[promises] = between(promises.read_text(encoding="utf-8"), "rows", "rows", _promise_rows())
    moves = ROOT / "docs" / "moves.md"
    made[moves] = between(made[moves], "limits of moves", "limits", _move_rows())
    hardware = ROOT / "docs" / "hardware.md"
    made[hardware] = between(hardware.read_text(encoding="utf-8"), "boards", "boards", _board_rows())
    made.update({ROOT / "docs" / "schemas" / f"{name}.json": _json_text(make()) for name, make in SCHEMAS.items()})
    return made


def _json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _promise_rows() -> Iterable[str]:
    """One row for each thing that a VM's owner was promised."""
    yield "| row | promised | witness | kept when | looked at |"
    yield "|---|---|---|---|---|"
    for row in PromiseRow:
        moments = ", ".join(str(one) for one in Moment if one in row.moments)
        yield f"| `{row}` | {row.promised} | {row.witness} | {row.kept} | {moments} |"


def _move_rows() -> Iterable[str]:
    """The rules about moves, by the way that they forbid."""
    yield "| code | forbids | limit | what helps | source |"
    yield "|---|---|---|---|---|"
    for rule in MOVE_RULES:
        limit = _example(rule.limit) if rule.limit != "{found}" else f"{_example(rule.witness)}: what was found"
        forbids = "leaving its host" if rule.pins else "going there" if rule.forbids is MoveKind.COLD else "a live move"
        yield f"| `{rule.code}` | {forbids} | {limit} | {_example(rule.remedy) or '-'} | {rule.source} |"


def _example(text: str) -> str:
    """A sentence about a move with names in place of its fields."""
    names = {"gpu.name": "GPU 0", "here.name": "gpu1", "there.name": "gpu2", "gpu.there_name": "its card"}
    return _PLACEHOLDER.sub(lambda one: names.get(one[1], "…"), text)


def _top_rows() -> Iterable[str]:
    yield "| view | always shown | left out, in this order | on wider terminals |"
    yield "|---|---|---|---|"
    for table, columns in COLUMNS.items():
        wide = ", ".join(f"{one.heading} from {one.wide} columns" for one in columns if one.wide)
        yield f"| {table} | {_kept_and_dropped([one for one in columns if not one.wide])} | {wide} |"


def _list_rows() -> Iterable[str]:
    yield "| list | always shown | left out, in this order |"
    yield "|---|---|---|"
    for name in sorted(one for one in FOLDERS if one.startswith("list-")):
        module = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.{MADE_BY.get(name, name.replace('-', '_'))}")
        listing: Listing[Any, Any] = module.EVENTS if name == "list-events" else module._LISTING
        yield f"| `{name}` | {_kept_and_dropped([one for one in listing.columns if not one.is_wide])} |"


def _kept_and_dropped(columns: Sequence[Column[Any] | TopColumn[Any]]) -> str:
    dropped = sorted((one for one in reversed(columns) if one.drops), key=lambda one: -one.drops)
    kept = (one for one in columns if not one.drops)
    return " | ".join(", ".join(one.heading for one in each) for each in (kept, dropped))


def _board_rows() -> Iterable[str]:
    """One row for each board: how its GPUs are shared, and where the knowledge is from."""
    captures = [read_capture(file) for file in sorted((ROOT / "tests" / "data" / "captures").glob(f"*{SUFFIX}"))]
    drivers: dict[str, set[str]] = {}
    for capture in captures:
        manifest = capture.manifest
        for one in manifest.boards:
            is_nvidia = one.vendor_id == NVIDIA_VENDOR and manifest.nvidia_driver is not None
            shown = f"{manifest.nvidia_driver}" if is_nvidia else f"kernel {manifest.kernel}"
            drivers.setdefault(one.board or "", set()).add(f"({shown})" if manifest.is_emulated else shown)
    yield "| board | generation | shared by | vGPU types | captured with driver |"
    yield "|---|---|---|---|---|"
    for key, board in sorted(boards().items(), key=lambda one: one[1].name):
        types = types_of(board)
        named = sum(one.type_id is not None for one in types)
        known = f"published text ({named} of {len(types)})" if named else "by rule"
        shared = {"none": "whole card", "mdev-pf": "mdev", "sriov-vf": "VFs"}[board.interface]
        known = "-" if board.interface == "none" else known
        shared += ", MIG" if board.mig.capable else ""
        captured = ", ".join(sorted(drivers.get(key, ()))) or "-"
        yield f"| {board.name} | {board.architecture} | {shared} | {known} | {captured} |"


def _with_table(page: str, table: Table[Any]) -> str:
    """The page with the table between its two marks. Raises ValueError for a page that lacks them."""
    begin, end = f"<!-- fields of {table.name}: made by scripts/generate_docs.py -->", "<!-- end of fields -->"
    first = page.index(begin)
    return f"{page[:first]}{begin}\n{describe_fields(table)}\n{page[page.index(end, first) :]}"


def _with_advice_kinds(page: str) -> str:
    """The page with the tables of the kinds of advice, and of those that a controller applies, between their marks."""
    rows = [f"| `{kind.value}` | {kind.meaning} |" for kind in AdviceKind]
    page = between(page, "kinds of advice", "kinds", ("| kind | meaning |", "|---|---|", *rows))
    heads = ("| resource | finding | what it is | readings | told ahead | used up |", "|---|---|---|---|---|---|")
    page = between(page, "kinds of tuning", "tuning", describe_tunable())
    return between(page, "resources that run out", "resources", (*heads, *map(_exhaustible_row, EXHAUSTIBLE)))


def _exhaustible_row(kind: Exhaustible) -> str:
    window, step, ahead = (format_duration(one) for one in (kind.window_s, kind.step_s, kind.horizon_s))
    readings = f"{window}, each {step}"
    return f"| `{kind.name}` | `{kind.fault}` | {kind.meaning} | {readings} | {ahead} | {kind.used_up:.0%} |"


def _recording() -> Iterator[str]:
    """Some commands of the tutorial with what they print, as its page has them."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    yield "```console"
    for number, wanted in enumerate(_RECORDED):
        begin = page.index(f"$ vgpuctl {wanted}")
        shown = page[begin:].split("```")[0].split("\n$ ")[0].strip()
        yield from [""] * bool(number) + [line[:_RECORDED_WIDTH] for line in shown.splitlines()]
    yield "```"


def _targets() -> dict[str, tuple[str, str]]:
    """The targets of the Makefile: what each does, and how long it takes on two idle cores, "" where that is short."""
    lines = re.findall(r"(?m)^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"))
    found = {}
    for name, text in lines:
        parts = re.fullmatch(r"(.*) \(([^()]*\b(?:minutes|hours?)\b[^()]*)\)", text)
        found[name] = (parts[1], parts[2]) if parts else (text, "")
    return found


def _test_rows() -> Iterator[str]:
    """One row for each target that takes minutes: the Makefile alone states them."""
    yield "| command | what it does | time on two idle cores |"
    yield "|---|---|---|"
    yield from (f"| `make {name}` | {text} | {time} |" for name, (text, time) in _targets().items() if time)


def _with_targets(page: str) -> str:
    """The page with what the Makefile says behind each `$ make TARGET  # `."""
    made = {name: text + f" ({time})" * bool(time) for name, (text, time) in _targets().items()}
    return re.sub(r"(?m)^(\$ make ([a-z-]+) +# ).*$", lambda line: line[1] + made[line[2]], page)


def _with_connection(page: str) -> str:
    """The page with the table of the options that help pages leave out, each once, between its two marks."""
    context = click.Context(command)
    commands = [command.get_command(context, name) for name in command.list_commands(context)]
    options = {
        one.name: one
        for found in commands
        if found is not None
        for one in found.params
        if isinstance(one, click.Option) and one.name in CONNECTION
    }
    rows = (f"| `{', '.join(one.opts)}` | {one.help} |" for one in sorted(options.values(), key=lambda one: one.opts))
    return between(page, "options of the connection", "options", ("| option | meaning |", "|---|---|", *rows))


def _with_settings(page: str) -> str:
    """The page with the table of the settings of a configuration file between its two marks."""
    rows = (f"| `{one.key}` | `{VARIABLES[one.key]}` | {one.help} |" for one in CONTEXT.fields)
    return between(page, "settings", "settings", ("| key | variable | meaning |", "|---|---|---|", *rows))


def _with_event_kinds(page: str) -> str:
    """The page with the table of the kinds of events between its two marks."""
    rows = (f"| `{kind}` | {kind.meaning} |" for kind in EventKind)
    return between(page, "kinds of events", "kinds", ("| kind | what happened |", "|---|---|", *rows))


def _with_findings(page: str) -> str:
    """The page with the tables of findings about GPUs, and of the classes of Xids."""
    rows = [
        f"| `{code}` | {FAULTS[code].meaning} | {FAULTS[code].remedy} | {_policy_for(code)} |"
        for code in HealthCode
        if code not in CLASSES
    ]
    page = between(page, "findings", "findings", ("| code | meaning | remedy | policy |", "|---|---|---|---|", *rows))
    rows = [
        f"| `{code}` | {FAULTS[code].remedy} | {_ranges(CLASSES[code])} | {_policy_for(code)} |"
        for code in HealthCode
        if code in CLASSES
    ]
    head = ("| code | remedy | Xids | policy |", "|---|---|---|---|")
    return between(page, "classes of Xids", "classes", (*head, *rows))


def _policy_for(code: HealthCode) -> str:
    return "event" if code in DEFAULT_HEALTH_POLICY.tolerate else "quarantine"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as `8, 11, 39-41`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)


def _errors_page() -> str:
    rows = []
    kinds = [getattr(errors, name) for name in errors.__all__ if name != errors.VgpuctlError.__name__]
    kinds = [kind for kind in kinds if "reference" in vars(kind)]  # without one, only its subclasses are raised
    for kind in sorted(kinds, key=lambda kind: (kind.exit_code, len(kind.__mro__), kind.reference)):
        meaning = (kind.__doc__ or "").splitlines()[0]
        rows.append(f"| `{kind.reference}` | {kind.exit_code} | {meaning} |")
    table = "\n".join(rows)
    return f"""<!-- made by scripts/generate_docs.py -->
# Errors and exit codes

An error goes to stderr as a message, lines of context and a hint; with `--json` as `{{"error": {{"reference": …}}}}`.

0 is done, or nothing to do.
1 is a difference that a `check-*` command found, never a failure.
2 is also what the command line answers to options that cannot be read.

| reference | exit code | meaning |
|---|---|---|
{table}
"""


def _doctor_page() -> str:
    rows = []
    for check in CHECKS:
        meaning = (check.find.__doc__ or "").splitlines()[0].partition(": ")[2]
        logs = "yes" if check.id in {one.check for one in LOG_PATTERNS} else ""
        rows.append(f"| `{check.id}` | {check.worst} | {meaning[:1].upper()}{meaning[1:]} | {logs} |")
    table = "\n".join(rows)
    prerequisites = "\n".join(
        f"| `{one.id}` | {one.worst} | {(one.find.__doc__ or '').splitlines()[0]} |" for one in PREREQUISITES
    )
    return f"""<!-- made by scripts/generate_docs.py -->
# Checks of check-hosts

`vgpuctl check-hosts` reads every host.
For each finding it prints the check's id, the GPU or `host`, the value read and the fix.
The ids are stable.
The table has the worst severity that a check's findings can have.
An `error` means that something declared or leased cannot work; the exit code is then 1.
A `warning` means that it may fail; a `note` is for information.
Checks with a yes in the last column also read the logs of this boot, and each VM's log since its last start.
So a finding from a log stays until the next boot or start, unless a later line or the host's state now contradicts it.

| check | at worst | meaning | logs |
|---|---|---|---|
{table}

The health of the GPUs is read too.
A state that lasts, such as a memory row that waits for its spare, is a finding.
So is the cause of a quarantine that lasts, such as an Xid.
Code and remedy are those of [health.md](health.md#findings).
It is an `error` if the host's policy puts the GPU into quarantine for it, else a `note`.
The event and the alert ([monitoring.md](monitoring.md#alerts)) of the same state have the same id and remedy.

If a host's libvirt does not answer, the host has the finding `libvirt` and is checked without its domains.

## Before the first use: check-hosts --prepare

`vgpuctl check-hosts --prepare` lists the missing prerequisites of each host and changes nothing.
Each line has the command that fixes it in the host's distribution.
It knows Debian and Ubuntu; Fedora, RHEL and its clones; SUSE.
It needs a login with a shell, but neither Python nor root: plain `sh` reads files that every login may read.
If sudo and the agent work, all the checks above run too; a finding of both is printed once.
`--script` prints the commands, one block per host, for a root shell on that host; vgpuctl runs none of them.
The fields of `--json`: `host`, `operating_system`, `is_ready`, `has_agent` (the agent ran), `findings` and `error`.
The exit code is 1 if a host lacks something that vgpuctl needs (an `error`).
If a host could not be reached, it is the code of that failure.
Commands for packages, boot loaders and firewalls follow the distributions' documentation; not every one was tried.

| prerequisite | at worst | meaning |
|---|---|---|
{prerequisites}
"""


def main() -> int:
    """Write or check every page."""
    check = "--check" in sys.argv[1:]
    stale = 0
    for path, wanted in pages().items():
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if found == wanted:
            continue
        stale += 1
        if check:
            difference = difflib.unified_diff(
                found.splitlines(), wanted.splitlines(), str(path), "made now", lineterm=""
            )
            print("\n".join(difference))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    if check and stale:
        print(f"{stale} pages are stale: run `make docs`")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
