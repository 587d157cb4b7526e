# SPDX-License-Identifier: Apache-2.0
"""Groups and hosts as the sources declare them: membership, order, depth, and the variables written there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from vgpuctl.errors import InventoryError
from vgpuctl.model.masking import holds_command, is_secret_name
from vgpuctl.model.secret import Secret
from vgpuctl.specs.origin import EncryptedText, Origin, malformed

# A file of host_vars bears a host's name and `.yaml`; file systems take 255 bytes.
LONGEST_NAME = 250


def is_guarded(name: object, value: object) -> bool:
    """True for a variable that nobody sees: a password by its name, a text of a vault, arguments of ssh."""
    if value is None or isinstance(value, Secret):
        return False
    return isinstance(value, EncryptedText) or is_secret_name(name) or holds_command(name)


@dataclass
class VariableSet:
    """Variables by name, each with the place that set it last."""

    values: dict[Any, Any] = field(default_factory=dict)
    origins: dict[Any, Origin] = field(default_factory=dict)

    def assign(self, name: object, value: object, origin: Origin) -> None:
        """Set one variable; the last one set wins, mappings are replaced whole.

        From here on what is secret, and a command that can hold a password, is a value that no message shows.
        """
        self.values[name] = Secret(value) if is_guarded(name, value) else value
        self.origins[name] = origin

    def update(self, other: "VariableSet") -> None:
        """Lay another set over this one."""
        self.values.update(other.values)
        self.origins.update(other.origins)


@dataclass(eq=False)
class Group:
    """A group: its own hosts, its child groups in the order they were declared, and its parents."""

    name: str
    hosts: dict[str, "TreeHost"] = field(default_factory=dict)
    children: dict[str, "Group"] = field(default_factory=dict)
    parents: dict[str, "Group"] = field(default_factory=dict)
    variables: VariableSet = field(default_factory=VariableSet)
    priority: int = 1
    depth: int = 0

    def ancestors(self) -> dict[str, "Group"]:
        """Every group above this one."""
        found: dict[str, Group] = {}
        waiting = list(self.parents.values())
        while waiting:
            group = waiting.pop()
            if group.name not in found:
                found[group.name] = group
                waiting.extend(group.parents.values())
        return found

    def with_descendants(self) -> Iterator["Group"]:
        """This group, then its children, then theirs: level by level, each once."""
        seen = {self.name}
        level = [self]
        while level:
            following: list[Group] = []
            for group in level:
                yield group
                for child in group.children.values():
                    if child.name not in seen:
                        seen.add(child.name)
                        following.append(child)
            level = following

    def all_hosts(self) -> list["TreeHost"]:
        """Hosts of this group and of every group below, each once."""
        found: dict[str, TreeHost] = {}
        for group in self.with_descendants():
            for name, host in group.hosts.items():
                found.setdefault(name, host)
        return list(found.values())


@dataclass(eq=False)
class TreeHost:
    """A host with the groups that name it directly; `lineage` holds those and every group above, set by settle()."""

    name: str
    groups: dict[str, Group] = field(default_factory=dict)
    variables: VariableSet = field(default_factory=VariableSet)
    lineage: tuple[Group, ...] = ()


class InventoryTree:
    """The hosts and groups of all sources. `all` and `ungrouped` always exist."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.hosts: dict[str, TreeHost] = {}
        self.warnings: list[str] = []
        self.add_group("all")
        self.add_group("ungrouped")
        self._link(self.groups["all"], self.groups["ungrouped"])

    def add_group(self, name: str) -> Group:
        """Find or make a group."""
        if name not in self.groups:
            self.groups[name] = Group(name)
        return self.groups[name]

    def add_host(self, name: str, group: str, port: int | None, origin: Origin) -> TreeHost:
        """Find or make a host and put it into a group; a port counts only where the host is first named."""
        if not name or any(character.isspace() for character in name):
            raise malformed(origin, f"{name!r} is not a host name", hint="write one host per entry, without spaces")
        if len(name.encode(errors="replace")) > LONGEST_NAME:
            raise malformed(origin, f"a host's name has {len(name)} characters", hint=f"at most {LONGEST_NAME} bytes")
        if name not in self.hosts:
            self.hosts[name] = TreeHost(name)
            if port:
                self.hosts[name].variables.assign("ansible_port", port, origin)
        host = self.hosts[name]
        self.groups[group].hosts.setdefault(name, host)
        host.groups.setdefault(group, self.groups[group])
        return host

    def add_child(self, parent: str, child: str, origin: Origin) -> None:
        """Put a group under another. Raises InventoryError for a circle and for a parent of `ungrouped`."""
        above, below = self.groups[parent], self.groups[child]
        if parent == child:
            raise malformed(origin, f"group {parent!r} has itself as a child")
        if child == "all":
            raise malformed(origin, f"group 'all' as a child of {parent!r}: it is above every group")
        if child in above.ancestors():
            way = " > ".join(_way_down(below, above))
            raise malformed(origin, f"groups in a circle: {way} > {child}")
        if child == "ungrouped" and parent != "all":
            raise malformed(
                origin, "group 'ungrouped' has a parent", hint="name the hosts in a group of their own and use that"
            )
        self._link(above, below)

    def assign(self, entity: str, name: object, value: object, origin: Origin) -> None:
        """Set a variable of a group or, when no group has that name, of a host."""
        group = self.groups.get(entity)
        if group is not None and name == "ansible_group_priority":
            group.priority = _priority(entity, value, origin)
            return
        (group or self.hosts[entity]).variables.assign(name, value, origin)

    def settle(self) -> None:
        """Bring the tree into its final shape after the last source.

        Groups without a parent go under `all`; hosts of no group go into `ungrouped`, and hosts of another leave it;
        depths are the longest way down from `all`.
        """
        top, ungrouped = self.groups["all"], self.groups["ungrouped"]
        for group in self.groups.values():
            if group is not top and not group.parents:
                self._link(top, group)
        left_ungrouped: set[str] = set()
        for host in self.hosts.values():
            if set(host.groups) - {"all", "ungrouped"}:
                if host.groups.pop("ungrouped", None):
                    left_ungrouped.add(host.name)
                    ungrouped.hosts.pop(host.name, None)
            else:
                host.groups.setdefault("ungrouped", ungrouped)
                ungrouped.hosts.setdefault(host.name, host)
        self._measure_depths(top)
        for host in self.hosts.values():
            lineage = dict(host.groups)
            for group in host.groups.values():
                lineage.update(group.ancestors())
            if host.name in left_ungrouped:  # ansible forgets `ungrouped` here, even above another of its groups
                lineage.pop("ungrouped", None)
            host.lineage = tuple(sorted(lineage.values(), key=lambda each: (each.depth, each.priority, each.name)))
        for name in self.groups:
            if name in self.hosts:
                self.warnings.append(
                    f"{name!r} is both a group and a host: --limit {name} means the host alone, and ansible may leave"
                    " it out of `ungrouped`; rename one of them"
                )

    def _measure_depths(self, top: Group) -> None:
        unseen_parents = {name: len(group.parents) for name, group in self.groups.items()}
        ready = [top]
        while ready:
            group = ready.pop()
            for child in group.children.values():
                child.depth = max(child.depth, group.depth + 1)
                unseen_parents[child.name] -= 1
                if not unseen_parents[child.name]:
                    ready.append(child)

    @staticmethod
    def _link(above: Group, below: Group) -> None:
        above.children.setdefault(below.name, below)
        below.parents.setdefault(above.name, above)


def _way_down(start: Group, end: Group) -> list[str]:
    """Name the groups on one way from `start` down to `end`."""
    above: dict[str, str] = {}
    for group in start.with_descendants():
        for child in group.children:
            above.setdefault(child, group.name)
    way = [end.name]
    while way[-1] != start.name:
        way.append(above[way[-1]])
    return way[::-1]


def _priority(group: str, value: object, origin: Origin) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]  # whatever int() takes is a priority
    except (TypeError, ValueError, OverflowError) as exc:
        raise InventoryError(
            f"{origin}: ansible_group_priority of group {group!r} is {str(value)[:80]!a}, which is not a whole number"
        ) from exc
