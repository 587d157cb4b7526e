# SPDX-License-Identifier: Apache-2.0
"""How to log in to a host, from its `ansible_*` variables. Where several names say one thing, the last one counts."""

import shlex
from collections.abc import Callable, Iterable, Iterator

from vgpuctl.errors import FileNotTrusted, InventoryError
from vgpuctl.inventory.tree import VariableSet
from vgpuctl.model.host_target import AUTO_PYTHON, HostTarget
from vgpuctl.model.masking import holds_command, is_secret_name, shown_login
from vgpuctl.model.secret import ProgramLine, Secret
from vgpuctl.model.ssh_names import host_name_fault, user_name_fault
from vgpuctl.specs.origin import EncryptedText, UntrustedText
from vgpuctl.trusted_files import NAMED_SECRET, judge

_ADDRESS = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_KEY_FILE = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_PASSWORD = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
_SSH_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_BECOME_USER = ("ansible_become_user", "ansible_sudo_user")
_BECOME_PASSWORD = ("ansible_become_password", "ansible_become_pass", "ansible_sudo_pass")
_KEY_CHECKING = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
_OVER_SSH = ("smart", "ssh", "paramiko", "paramiko_ssh")
HARMLESS_VARIABLES = frozenset(
    (
        *(*_ADDRESS, *_PORT, *_USER, *_KEY_FILE, *_BECOME_USER, *_KEY_CHECKING),
        *("ansible_connection", "ansible_become", "ansible_become_method", "ansible_python_interpreter"),
        # Of ansible-core 2.19's connections ssh and paramiko, and of its shells: numbers, choices and folders.
        *("ansible_timeout", "ansible_ssh_timeout", "ansible_ssh_retries", "ansible_ssh_pipelining"),
        *("ansible_pipelining", "ansible_ssh_transfer_method", "ansible_ssh_use_tty", "ansible_remote_tmp"),
        *("ansible_shell_type", "ansible_group_priority"),
    )
)
"""Variables of the connection whose meaning is no secret and no arguments of a program."""
_PORT_DIGITS = 9
_SHOWN = 40
_AS_SSH = "ssh refuses it too: such names reach the shell of a ProxyCommand"
_TRUE = ("true", "yes", "on", "y", "t", "1")
_FALSE = ("false", "no", "off", "n", "f", "0")


def target_of(
    name: str, variables: VariableSet, groups: tuple[str, ...], decrypt: Callable[[str], str] | None = None
) -> HostTarget:
    """Read a host's target. Raises InventoryError naming host, variable and the place that set it.

    decrypt: opens the text of a vault.
    """
    read = _VariableReader(name, variables, decrypt)
    read.check_choices("ansible_connection", _OVER_SSH, hint="vgpuctl reaches every host over SSH")
    read.check_choices("ansible_become_method", ("sudo",), hint="vgpuctl becomes another user by sudo only")
    arguments = [(name, text) for name in _SSH_ARGUMENTS if (text := read.text((name,)))]
    common_args = ProgramLine(
        " ".join(text for _, text in arguments),
        source=" and ".join(f"{name} ({variables.origins[name]})" for name, _ in arguments),
    )
    interpreter = read.text(("ansible_python_interpreter",))
    if interpreter is None or interpreter.startswith("auto"):
        interpreter = AUTO_PYTHON
    return HostTarget(
        name=name,
        address=address_of(name, variables, decrypt),
        port=read.port(),
        user=read.checked(_USER, user_name_fault),
        private_key_file=read.text(_KEY_FILE),
        password=read.secret(_PASSWORD),
        common_args=common_args if arguments else None,
        become=read.truth(("ansible_become",), default=False),
        become_user=read.text(_BECOME_USER),
        become_password=read.secret(_BECOME_PASSWORD),
        python_interpreter=interpreter,
        host_key_checking=read.truth(_KEY_CHECKING, default=True),
        groups=groups,
    )


def address_of(name: str, variables: VariableSet, decrypt: Callable[[str], str] | None = None) -> str:
    """Read a host's address alone: no vault of its passwords is opened. Raises as `target_of`."""
    return _VariableReader(name, variables, decrypt).checked(_ADDRESS, host_name_fault) or name


