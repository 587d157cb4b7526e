# SPDX-License-Identifier: Apache-2.0
"""The way of a packet through OVN's flows: `ovn-trace` asks the southbound database, and its answer is read here."""

import errno
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.bounded_program import ProgramTooLate, ProgramTooLong, run_bounded
from vgpuctl.errors import OvnUnreachable
from vgpuctl.model.vpc import Vpc
from vgpuctl.ovn.northbound import NorthboundAddress, check_address
from vgpuctl.ovn.security import SecurityAcl, security_acls
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, judge

_PROGRAM = "ovn-trace"
_LONGEST_S, _MOST_BYTES = 60.0, 16 * 2**20
_CONNECT_S = 5.0
"""ovn-trace itself waits for ever for a database that is away."""
_LONGEST_LINE = 65_536
_TRACKED = 8
"""Connection tracking is asked at most so often on one way: each time the connection is new."""
_ACL_OFFSET = 1000
"""northd adds it to the priority of an ACL (OVN_ACL_PRI_OFFSET in northd.c)."""
_STAGE = re.compile(
    r"^ *\d{1,3}\. (?P<stage>ls_(?:in|out)_acl\w*) .*?: (?P<match>.*), priority (?P<priority>\d{1,5}), uuid "
)
_ANY_STAGE = re.compile(r"^ *\d{1,3}\. (?P<stage>l[sr]_(?:in|out)_\w+)")
_ROUTING = re.compile(r"^ *\d{1,3}\. lr_in_ip_routing .*?: .*ip[46]\.dst == (?P<prefix>[0-9a-f.:]{2,45}/\d{1,3}), ")
_PIPELINE = re.compile(r'^ *(?:ingress|egress)\(dp="[^"]*", inport="(?P<inport>[^"]+)"')
_OUTPUT = re.compile(r'/\* output to "(?P<port>[^"]+)", type "(?P<type>[^"]*)"')
_END_TYPES = ("", "localnet")
"""Of ports by which a packet leaves OVN; `patch` leads to the next switch or router."""
_OTHER_PACKETS = {"arp", "nd_ns", "nd_na", "icmp4", "icmp4_error", "icmp6", "icmp6_error", "tcp_reset", "sctp_abort"}
"""Headings of the ways of packets that OVN makes itself: it asks for an address, or rejects."""


@dataclass(frozen=True)
class Traced:
    """The answer of ovn-trace. outputs: ports that the packet leaves by. questions: ports by which OVN asks for the
    address of the next hop first. acls: the ACLs that were decisive on the way, in order. inports: the ports by which
    the packet enters switches and routers. last_stage: the stage of OVN's pipeline where the way ends. prefixes: of the
    routes that routers chose for it, in order.
    """

    outputs: tuple[str, ...]
    questions: tuple[str, ...]
    acls: tuple[SecurityAcl, ...]
    inports: tuple[str, ...]
    last_stage: str
    prefixes: tuple[str, ...] = ()


class PacketTracer:
    """Asks ovn-trace, which connects for each packet. address: of the southbound database."""

    def __init__(self, address: NorthboundAddress) -> None:
        self.address = check_address(address, database="southbound")

    def trace(self, switch: str, packet: str, vpcs: Sequence[Vpc]) -> Traced:
        """The way of a packet. switch: where it begins. vpcs: whose rules may be on the way.

        Raises OvnUnreachable, also where ovn-trace is not installed.
        """
        argv = [_PROGRAM, f"--db={self.address.remote}", "--no-leader-only", "--no-friendly-names", "--detailed"]
        argv += [*self._identity(), *["--ct=new"] * _TRACKED, switch, packet]
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8"}
        what = f"{_PROGRAM} gave no answer from OVN's southbound database {self.address.remote}"
        hint = "install ovn-central, or ovn-common, on this machine; check VGPUCTL_OVN_SOUTHBOUND"
        try:
            self._connect()
            ended = run_bounded(argv, environment=environment, longest_s=_LONGEST_S, most_bytes=_MOST_BYTES)
        except (OSError, ProgramTooLate, ProgramTooLong) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise OvnUnreachable(f"{what}: {said}", hint=hint) from error
        if ended.status != 0:
            raise OvnUnreachable(f"{what}: {_last_line(ended.complaint)}", hint=hint)
        return read_trace(ended.output, [acl for vpc in vpcs for acl in security_acls(vpc)])

    def _connect(self) -> None:
        """Raise OSError unless one server of the database takes a connection."""
        refusals: list[OSError] = []
        for one in self.address.remotes:
            kind, _, place = one.partition(":")
            try:
                if kind == "unix":
                    with socket.socket(socket.AF_UNIX) as local:
                        local.settimeout(_CONNECT_S)
                        local.connect(place)
                else:
                    host, _, port = place.rpartition(":")
                    if not port.isdecimal():
                        raise OSError(errno.EINVAL, f"{one} names no port")
                    socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
                return
            except OSError as error:
                refusals.append(error)
        raise refusals[-1]

    def _identity(self) -> list[str]:
        if not any(one.startswith("ssl:") for one in self.address.remotes):
            return []
        assert self.address.private_key and self.address.certificate and self.address.authority
        judge(self.address.private_key, NAMED_SECRET)
        judge(self.address.certificate, NAMED)
        judge(self.address.authority, NAMED)
        files = (self.address.private_key, self.address.certificate, self.address.authority)
        options = ("--private-key", "--certificate", "--ca-cert")
        return [f"{option}={file}" for option, file in zip(options, files, strict=True)]


def read_trace(text: str, acls: Sequence[SecurityAcl]) -> Traced:
    """Read what `ovn-trace --detailed` prints. acls: those that may be on the way."""
    outputs: dict[str, list[str]] = {"": [], "arp": []}
    found, inports, prefixes, last, packet = list[SecurityAcl](), list[str](), list[str](), "", ""
    for line in (one for one in text.splitlines() if len(one) <= _LONGEST_LINE):
        packet = line.strip() if line.strip() in _OTHER_PACKETS else packet
        if output := _OUTPUT.search(line):
            if output["type"] in _END_TYPES:
                outputs.setdefault(packet, []).append(output["port"])
        elif packet:
            continue
        elif pipeline := _PIPELINE.match(line):
            inports.append(pipeline["inport"])
        elif stage := _ANY_STAGE.match(line):
            last = stage["stage"]
            if routing := _ROUTING.match(line):
                prefixes.append(routing["prefix"])
            if of_acl := _STAGE.match(line):
                priority = int(of_acl["priority"]) - _ACL_OFFSET
                fitting = (one for one in acls if one.priority == priority and _is_of(one, of_acl["match"]))
                found.extend(one for one in fitting if one not in found[-1:])
    ways = tuple(dict.fromkeys(inports)), last, tuple(prefixes)
    return Traced(tuple(outputs[""]), tuple(outputs["arp"]), tuple(found), *ways)


def _is_of(acl: SecurityAcl, match: str) -> bool:
    """True if northd made a flow with this match of the ACL: it puts its own conditions before it."""
    return match == acl.match or match.endswith((f"({acl.match})", f"&& {acl.match}"))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it said nothing"
