# SPDX-License-Identifier: Apache-2.0
"""The programs of a network function: by systemd, which keeps them running, or started once where it does not run.

systemd 242 or newer can start a program in a namespace (NetworkNamespacePath=).
"""

import json
import re
from typing import List, Sequence

from vgpuctl.agent.facts import network_function as facts
from vgpuctl.agent.facts import services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import network_function as wire
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.network_function import FunctionProgram
from vgpuctl.agent.wire.problem_codes import ProblemCode

_TIMEOUT_S = 60.0
_WAIT_S, _PAUSE_S = 10.0, 0.1
# A program that dislikes what it reads ends within this time.
_STAYS_S = 0.3
_WANTS = f"{wire.UNIT_FOLDER}/multi-user.target.wants"
_LOADED = ".loaded"
_SPECIAL = re.compile(r'([\\"])')


def is_current(host: Host, name: str, program: FunctionProgram, files: str) -> bool:
    """True if a program runs as it should, with these files. files: their folder."""
    if services.has_systemd(host) and _unit_is_stale(host, name, program):
        return False
    return _loaded(host, name, program.name) == _wanted(program, files) and facts.is_running(host, name, program.name)


def bring(host: Host, name: str, program: FunctionProgram, files: str) -> None:
    """Start a program, let it read its files again, or restart it. Raises Problem."""
    loaded, wanted = _loaded(host, name, program.name), _wanted(program, files)
    is_stale = services.has_systemd(host) and _unit_is_stale(host, name, program)
    is_running = facts.is_running(host, name, program.name)
    if is_running and loaded == wanted and not is_stale:
        return
    can_reload = bool(program.reload or program.reload_signal) and not is_stale
    if is_running and can_reload and loaded[:1] == wanted[:1]:
        _reload(host, name, program)
    else:
        _restart(host, name, program, is_running=is_running)
    _wait_until_running(host, name, program)
    host.put_file(_mark(name, program.name), json.dumps(wanted).encode(), 0o600)


def stop(host: Host, name: str, program: str) -> None:
    """Stop a program, for good. Raises Problem."""
    unit = facts.unit_of(name, program)
    if services.has_systemd(host):
        if services.read_states(host, unit)["LoadState"] != "not-found":
            systemctl(host, "stop", "--", unit)
        removed = [host.remove_file(f"{folder}/{unit}") for folder in (_WANTS, wire.UNIT_FOLDER)]
        if any(removed):
            systemctl(host, "daemon-reload")
    else:
        _end(host, facts.read_process(host, name, program))
    host.remove_file(facts.process_file(name, program))
    host.remove_file(_mark(name, program))


def programs_of(host: Host, name: str) -> List[str]:
    """Return the programs of a function that the host knows of."""
    prefix, ending = f"{wire.UNIT_PREFIX}{name}-", ".service"
    found = {unit[len(prefix) : -len(ending)] for unit in facts.units_in(host, name) if unit.endswith(ending)}
    ending = ".pid"
    names = host.listdir_optional(f"{wire.RUN_FOLDER}/{name}") or ()
    return sorted(found | {one[: -len(ending)] for one in names if one.endswith(ending)})


def forget_loaded(host: Host, name: str) -> None:
    """Have every program of a function restarted, for what it has read and where it runs is not known."""
    for one in host.listdir_optional(f"{wire.FOLDER}/{name}") or ():
        if one.endswith(_LOADED):
            host.remove_file(f"{wire.FOLDER}/{name}/{one}")


def render_unit(host: Host, name: str, program: FunctionProgram) -> str:
    """Return the text of a program's unit."""
    argv = facts.expanded(host, program.argv, name, f"{wire.FOLDER}/{name}/files")
    words = [host.find_program(argv[0]) or argv[0], *argv[1:]]
    return f"""\
# Written by vgpuctl; the next run overwrites it.
[Unit]
Description=Network function {name} of vgpuctl: {program.name}
After={wire.RESTORE_UNIT}
StartLimitIntervalSec=0

[Service]
Type=exec
NetworkNamespacePath=/run/netns/{facts.namespace_of(name)}
ExecStart={" ".join(map(_quoted, words))}
Restart=on-failure
RestartSec=2
SuccessExitStatus=143
KillMode=mixed
LimitNOFILE=1048576
ProtectHome=yes
PrivateTmp=yes
SyslogIdentifier=vgpuctl-{name}-{program.name}

[Install]
WantedBy=multi-user.target
"""


def _quoted(word: str) -> str:
    """A word of ExecStart=, without the meaning that systemd gives to `$` and `%` (systemd.service(5))."""
    return '"' + _SPECIAL.sub(r"\\\1", word).replace("%", "%%").replace("$", "$$") + '"'