def readable_passwords(hosts: Iterable[VariableSet]) -> Iterator[str]:
    """Warnings about files of the inventory with a password that other users may read: one for each.

    Such a file is used as Ansible uses it: a password in it is often a group's, and known to whom the file is for.
    """
    places: dict[str, str] = {}
    for variables in hosts:
        for name in (*_PASSWORD, *_BECOME_PASSWORD):
            if variables.values.get(name) not in (None, "", Secret("")):
                origin = variables.origins[name]
                places.setdefault(origin.path, f"{origin}: other users may read {name}")
    for path, said in places.items():
        try:
            judge(path, NAMED_SECRET)
        except OSError:  # no file: an option, or what ansible printed
            continue
        except FileNotTrusted:
            yield f"{said}; `chmod 0600 {shlex.quote(path)}` keeps them out"


class _VariableReader:
    """Typed reads of one host's variables."""

    def __init__(self, host: str, variables: VariableSet, decrypt: Callable[[str], str] | None) -> None:
        self._host = host
        self._variables = variables
        self._decrypt = decrypt

    def text(self, names: tuple[str, ...]) -> str | None:
        name, value = self._find(names)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self._wrong(
                name, f"is {_shown(name, value)}, not text", hint=f"""in YAML write "…", in INI {name}='"…"'"""
            )
        if "\n" in value or "\0" in value:
            raise self._wrong(name, "has more than one line")
        return str(value)

    def secret(self, names: tuple[str, ...]) -> Secret[str] | None:
        text = self.text(names)
        return None if text is None else Secret(text)

    def checked(self, names: tuple[str, ...], fault_of: Callable[[str], str | None]) -> str | None:
        text = self.text(names)
        fault = None if text is None else fault_of(text)
        if text is not None and ":" in (text if names == _USER else text.rpartition("@")[0]):
            fault = "has a password, which belongs into ansible_password"
        if fault is not None:
            name, value = self._find(names)
            raise self._wrong(name, f"is {shown_login(str(value))[:_SHOWN]!a}: it {fault}", hint=_AS_SSH)
        return text

    def port(self) -> int | None:
        name, value = self._find(_PORT)
        if value is None or value == "":
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _PORT_DIGITS:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
            raise self._wrong(
                name, f"is {str(value)[:_SHOWN]!a}, not a port", hint="a port is a whole number from 1 to 65535"
            )
        return value

    def truth(self, names: tuple[str, ...], *, default: bool) -> bool:
        name, value = self._find(names)
        if value is None or value == "":
            return default
        text = str(value).strip().lower()
        if isinstance(value, (bool, int, str)) and text in _TRUE + _FALSE:
            return text in _TRUE
        raise self._wrong(name, f"is {value!r}, neither true nor false")

    def check_choices(self, name: str, choices: tuple[str, ...], *, hint: str) -> None:
        value = self.text((name,))
        if value is not None and value.removeprefix("ansible.builtin.") not in choices:
            raise self._wrong(name, f"is {value!r}", hint=f"{hint}; it can be {' or '.join(choices)}")

    def _find(self, names: tuple[str, ...]) -> tuple[str, object]:
        found, value = names[0], None
        for name in names:
            if self._variables.values.get(name) is not None:
                found, value = name, self._variables.values[name]
        if isinstance(value, Secret):
            value = value.reveal()
        if isinstance(value, EncryptedText) and self._decrypt is not None:
            value = UntrustedText(self._decrypt(value))
        if (
            isinstance(value, str)
            and not isinstance(value, UntrustedText)
            and any(mark in value for mark in ("{{", "{%", "{#"))
        ):
            raise self._wrong(
                found,
                "is a jinja template, which vgpuctl does not evaluate",
                hint="write the value itself, or under `!unsafe` when the braces belong to it",
            )
        return found, value

    def _wrong(self, name: str, what: str, *, hint: str | None = None) -> InventoryError:
        return InventoryError(f"{self._variables.origins[name]}: {name} of host {self._host!r} {what}", hint=hint)


def _shown(name: str, value: object) -> str:
    kind = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}.get(
        type(value), f"a {type(value).__name__}"
    )
    return kind if is_secret_name(name) or holds_command(name) else f"{value!r}, {kind}"
