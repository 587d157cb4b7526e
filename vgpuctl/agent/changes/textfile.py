# SPDX-License-Identifier: Apache-2.0
"""Install or remove the timer that writes the readings for node_exporter."""

from typing import List, Optional

from vgpuctl.agent.facts import services, textfile
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import textfile as wire
from vgpuctl.agent.wire.boot import sha256
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change
from vgpuctl.agent.wire.textfile import TextfileConfig, TextfileFiles

OP = "textfile.install"
_TIMEOUT_S = 60.0


def ensure(host: Host, files: TextfileFiles, *, dry_run: bool) -> Change:
    """Bring the timer into the wanted state; a second run with the same files writes nothing.

    Raises Problem `not-found` for a folder that is not there, `write-refused`, `systemd-refused`.
    """
    before = textfile.read_config(host)
    is_there = any(host.read_bytes(path) is not None for path in wire.FILES)
    shown = "none" if not is_there else "damaged" if before is None else f"in {before.folder}"
    if not files.is_wanted:
        if is_there and not dry_run:
            _remove(host, before)
        return Change(OP, wire.FILE_NAME, shown, "none", changed=is_there)
    if not host.exists(files.folder):
        raise Problem(
            ProblemCode.NOT_FOUND,
            f"{files.folder} is not there, so node_exporter reads no files from it",
            path=files.folder,
            hint="install prometheus-node-exporter, or name the folder of its --collector.textfile.directory",
        )
    wanted = wire.contents(files, host.own_program())
    stale = [path for path, data in wanted.items() if host.digest(path) != sha256(data)]
    links = [(path, target) for path, target in wire.LINKS if host.disk_link(path) != target]
    after = f"in {files.folder}"
    if not stale and not links:
        return Change(OP, wire.FILE_NAME, after, after, changed=False)
    if not dry_run:
        if before is not None and before.folder != files.folder:
            host.remove_file(f"{before.folder}/{wire.FILE_NAME}")
        for path in stale:
            host.put_file(path, wanted[path], 0o600 if path in (wire.AGENT, wire.CONFIG) else 0o644)
        for path, target in links:
            host.put_link(path, target)
        _systemctl(host, ["daemon-reload"], ["restart", wire.TIMER_NAME])
    return Change(OP, wire.FILE_NAME, shown if shown != after else "older", after, changed=True)


def _remove(host: Host, before: Optional[TextfileConfig]) -> None:
    if services.has_systemd(host):
        # A timer that systemd does not know is stopped already.
        host.run(["systemctl", "stop", wire.TIMER_NAME], timeout_s=_TIMEOUT_S, changes=True)
    for path, target in wire.LINKS:
        if host.disk_link(path) == target:
            host.remove_file(path)
    if before is not None:
        host.remove_file(f"{before.folder}/{wire.FILE_NAME}")
    # The configuration goes last but one: it says where the written file is.
    for path in (wire.SERVICE, wire.TIMER, wire.CONFIG, wire.AGENT):
        host.remove_file(path)
    _systemctl(host, ["daemon-reload"])


def _systemctl(host: Host, *calls: List[str]) -> None:
    """Let systemd see the units; a host that systemd does not run has no use for them."""
    if not services.has_systemd(host):
        return
    for arguments in calls:
        done = host.run(["systemctl", *arguments], timeout_s=_TIMEOUT_S, changes=True)
        if done.status:
            said = done.errors.strip()
            raise Problem(
                ProblemCode.SYSTEMD_REFUSED, f"systemctl {' '.join(arguments)} failed: {said}", path=wire.TIMER
            )
