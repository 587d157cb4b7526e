# SPDX-License-Identifier: Apache-2.0
"""paramiko's transport, in which nothing follows the end of a channel that the host has forgotten.

It also knows what the server has offered in the key exchange, of which paramiko's error says nothing.

paramiko makes a message under its channel's lock and sends it after that. When the host closes the channel in between,
paramiko's own thread answers first, and the host forgets the channel. For the message that then comes, OpenSSH ends the
whole connection, with all other commands on it, and with all hosts behind it where it is a jump host (channels.c:
"packet referred to nonexistent channel"). On a machine under load this happens.
"""

from collections.abc import Sequence
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF

from vgpuctl.model.printable import printable


class ChannelMessage(paramiko.Message):
    """A message that knows its channel, whose number the host may have given to another one by the time it is sent."""

    def __init__(self, channel: paramiko.Channel, kind: bytes) -> None:
        super().__init__()
        self.channel = channel
        self.add_byte(kind)
        self.add_int(channel.remote_chanid)


class OrderedChannel(paramiko.Channel):
    """The channel; its data and its end are messages that know it."""

    def send(self, s: Any) -> int:
        """As paramiko's."""
        size: int = self._send(s, ChannelMessage(self, cMSG_CHANNEL_DATA))  # type: ignore[attr-defined]
        return size

    def shutdown_write(self) -> None:
        """As paramiko's."""
        with self.lock:
            message = self._send_eof()  # type: ignore[attr-defined]
        if message is not None and self.transport is not None:
            self.transport._send_user_message(ChannelMessage(self, cMSG_CHANNEL_EOF))  # type: ignore[attr-defined]

    def shutdown(self, how: int) -> None:
        """As paramiko's. how: as of `socket.shutdown`."""
        if how in (0, 2):
            super().shutdown(0)
        if how in (1, 2):
            self.shutdown_write()


_SHOWN_NAMES = 12
_SHOWN_CHARACTERS = 64  # the longest name of an algorithm (RFC 4251, section 6)
_OFFERS = (
    ("key exchange", ("kex_algo_list",), "kex"),
    ("host key", ("server_key_algo_list",), "key_types"),
    ("cipher", ("client_encrypt_algo_list", "server_encrypt_algo_list"), "ciphers"),
    ("MAC", ("client_mac_algo_list", "server_mac_algo_list"), "digests"),
)
"""What both sides must share, the names of paramiko's lists of the server (one for each direction), and of ours."""


class OrderedTransport(paramiko.Transport):
    """The transport; messages of a channel that was closed are left out."""

    _offered: "dict[str, list[str]] | None" = None

    def unshared(self) -> dict[str, str]:
        """The kinds of algorithms of which server and client have none in common, each with both lists in words.

        A cipher with a MAC of its own (GCM) needs none, so that MACs count as paramiko counts them: always.
        """
        offered = self._offered
        if offered is None:
            return {}
        ours = self.get_security_options()
        return {
            kind: f"the server offers {_shown(offered[name])}; vgpuctl has {_shown(getattr(ours, option))}"
            for kind, names, option in _OFFERS
            for name in names
            if not set(offered[name]) & set(getattr(ours, option))
        }

    def _really_parse_kex_init(self, m: Any, ignore_first_byte: bool = False) -> Any:
        """As paramiko's, which reads our own lists from the middle of a message, too."""
        parsed = super()._really_parse_kex_init(m, ignore_first_byte)  # type: ignore[misc]
        if not ignore_first_byte:
            self._offered = {name: list(values) for name, values in parsed.items() if name.endswith("_list")}
        return parsed

    def open_channel(self, *what: Any, **how: Any) -> paramiko.Channel:
        """As paramiko's, which names the class of its channels in the middle of the function."""
        channel = super().open_channel(*what, **how)
        channel.__class__ = OrderedChannel
        return channel

    def _send_message(self, data: Any) -> None:
        # One message at a time comes here, the channel's last one too, which is made after `closed` was set.
        if not (isinstance(data, ChannelMessage) and data.channel.closed):
            super()._send_message(data)  # type: ignore[misc]  # the stubs have no internals


def _shown(names: Sequence[str]) -> str:
    """The names as one text. A server may send any."""
    shown = [printable(name[:_SHOWN_CHARACTERS]) for name in names[:_SHOWN_NAMES] if name]
    more = [f"{len(names) - _SHOWN_NAMES} more"] if len(names) > _SHOWN_NAMES else []
    return ", ".join([*shown, *more]) or "none"