def _unit_is_stale(host: Host, name: str, program: FunctionProgram) -> bool:
    path = f"{wire.UNIT_FOLDER}/{facts.unit_of(name, program.name)}"
    is_linked = host.disk_link(f"{_WANTS}/{facts.unit_of(name, program.name)}") == path
    return not is_linked or host.read_bytes(path) != render_unit(host, name, program).encode()


def _reload(host: Host, name: str, program: FunctionProgram) -> None:
    if program.reload:
        argv = facts.inside(name, facts.expanded(host, program.reload, name, f"{wire.FOLDER}/{name}/files"))
        run(host, argv)
    elif services.has_systemd(host):
        signal = f"--signal={program.reload_signal}"
        systemctl(host, "kill", "--kill-who=main", signal, "--", facts.unit_of(name, program.name))
    else:
        host.send_signal(facts.read_process(host, name, program.name), program.reload_signal)


def _restart(host: Host, name: str, program: FunctionProgram, *, is_running: bool) -> None:
    if services.has_systemd(host):
        unit = facts.unit_of(name, program.name)
        path = f"{wire.UNIT_FOLDER}/{unit}"
        host.put_file(path, render_unit(host, name, program).encode(), 0o644)
        host.put_link(f"{_WANTS}/{unit}", path)
        systemctl(host, "daemon-reload")
        systemctl(host, "restart" if is_running else "start", "--", unit)
        return
    if is_running:
        _end(host, facts.read_process(host, name, program.name))
    argv = facts.inside(name, facts.expanded(host, program.argv, name, f"{wire.FOLDER}/{name}/files"))
    process = host.start(argv, _log(name, program.name))
    host.put_file(facts.process_file(name, program.name), f"{process}\n".encode(), 0o600)


def _wait_until_running(host: Host, name: str, program: FunctionProgram) -> None:
    """Wait until it runs, and see that it stays. Raises Problem `function-not-running`."""
    for _ in range(int(_WAIT_S / _PAUSE_S)):
        if facts.is_running(host, name, program.name):
            break
        host.wait(_PAUSE_S)
    host.wait(_STAYS_S)
    if facts.is_running(host, name, program.name):
        return
    if services.has_systemd(host):
        hint = f"journalctl -u {facts.unit_of(name, program.name)} on the host tells why"
        said = ""
    else:
        said = f": {host.read_tail(_log(name, program.name), 500).strip() or 'it said nothing'}"
        hint = f"see {_log(name, program.name)} on the host"
    raise Problem(
        ProblemCode.FUNCTION_NOT_RUNNING,
        f"{program.argv[0]} of {name} does not run after its start{said}",
        path=program.argv[0],
        hint=hint,
    )


def _end(host: Host, process: str) -> None:
    for name in ("SIGTERM", "SIGKILL"):
        if not host.is_same_process(process):
            return
        host.send_signal(process, name)
        for _ in range(int(_WAIT_S / _PAUSE_S)):
            if not host.is_same_process(process):
                return
            host.wait(_PAUSE_S)


def _wanted(program: FunctionProgram, files: str) -> List[object]:
    return [list(program.argv), files]


def _loaded(host: Host, name: str, program: str) -> List[object]:
    """What a program was last started or reloaded with."""
    try:
        found = json.loads(host.read_bytes(_mark(name, program)) or b"[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _mark(name: str, program: str) -> str:
    # It outlives a boot, at which programs read the files in use.
    return f"{wire.FOLDER}/{name}/{program}{_LOADED}"


def _log(name: str, program: str) -> str:
    return f"{wire.RUN_FOLDER}/{name}/{program}.log"


def systemctl(host: Host, *arguments: str) -> None:
    """Call systemctl. Raises Problem `systemd-refused`."""
    done = host.run([services.SYSTEMCTL, *arguments], timeout_s=_TIMEOUT_S, changes=True)
    if done.status:
        raise Problem(
            ProblemCode.SYSTEMD_REFUSED,
            f"systemctl {' '.join(arguments)} ended with {done.status}: {(done.errors + done.output).strip()[-500:]}",
            path=services.SYSTEMCTL,
        )


def run(host: Host, argv: Sequence[str], *, tolerates: str = "") -> None:
    """Run a command that builds a part of a function. Raises Problem `function-command-failed`."""
    done = host.run(argv, timeout_s=_TIMEOUT_S, changes=True)
    if done.status and not (tolerates and tolerates in done.errors):
        said = (done.errors + done.output).strip() or "nothing"
        raise Problem(
            ProblemCode.FUNCTION_COMMAND_FAILED,
            f"{argv[0]} {argv[1] if len(argv) > 1 else ''} … ended with {done.status}: {said[-500:]}",
            path=argv[0],
        )
