# SPDX-License-Identifier: Apache-2.0
"""paramiko's transport, in which nothing follows the end of a channel that the host has forgotten.

paramiko makes a message under its channel's lock and sends it after that. When the host closes the channel in between,
paramiko's own thread answers first, and the host forgets the channel. For the message that then comes, OpenSSH ends the
whole connection, with all other commands on it, and with all hosts behind it where it is a jump host (channels.c:
"packet referred to nonexistent channel"). On a machine under load this happens.
"""

from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_DATA, cMSG_CHANNEL_EOF


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


class OrderedTransport(paramiko.Transport):
    """The transport; messages of a channel that was closed are left out."""

    def open_channel(self, *what: Any, **how: Any) -> paramiko.Channel:
        """As paramiko's, which names the class of its channels in the middle of the function."""
        channel = super().open_channel(*what, **how)
        channel.__class__ = OrderedChannel
        return channel

    def _send_message(self, data: Any) -> None:
        # One message at a time comes here, the channel's last one too, which is made after `closed` was set.
        if not (isinstance(data, ChannelMessage) and data.channel.closed):
            super()._send_message(data)  # type: ignore[misc]  # the stubs have no internals
