# SPDX-License-Identifier: Apache-2.0
"""The line that goes to the agent, the line that comes back, and the problem it may carry.

Python 3.9, standard library only. One request is one JSON line, one reply is one JSON line.
"""

from typing import Any, Dict, Optional, Tuple

from vgpuctl.agent.wire.boot import BootFiles
from vgpuctl.agent.wire.decode import (
    WireError,
    from_json,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_str,
    step_from_json,
    step_to_json,
    to_json,
)
from vgpuctl.agent.wire.diagnostics import HostDiagnostics
from vgpuctl.agent.wire.facts import Holder, HostFacts
from vgpuctl.agent.wire.flows import FlowCounts, FlowQuestion
from vgpuctl.agent.wire.guest_state import GuestState, StateOrder
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.agent.wire.image import ImageFile
from vgpuctl.agent.wire.migration import VgpuComparison, VgpuCompatibility
from vgpuctl.agent.wire.network_function import FunctionsReading
from vgpuctl.agent.wire.ovn import CertificateFiles, TunnelProbe
from vgpuctl.agent.wire.packet_log import LogQuestion, PacketLog
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.agent.wire.steps import Change, Step
from vgpuctl.agent.wire.textfile import TextfileFiles
from vgpuctl.agent.wire.values import dataclass

PROTOCOL = 1
CALLS = (
    "ping",
    "facts",
    "apply",
    "holders",
    "diagnostics",
    "boot",
    "certificate",
    "textfile",
    "image",
    "tunnels",
    "health",
    "facts-and-health",
    "readings",
    "guest-state",
    "record",
    "compatibility",
    "functions",
    "flows",
    "packet-log",
)


@dataclass(eq=False)
class Problem(Exception):
    """Why the agent refused or failed: raised inside the agent, a value in its reply.

    path: the file written or read, or the program run. errno: the kernel's symbol,
    such as `EIO`. rm_code: NVIDIA's resource manager code from the kernel log, such as `0x56`.
    kernel_lines: what the kernel logged during the attempt. hint: what to do next.
    """

    code: ProblemCode
    message: str
    path: Optional[str] = None
    errno: Optional[str] = None
    rm_code: Optional[str] = None
    kernel_lines: Tuple[str, ...] = ()
    hint: Optional[str] = None

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Request:
    """A request to the agent.

    call: one of CALLS. steps belong to `apply`, boot to `boot`, certificate and textfile to their own, dry_run to all
    four. target belongs to `holders` (a PCI address or an mdev's UUID), to `image` (an absolute path), and to
    `functions` (a function that is also asked its queries; None to list all).
    with_digest belongs to `image`, state to `guest-state`, comparison to `compatibility`, counted to `flows`, log to
    `packet-log`.
    """

    call: str
    steps: Tuple[Step, ...] = ()
    dry_run: bool = False
    target: Optional[str] = None
    boot: Optional[BootFiles] = None
    certificate: Optional[CertificateFiles] = None
    with_digest: bool = False
    textfile: Optional[TextfileFiles] = None
    state: Optional[StateOrder] = None
    comparison: Optional[VgpuComparison] = None
    counted: Optional[FlowQuestion] = None
    log: Optional[LogQuestion] = None


@dataclass(frozen=True)
class Reply:
    """An answer of the agent.

    writes: how often this agent process has written to the machine so far. changes: what `apply` did, also
    before a problem stopped it. recording: of `record`, compressed JSON in Base64.
    """

    agent: str
    writes: int = 0
    facts: Optional[HostFacts] = None
    changes: Tuple[Change, ...] = ()
    holders: Tuple[Holder, ...] = ()
    problem: Optional[Problem] = None
    diagnostics: Optional[HostDiagnostics] = None
    image: Optional[ImageFile] = None
    tunnels: Optional[TunnelProbe] = None
    health: Optional[HostHealth] = None
    readings: Optional[HostReadings] = None
    state: Optional[GuestState] = None
    recording: Optional[str] = None
    compatibility: Optional[VgpuCompatibility] = None
    functions: Optional[FunctionsReading] = None
    flows: Optional[FlowCounts] = None
    log: Optional[PacketLog] = None


