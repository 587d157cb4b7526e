# SPDX-License-Identifier: Apache-2.0
"""check-hosts --prepare: missing prerequisites for people, as a shell script, or as JSON."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from vgpuctl.cli.forms.services import report_hosts, services
from vgpuctl.cli.shown.json_output import JsonError, JsonOutput, error_json
from vgpuctl.cli.shown.output import Styled, print_line, say
from vgpuctl.model.plural import counted
from vgpuctl.usecases.host.prepare_hosts import prepare_hosts

if TYPE_CHECKING:
    from vgpuctl.hosts.fleet import HostResult
    from vgpuctl.planner.doctor import Finding
    from vgpuctl.usecases.host.prepare_hosts import PreparedHost

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
_NOT_ASKED = "  the agent does not run there yet, so some checks were not made; run this again after the fixes"


class JsonPreparedHost(TypedDict):
    """Missing parts of a host before its first use. has_agent: the agent ran. error: why it did not answer."""

    host: str
    operating_system: str | None
    is_ready: bool | None
    has_agent: bool | None
    findings: "Sequence[Finding] | None"
    error: JsonError | None


_JSON: "JsonOutput[list[JsonPreparedHost]]" = JsonOutput()


def prepare_and_print(*, script: bool, as_json: bool, **where: Any) -> int:
    """Run the use case and print what it found. Returns 1 when a host lacks something that vgpuctl needs."""
    with services(**where) as opened:
        found = prepare_hosts(opened)
    if as_json:
        _JSON.print([_object(result) for result in found])
    elif script:
        _print_script(found)
    else:
        _print_findings(found)
    failures = [(result.name, result.error) for result in found if result.error is not None]
    report_hosts(failures, fine=len(found) - len(failures), what="did not answer")
    return int(any(result.value is not None and not result.value.is_ready for result in found))


def _object(result: "HostResult[PreparedHost]") -> JsonPreparedHost:
    host = result.value
    return {
        "host": result.name,
        "operating_system": host.operating_system if host else None,
        "is_ready": host.is_ready if host else None,
        "has_agent": host.has_agent if host else None,
        "findings": host.findings if host else None,
        "error": error_json(result.error),
    }


def _print_findings(found: "Sequence[HostResult[PreparedHost]]") -> None:
    for result in found:
        host = result.value
        if host is None:
            if result.error is not None:
                print_line(result.error.line_of(result.name))
            continue
        lacks = sum(str(finding.severity) == "error" for finding in host.findings)
        state = "ready" if host.is_ready else f"lacks {counted(lacks, 'thing')}"
        print_line(f"{host.host}: {state} ({host.operating_system})")
        for finding in host.findings:
            word = Styled(str(finding.severity), _COLOURS[finding.severity])
            print_line("  ", word, f" {finding.check} at {finding.subject}: {finding.read}")
            print_line(f"      fix: {finding.fix}")
        if not host.has_agent:
            print_line(_NOT_ASKED)


def _print_script(found: "Sequence[HostResult[PreparedHost]]") -> None:
    """One block per host, for a root shell there; a fix without a command is a comment."""
    for result in found:
        for line in _script_lines(result):
            print_line(line)
    say("nothing was run; paste each block into a root shell on its host")


def _script_lines(result: "HostResult[PreparedHost]") -> Iterator[str]:
    host = result.value
    if host is None:
        yield f"# {result.name}: it could not be checked"
        return
    yield f"# {host.host}: {host.operating_system}"
    for finding in host.findings:
        yield f"# {finding.check} ({finding.severity}): {finding.read}"
        if finding.fix != finding.command:
            yield f"#   {finding.fix}"
        if finding.command is not None:
            yield finding.command
    yield f"echo {shlex.quote(f'{host.host}: done; reboot if the kernel or a driver was changed')}"
    yield ""
