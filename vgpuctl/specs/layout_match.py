# SPDX-License-Identifier: Apache-2.0
"""How an entry of a host's layout names its GPUs: `match`."""

import difflib
import re

from vgpuctl import catalog
from vgpuctl.errors import UsageError
from vgpuctl.model.layout import GpuMatch
from vgpuctl.specs.field import Field, Table, Text

_ADDRESS = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])")
_LONG_ADDRESS = re.compile(r"0000([0-9a-f]{4}:.*)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")


def _parse_address(text: str, /, *, what: str) -> str:
    address = text.lower()
    match = _ADDRESS.fullmatch(_LONG_ADDRESS.sub(r"\1", address))
    if match is None:
        raise UsageError(f"{what} is {address!r}, not a PCI address", hint='write "0000:41:00.0"')
    return f"{match[1] or '0000'}:{match[2]}"


def _parse_uuid(text: str, /, *, what: str) -> str:
    if not _UUID.fullmatch(text):
        raise UsageError(f"{what} is {text!r}, not a GPU's UUID", hint="`vgpuctl list-gpus --json` shows them")
    return "GPU-" + text[4:].lower()


def _parse_board(text: str, /, *, what: str) -> str:
    if not _PCI_ID.fullmatch(text.lower()) and not catalog.boards_named(text):
        models = {one.name.partition(" ")[2].lower(): one.name.partition(" ")[2] for one in catalog.boards().values()}
        near = [models[one] for one in difflib.get_close_matches(text.lower(), models, n=3)]
        raise UsageError(
            f"{what} is {text!r}, which no board of the catalogue is called",
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else "write a model such as A40 or H100, or vendor:device such as 10de:2235",
        )
    return text


MATCH = Table(
    "match",
    GpuMatch,
    (
        Field(
            "address",
            Text(_parse_address, hint='quote it: "0000:41:00.0" (YAML reads some addresses as numbers)'),
            "PCI address; quote it, since YAML reads some addresses as numbers",
            metavar="DOMAIN:BUS:DEVICE.FUNCTION",
            example='"0000:41:00.0"',
        ),
        Field("uuid", Text(_parse_uuid), "UUID, as `list-gpus --json` shows it", metavar="UUID", example="GPU-…"),
        Field(
            "board",
            Text(_parse_board),
            "Model as people call it (A40, H100, RTX PRO 6000), or VENDOR:DEVICE (10de:2235)",
            metavar="MODEL",
            example="A40",
        ),
    ),
    exactly_one=True,
)
MATCH_FIELD = Field("match", MATCH, "GPUs of the entry", is_required=True, words={"all": GpuMatch()})
