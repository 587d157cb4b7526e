# SPDX-License-Identifier: Apache-2.0
"""The readings as a file for node_exporter: installed files on the host. Python 3.9, standard library only."""

import json
from typing import Dict

from vgpuctl.agent.wire.boot import FOLDER
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.values import dataclass

AGENT = f"{FOLDER}/textfile-agent.pyz"
CONFIG = f"{FOLDER}/textfile.json"
SERVICE_NAME, TIMER_NAME = "vgpuctl-textfile.service", "vgpuctl-textfile.timer"
SERVICE, TIMER = f"{FOLDER}/{SERVICE_NAME}", f"{FOLDER}/{TIMER_NAME}"
LINKS = (
    (f"/etc/systemd/system/{SERVICE_NAME}", SERVICE),
    (f"/etc/systemd/system/{TIMER_NAME}", TIMER),
    (f"/etc/systemd/system/timers.target.wants/{TIMER_NAME}", TIMER),
)
FILES = (CONFIG, SERVICE, TIMER, AGENT)
FILE_NAME = "vgpuctl.prom"


@dataclass(frozen=True)
class TextfileFiles:
    """The wanted state. is_wanted: False removes everything, and the other fields are empty.

    host: the label `host`, its name in the inventory. folder: where node_exporter looks for files. service, timer:
    units of systemd.
    """

    is_wanted: bool
    host: str = ""
    folder: str = ""
    service: str = ""
    timer: str = ""


@dataclass(frozen=True)
class TextfileConfig:
    """The settings that the timer's run reads from CONFIG."""

    host: str
    folder: str


def contents(files: TextfileFiles, program: bytes) -> Dict[str, bytes]:
    """Return the wanted files by path. program: the agent."""
    config = TextfileConfig(files.host, files.folder)
    return {
        AGENT: program,
        SERVICE: files.service.encode(),
        TIMER: files.timer.encode(),
        CONFIG: json.dumps(to_json(config), sort_keys=True).encode() + b"\n",
    }
