# SPDX-License-Identifier: Apache-2.0
"""Network functions of a host: a namespace with ports of OVN, files and programs. Python 3.9, standard library only.

The CLI says what a function is, such as a load balancer or a VPN gateway; the agent knows only this.
In the words of commands and programs, `{files}` is the folder of the function's files, `{run}` its folder below /run,
and `{name}` its name.
"""

import re
from typing import ClassVar, Optional, Tuple

from vgpuctl.agent.wire.values import dataclass, field

# Each function has its folder: its files, and what it was made from.
FOLDER = "/var/lib/vgpuctl/functions"
RUN_FOLDER = "/run/vgpuctl-functions"  # not below the folder of the lock, which is closed to programs' users
AGENT = f"{FOLDER}/agent.pyz"
MANIFEST_NAME = "function.json"
NAMESPACE_PREFIX = "vgpuctl-"
UNIT_FOLDER = "/etc/systemd/system"
UNIT_PREFIX = "vgpuctl-function-"
RESTORE_UNIT = "vgpuctl-functions.service"
# Of interfaces in Open vSwitch's database: the function that has them.
OWNER_KEY = "vgpuctl-function"

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
INTERFACE = re.compile(r"vg[a-z0-9]{1,13}")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
# Programs that the CLI's functions need beside `ip` and `ovs-vsctl`; a reading says which of them the host has.
PROGRAMS = ("haproxy", "wg", "zebra", "bgpd", "vtysh", "nft")


@dataclass(frozen=True)
class FunctionRoute:
    """One route. destination: a network, or `default`. via: the next hop."""

    destination: str
    via: str


@dataclass(frozen=True)
class FunctionPort:
    """One port of OVN in the namespace, under the same name there and in Open vSwitch.

    interface: as INTERFACE. logical_port: the name of OVN's logical switch port. addresses: with their prefix.
    """

    interface: str
    logical_port: str
    mac: str
    addresses: Tuple[str, ...] = ()
    mtu: int = 1500
    routes: Tuple[FunctionRoute, ...] = ()


@dataclass(frozen=True)
class FunctionFile:
    """One file of the function, below `{files}`. is_secret: mode 0600 instead of 0644. owner: a user's name."""

    name: str
    content: str = field(repr=False)
    is_secret: bool = False
    owner: str = "root"


@dataclass(frozen=True)
class FunctionCommand:
    """A command that runs to its end in the namespace, once its ports are up and again when files change.

    tolerates: a text of its stderr with which a failure is none, such as `File exists`. otherwise: a command in its
    place where it fails and the host has this program, such as one for what the kernel lacks.
    """

    argv: Tuple[str, ...]
    tolerates: str = ""
    otherwise: Tuple[str, ...] = ()


@dataclass(frozen=True)
class FunctionProgram:
    """A program that runs in the namespace, in the foreground, until it is stopped.

    check: a command that accepts the files, where `{files}` are the new ones; they never replace others that it
    refuses. reload_signal: makes it read its files again, such as `SIGUSR2`. reload: a command that does so instead.
    Without either, it is restarted.
    """

    name: str
    argv: Tuple[str, ...]
    check: Tuple[str, ...] = ()
    reload_signal: str = ""
    reload: Tuple[str, ...] = ()


@dataclass(frozen=True)
class FunctionQuery:
    """A question to a running function, for its state: a command, or a text to a socket of its own.

    argv: the command, run in the namespace. socket: the path, such as `{run}/stats.sock`; text: what it is sent.
    """

    name: str
    argv: Tuple[str, ...] = ()
    socket: str = ""
    text: str = ""


@dataclass(frozen=True)
class NetworkFunction:
    """The wanted state of one function. kind: a word for its owner, such as `load-balancer`.

    forwards: whether the namespace forwards packets between its interfaces. needs: programs that must be installed.
    links: interfaces in the namespace that its commands make.
    """

    kind: str
    ports: Tuple[FunctionPort, ...] = ()
    files: Tuple[FunctionFile, ...] = ()
    commands: Tuple[FunctionCommand, ...] = ()
    programs: Tuple[FunctionProgram, ...] = ()
    queries: Tuple[FunctionQuery, ...] = ()
    forwards: bool = False
    needs: Tuple[str, ...] = ()
    links: Tuple[str, ...] = ()


@dataclass(frozen=True)
class SetNetworkFunction:
    """Have the function `name` exactly as `function` says, or not have it: None removes all that it left."""

    op: ClassVar[str] = "network-function.set"
    name: str
    function: Optional[NetworkFunction] = None


@dataclass(frozen=True)
class FunctionManifest:
    """What a function was made from, as its host keeps it: without the contents of its files.

    digest: of the whole function. digests: of its files, in their order. files: the folder that they are in.
    """

    function: NetworkFunction
    digest: str
    digests: Tuple[str, ...]
    files: str


@dataclass(frozen=True)
class FunctionAnswer:
    """The answer to one query. problem: why there is none."""

    name: str
    text: str = ""
    problem: str = ""


@dataclass(frozen=True)
class FunctionFacts:
    """One function as the host has it. digest: of what it was made from, "" where that cannot be read.

    kind: "" where that cannot be read. problems: what is not as it was made, such as a program that does not run.
    left: parts without a function that were found: `namespace`, `port vg…`, `unit …`.
    """

    name: str
    kind: str = ""
    digest: str = ""
    problems: Tuple[str, ...] = ()
    left: Tuple[str, ...] = ()
    answers: Tuple[FunctionAnswer, ...] = ()


@dataclass(frozen=True)
class FunctionsReading:
    """All functions of ours on a host, by name. programs: those of PROGRAMS that the host has."""

    functions: Tuple[FunctionFacts, ...] = ()
    programs: Tuple[str, ...] = ()


def interface_of(function: str, position: int = 0) -> str:
    """Return the name of a function's interface: one that no other function has."""
    return f"vgf{sha256_of(f'{function}/{position}')[:11]}"


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    import hashlib  # loads OpenSSL, which few changes need

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
