# SPDX-License-Identifier: Apache-2.0
"""The inventory: hosts, groups and variables of all sources, with ansible's precedence.

The meaning of variables (host_variables.py) is loaded with the first host that is asked for: a missing source and the
names of the hosts need none of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.inventory import connection, listing, patterns, sources
from vgpuctl.inventory.ansible_source import InventoryReader, read_by_ansible
from vgpuctl.inventory.tree import Group, InventoryTree, TreeHost, VariableSet
from vgpuctl.inventory.variable_files import BESIDE, VariableFiles
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.move_link import comparable_address

if TYPE_CHECKING:
    from vgpuctl.model.fencing import Fencing
    from vgpuctl.model.health import HealthPolicy
    from vgpuctl.model.host_constraints import HostConstraints
    from vgpuctl.model.layout import HostLayout
    from vgpuctl.model.move_link import MoveLink

Read = TypeVar("Read")


def load_inventory(
    inventory_sources: Sequence[str | Path], reader: InventoryReader = InventoryReader.VGPUCTL
) -> "Inventory":
    """Read inventory files, folders and comma lists (`gpu1,gpu2,`); where they disagree the later one wins.

    As with ansible, `group_vars` and `host_vars` count beside each source, and in the working folder on top of those,
    if a source lies in it: a folder that one has only entered may come from somebody else.
    reader: with `ansible` the installed ansible-core reads all of it, also scripts and plugins.
    Raises InventoryError with file, line and what is wrong.
    """
    wanted = [sources.resolve(source) for source in inventory_sources if str(source)]
    if not wanted:
        raise InventoryError("no inventory was given", hint="use -i PATH or set VGPUCTL_INVENTORY")
    working = sources.folder_of_sources(wanted)
    if reader is InventoryReader.ANSIBLE:
        tree, decrypt = read_by_ansible(wanted, working or sources.folder_of(wanted))
        tree.warnings += sources.left_out(working, (*BESIDE, "ansible.cfg"), wanted)
        return Inventory(tree, decrypt)
    tree = InventoryTree()
    beside: list[Path] = []
    users: dict[Path, frozenset[int]] = {}
    for source in wanted:
        trusted = sources.add_source(source, tree)
        if not sources.is_comma_list(source):
            beside.append(Path(source) if Path(source).is_dir() else Path(source).parent)
            users[beside[-1].resolve()] = trusted
    tree.settle()
    tree.warnings += sources.left_out(working, BESIDE, wanted)
    folders = [folder.resolve() for folder in (*beside, *([working] if working else []))]
    return Inventory(tree, files=[VariableFiles(folder, users.get(folder, frozenset())) for folder in folders])


def reader_named(text: str | None) -> InventoryReader:
    """The reader of a name; vgpuctl's own without one. Raises UsageError."""
    if text is not None and text not in tuple(InventoryReader):
        raise UsageError(f"{text[:40]!a} reads no inventory", hint=f"use {' or '.join(InventoryReader)}")
    return InventoryReader.VGPUCTL if text is None else InventoryReader(text)


