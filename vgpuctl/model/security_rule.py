# SPDX-License-Identifier: Apache-2.0
"""One rule about the traffic of a tenant's VMs: `tcp:80@group:web`, `egress:deny:any@addresses:partners`."""

from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.errors import UsageError

ANYWHERE = "any"
"""The peer of a rule that names none: every IPv4 and IPv6 address."""
DEFAULT_PRIORITY = 100
LOWEST_PRIORITY, HIGHEST_PRIORITY = 1, 1000
DEFAULT_LOG_RATE, HIGHEST_LOG_RATE = 10, 1000
"""Packets per second that a rule logs."""
ICMP_TYPES = {
    0: "echo-reply",
    3: "destination-unreachable",
    5: "redirect",
    8: "echo-request",
    9: "router-advertisement",
    10: "router-solicitation",
    11: "time-exceeded",
    12: "parameter-problem",
    13: "timestamp-request",
    14: "timestamp-reply",
}
"""Types of ICMPv4 and their names in IANA's registry `ICMP Parameters`."""
ICMP6_TYPES = {0: 129, 3: 1, 8: 128, 11: 3, 12: 4}
"""The types of ICMPv6 of the same names (RFC 4443). Router discovery and redirects are neighbour discovery there."""
ICMP_ANSWERS = {8: 0, 13: 14}
"""The types that answer others (RFC 792)."""
_GROUP, _ADDRESSES = "group:", "addresses:"


class Protocol(StrEnum):
    """The protocols that a rule can name, with either IP version. `any` is every protocol; `icmp` has ICMPv6 too."""

    TCP = "tcp"
    UDP = "udp"
    ICMP = "icmp"
    ANY = "any"

    def has_ports(self) -> bool:
        """True if the protocol has port numbers."""
        return self in (Protocol.TCP, Protocol.UDP)


class Direction(StrEnum):
    """Whether a rule is about the traffic to its VMs, or about the traffic from them."""

    INGRESS = "ingress"
    EGRESS = "egress"


class RuleAction(StrEnum):
    """What becomes of the traffic of a rule. `reject` answers the sender, `deny` does not."""

    ALLOW = "allow"
    DENY = "deny"
    REJECT = "reject"

    @property
    def rank(self) -> int:
        """The order among rules of equal priority: deny decides before reject, reject before allow."""
        return (RuleAction.ALLOW, RuleAction.REJECT, RuleAction.DENY).index(self)


class EgressDefault(StrEnum):
    """What becomes of the traffic from a tenant's VMs that no rule is about."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True)
class Rule:
    """What becomes of some traffic to a VM, or from it.

    ports: first and last, None for all. source: the other end, whose traffic comes in or gets out: a CIDR, `group:NAME`
    or `addresses:NAME`. icmp_type: of ICMPv4, None for all; ICMPv6 has the type of the same name. priority: the highest
    one that fits decides. stateless: without connection tracking; the rule then admits the answers too. log_per_s:
    packets to log in a second, None for no log.
    """

    protocol: Protocol = Protocol.ANY
    ports: tuple[int, int] | None = None
    source: str = ANYWHERE
    icmp_type: int | None = None
    direction: Direction = Direction.INGRESS
    action: RuleAction = RuleAction.ALLOW
    priority: int = DEFAULT_PRIORITY
    stateless: bool = False
    log_per_s: int | None = None

    def __post_init__(self) -> None:
        if self.ports is not None and not self.protocol.has_ports():
            raise UsageError(f"a rule has ports, and {self.protocol} has none", hint="use tcp or udp with ports")
        if self.icmp_type is not None and self.protocol is not Protocol.ICMP:
            raise UsageError(f"a rule has an ICMP type, and {self.protocol} has none", hint="use icmp with types")
        if self.icmp_type is not None and ":" in self.network and self.icmp_type not in ICMP6_TYPES:
            raise UsageError(
                f"a rule has type {self.icmp_type} of ICMPv4 alone, and the peer {self.network}",
                hint=f"the types of both versions are {', '.join(ICMP_TYPES[one] for one in ICMP6_TYPES)}",
            )
        if not LOWEST_PRIORITY <= self.priority <= HIGHEST_PRIORITY:
            raise UsageError(
                f"a rule has priority {self.priority}",
                hint=f"use {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}; the highest priority decides first",
            )
        if self.stateless and self.action is not RuleAction.ALLOW:
            raise UsageError(
                f"a rule is stateless, and its action is {self.action}",
                hint="only allow can be stateless: deny and reject track no connection",
            )
        if self.log_per_s is not None and not 1 <= self.log_per_s <= HIGHEST_LOG_RATE:
            raise UsageError(
                f"a rule logs {self.log_per_s} packets per second", hint=f"use 1 to {HIGHEST_LOG_RATE} packets"
            )

    @property
    def network(self) -> str:
        """The network that is the other end, "" for a group and for every address."""
        return "" if self.source == ANYWHERE or self.source.startswith((_GROUP, _ADDRESSES)) else self.source

    @property
    def source_group(self) -> str | None:
        """The security group whose members are the other end, None for another peer."""
        return self.source.removeprefix(_GROUP) if self.source.startswith(_GROUP) else None

    @property
    def address_group(self) -> str | None:
        """The address group that is the other end, None for another peer."""
        return self.source.removeprefix(_ADDRESSES) if self.source.startswith(_ADDRESSES) else None

    @property
    def rank(self) -> tuple[int, int]:
        """The order in which rules decide, the highest first."""
        return self.priority, self.action.rank

    @property
    def traffic(self) -> tuple[object, ...]:
        """The traffic that the rule is about, whatever becomes of it."""
        return self.direction, self.protocol, self.ports, self.icmp_type, self.source