def request_to_json(request: Request) -> Dict[str, Any]:
    """Turn a request into its wire form."""
    obj: Dict[str, Any] = {"protocol": PROTOCOL, "call": request.call}
    if request.call == "apply":
        obj["dry_run"] = request.dry_run
        obj["steps"] = [step_to_json(step) for step in request.steps]
    if request.boot is not None:
        obj["dry_run"] = request.dry_run
        obj["boot"] = to_json(request.boot)
    if request.certificate is not None:
        obj["dry_run"] = request.dry_run
        obj["certificate"] = to_json(request.certificate)
    if request.textfile is not None:
        obj["dry_run"] = request.dry_run
        obj["textfile"] = to_json(request.textfile)
    if request.state is not None:
        obj["state"] = to_json(request.state)
    if request.comparison is not None:
        obj["comparison"] = to_json(request.comparison)
    if request.target is not None:
        obj["target"] = request.target
    if request.counted is not None:
        obj["counted"] = to_json(request.counted)
    if request.log is not None:
        obj["log"] = to_json(request.log)
    if request.call == "image":
        obj["with_digest"] = request.with_digest
    return obj


def request_from_json(value: object) -> Request:
    """Read a request. Raises WireError that names the field, also for another protocol or call."""
    obj = get_object(value)
    _check_protocol(get_int(obj, "protocol"))
    call = get_str(obj, "call")
    if call not in CALLS:
        raise WireError("call", f"{call!r} is none of {', '.join(CALLS)}")
    wanted = {
        "apply": {"protocol", "call", "steps", "dry_run"},
        "holders": {"protocol", "call", "target"},
        "image": {"protocol", "call", "target", "with_digest"},
        "functions": {"protocol", "call", "target"},
        "boot": {"protocol", "call", "boot", "dry_run"},
        "certificate": {"protocol", "call", "certificate", "dry_run"},
        "textfile": {"protocol", "call", "textfile", "dry_run"},
        "guest-state": {"protocol", "call", "state"},
        "compatibility": {"protocol", "call", "comparison"},
        "flows": {"protocol", "call", "counted"},
        "packet-log": {"protocol", "call", "log"},
    }.get(call, {"protocol", "call"})
    for key in obj:
        if key not in wanted:
            raise WireError(str(key), f"call {call!r} has no such field")
    steps = get_list(obj, "steps") if call == "apply" else []
    return Request(
        call,
        tuple(step_from_json(step, f"steps[{number}]") for number, step in enumerate(steps)),
        get_bool(obj, "dry_run") if "dry_run" in obj else False,
        get_str(obj, "target") if call in ("holders", "image") or "target" in obj else None,
        from_json(BootFiles, obj.get("boot"), "boot") if call == "boot" else None,
        from_json(CertificateFiles, obj.get("certificate"), "certificate") if call == "certificate" else None,
        get_bool(obj, "with_digest") if call == "image" else False,
        from_json(TextfileFiles, obj.get("textfile"), "textfile") if call == "textfile" else None,
        from_json(StateOrder, obj.get("state"), "state") if call == "guest-state" else None,
        from_json(VgpuComparison, obj.get("comparison"), "comparison") if call == "compatibility" else None,
        from_json(FlowQuestion, obj.get("counted"), "counted") if call == "flows" else None,
        from_json(LogQuestion, obj.get("log"), "log") if call == "packet-log" else None,
    )


def reply_to_json(reply: Reply) -> Dict[str, Any]:
    """Turn a reply into its wire form; fields that are empty stay out."""
    obj = {key: item for key, item in to_json(reply).items() if item not in (None, [])}
    return {"protocol": PROTOCOL, **obj}


def reply_from_json(value: object) -> Reply:
    """Read a reply. Raises WireError that names the field, also for another protocol."""
    obj = dict(get_object(value))
    _check_protocol(get_int(obj, "protocol"))
    del obj["protocol"]
    return from_json(Reply, obj)


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise WireError("protocol", f"is {protocol}, this side speaks {PROTOCOL}")