class Inventory:
    """Hosts, groups and variables. Variable files are read when a host's variables are first asked for.

    decrypt: opens the texts of vaults in variables of the login. files: weakest first.
    """

    def __init__(
        self, tree: InventoryTree, decrypt: Callable[[str], str] | None = None, *, files: Sequence[VariableFiles] = ()
    ) -> None:
        self._tree = tree
        self._files = tuple(files)
        self._decrypt = decrypt
        self._misspelt: dict[str, None] = {}
        self._variables: dict[str, VariableSet] = {}
        self._read: dict[tuple[str, int, str, str], Any] = {}

    def hosts(self) -> list[str]:
        """Names of all hosts, in the inventory's order."""
        return [host.name for host in self._tree.groups["all"].all_hosts()]

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the hosts of every group and of the groups below it; `all` and `ungrouped` are among the groups."""
        return {name: tuple(host.name for host in group.all_hosts()) for name, group in self._tree.groups.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about probable mistakes: skipped keys, keys written twice, a host named like a group.

        Of hosts whose variables were asked for also names that are nearly those that vgpuctl reads, and passwords that
        other users may read.
        """
        found = [*self._tree.warnings, *self._misspelt, *connection.readable_passwords(self._variables.values())]
        for files in self._files:
            found.extend(files.warnings)
        return tuple(dict.fromkeys(found))

    @property
    def structure_warnings(self) -> tuple[str, ...]:
        """Those of the warnings that are known before any variable is asked for: which hosts there are, and why."""
        return tuple(dict.fromkeys(self._tree.warnings))

    def require(self, host: str) -> None:
        """Raise InventoryError with near names for a host that the inventory does not have."""
        self._host(host)

    def require_readable(self, hosts: Iterable[str]) -> None:
        """Raise InventoryError for the first of these hosts with a variable that cannot be used."""
        for host in hosts:
            self.target(host)
            self.verify(host)

    def groups_of(self, host: str) -> tuple[str, ...]:
        """Names of the groups a host is in, directly or through their children, without `all`; sorted."""
        return tuple(sorted(group.name for group in self._host(host).lineage if group.name != "all"))

    def variables(self, host: str) -> Mapping[str, Any]:
        """A host's variables after precedence: all, parents, children, host; templates are not evaluated.

        Raises InventoryError for an unknown host and for a variable file that cannot be read.
        """
        return MappingProxyType(self._merged(self._host(host)).values)

    def select(self, limit: str | None, *, option: str = "--limit") -> list[str]:
        """Names of the hosts that fit ansible's host patterns, in the inventory's order; None means all.

        option: where the patterns were written, for errors. Raises InventoryError for a pattern that
        fits nothing (with near names), and when no host is left.
        """
        if limit is None:
            return self.hosts()
        chosen = [host.name for host in patterns.select(self._tree, limit, option=option)]
        if not chosen:
            raise InventoryError(f"{option} {limit} leaves no host")
        return chosen

    def target(self, host: str) -> HostTarget:
        """Where a host is and how to log in. Raises InventoryError naming host, variable and the file that set it."""
        return connection.target_of(host, self._merged(self._host(host)), self.groups_of(host), self._decrypt)

    def layout(self, host: str) -> "HostLayout | None":
        """A host's declared layout, its variable `vgpu` (docs/layout.md); None when none is declared.

        Raises InventoryError with the file and line that set what is wrong.
        """
        from vgpuctl.inventory.host_variables import layout_of
        from vgpuctl.specs.layout import LAYOUT_VARIABLE

        return self._read_once(host, LAYOUT_VARIABLE, layout_of)

    def constraints(self, host: str) -> "HostConstraints":
        """The content of a host's variable `vgpu_placing` (docs/placement.md).

        Raises InventoryError with the file and line that set what is wrong.
        """
        from vgpuctl.inventory.host_variables import constraints_of
        from vgpuctl.specs.placing import PLACING_VARIABLE

        return self._read_once(host, PLACING_VARIABLE, constraints_of)

    def health_policy(self, host: str) -> "HealthPolicy":
        """The content of a host's variable `vgpu_health` (docs/health.md).

        Raises InventoryError with the file and line that set what is wrong.
        """
        from vgpuctl.inventory.host_variables import health_policy_of
        from vgpuctl.specs.health import HEALTH_VARIABLE

        return self._read_once(host, HEALTH_VARIABLE, health_policy_of)

    def fencing(self, host: str) -> "Fencing":
        """The content of a host's variable `vgpu_fencing` (docs/maintenance.md).

        Raises InventoryError with the file and line that set what is wrong.
        """
        from vgpuctl.inventory.host_variables import fencing_of
        from vgpuctl.specs.fencing import FENCING_VARIABLE

        return self._read_once(host, FENCING_VARIABLE, fencing_of)

    def move_link(self, host: str) -> "MoveLink":
        """The content of a host's variable `vgpu_moves` (docs/moves.md).

        Raises InventoryError with the file and line that set what is wrong.
        """
        from vgpuctl.inventory.host_variables import move_link_of
        from vgpuctl.specs.moves import MOVES_VARIABLE

        return self._read_once(host, MOVES_VARIABLE, move_link_of)

    def move_address(self, host: str) -> str:
        """Address or name by which other hosts reach one for moves: the one of `vgpu_moves`, else that of its login.

        Raises InventoryError that names both hosts when another one that takes part in moves has the same: QEMU there
        would get the VM. Only hosts that declare none may share the address of their login, for ports of SSH.
        """
        link = self.move_link(host)
        address = link.address or self._address(host)
        sharing = self._declaring_moves.get(comparable_address(address), {}) if link.network is not None else {}
        others = [name for name, declared in sharing.items() if name != host and (declared or link.address)]
        if others:
            from vgpuctl.specs.moves import MOVES_VARIABLE

            origin = self._merged(self._host(host)).origins[MOVES_VARIABLE]
            raise InventoryError(
                f"{origin}: hosts {host} and {others[0]} have the same address for moves, {address}:"
                " a VM would go to the wrong one",
                hint=f"give each of them an `address` of its own in {MOVES_VARIABLE} of its host_vars (docs/moves.md)",
            )
        return address

    def _address(self, host: str) -> str:
        return connection.address_of(host, self._merged(self._host(host)), self._decrypt)

    @cached_property
    def _declaring_moves(self) -> Mapping[str, Mapping[str, bool]]:
        """By address for moves the hosts that have it, and whether they declare it; also each host by its own name.

        The addresses of unreadable ones are left out.
        """
        found = {comparable_address(name): {name: False} for name in self.hosts()}
        for name in self.hosts():
            try:
                link = self.move_link(name)
                address = link.address or self._address(name)
            except InventoryError:  # told where that host is asked for
                continue
            if link.network is not None:
                found.setdefault(comparable_address(address), {})[name] = link.address is not None
        return found

    @property
    def _readers(self) -> "tuple[Callable[[str], object], ...]":
        """What reads each variable of ours."""
        return (self.layout, self.constraints, self.health_policy, self.fencing, self.move_address)

    def verify(self, host: str) -> None:
        """Read all that vgpuctl takes from a host's variables. Raises InventoryError for what cannot be used."""
        for read in self._readers:
            read(host)

    def as_ansible_list(self, limit: str | None = None, *, with_secrets: bool = False) -> dict[str, dict[str, Any]]:
        """The output of `ansible-inventory --list [--limit LIMIT]`, keys in order; secrets are masked unless asked."""
        hosts = self._tree.groups["all"].all_hosts()
        if limit is not None:
            hosts = patterns.select(self._tree, limit)
        variables = {host.name: self._merged(host).values for host in hosts}
        return listing.as_ansible_list(self._tree, variables, with_secrets=with_secrets)

    def _read_once(self, host: str, name: str, read: Callable[[str, VariableSet], Read]) -> Read:
        """Read a variable once for all hosts that have it from one place, such as a group; a chassis for each."""
        variables = self._merged(self._host(host))
        content = variables.values.get(name)
        own = host if isinstance(content, dict) and "network" in content else ""
        key = (name, id(content), str(variables.origins.get(name)), own)
        if key not in self._read:
            self._read[key] = read(host, variables)
        found: Read = self._read[key]
        return found

    def _host(self, name: str) -> TreeHost:
        if name not in self._tree.hosts:
            raise patterns.unknown_host(self._tree, name)
        return self._tree.hosts[name]

    def _merged(self, host: TreeHost) -> VariableSet:
        if host.name not in self._variables:
            merged = self._variables[host.name] = self._merge(host)
            from vgpuctl.inventory.host_variables import misspelt

            self._misspelt |= dict.fromkeys(misspelt(merged))
        return self._variables[host.name]

    def _merge(self, host: TreeHost) -> VariableSet:
        """Lay the variables over each other, ansible's weakest first.

        Group variables of the sources, then the files of `all`, then the files of the other groups, then the host
        variables of the sources, then the host's files. Among files the source counts before the group. Groups go by
        depth, `ansible_group_priority` and name.
        """
        top = self._tree.groups["all"]
        groups: list[Group] = [group for group in host.lineage if group is not top]
        merged = VariableSet()
        for group in (top, *groups):
            merged.update(group.variables)
        for files in self._files:
            merged.update(files.group("all"))
        for files in self._files:
            for group in groups:
                merged.update(files.group(group.name))
        merged.update(host.variables)
        for files in self._files:
            merged.update(files.host(host.name))
        return merged
