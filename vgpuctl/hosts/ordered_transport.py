# SPDX-License-Identifier: Apache-2.0
"""paramiko's transport, in which nothing follows the end of a channel that the host has forgotten.

paramiko makes a message under its channel's lock and sends it after that. When the host closes the channel in between,
paramiko's own thread answers first, and the message comes for a channel that is no more: OpenSSH then ends the whole
connection, with all other commands on it (channels.c: "packet referred to nonexistent channel"). On a machine under
load that takes a few thousand commands.
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


class OrderedTransport(paramiko.Transport):
    """The transport; messages of a channel that was closed are left out."""

    def _send_message(self, data: Any) -> None:
        # One message at a time comes here, the channel's last one too, which is made after `closed` was set.
        if not (isinstance(data, ChannelMessage) and data.channel.closed):
            super()._send_message(data)  # type: ignore[misc]  # no part of the stubs


def send(channel: paramiko.Channel, data: bytes) -> int:
    """As `channel.send`."""
    size: int = channel._send(data, ChannelMessage(channel, cMSG_CHANNEL_DATA))  # type: ignore[attr-defined]
    return size


def send_end(channel: paramiko.Channel) -> None:
    """As `channel.shutdown_write`."""
    with channel.lock:
        message = channel._send_eof()  # type: ignore[attr-defined]
    if message is not None and channel.transport is not None:
        channel.transport._send_user_message(  # type: ignore[attr-defined]
            ChannelMessage(channel, cMSG_CHANNEL_EOF)
        )
