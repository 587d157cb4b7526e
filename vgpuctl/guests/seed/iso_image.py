# SPDX-License-Identifier: Apache-2.0
"""A small ISO 9660 image with Joliet and Rock Ridge names: equal bytes for equal files."""

import io
from collections.abc import Mapping
from typing import Any

# 2000-01-01 UTC in the two forms of ECMA-119 (9.1.5 and 8.4.26.1): an image carries no time of its own, else each
# run would write another one. pycdlib takes no time from its caller.
_RECORD_DATE = bytes([100, 1, 1, 0, 0, 0, 0])
_VOLUME_DATE = b"2000010100000000\0"
_SECTOR_BYTES = 2048
_DESCRIPTOR_SECTORS = (16, 17)  # the primary and the Joliet volume descriptor
_VOLUME_DATE_OFFSETS = (813, 830, 864)  # creation, modification, effective (ECMA-119, 8.4.26, 8.4.27, 8.4.29)


def iso_image(files: Mapping[str, str], *, volume_id: str) -> bytes:
    """Write files, by name, into the root of an image."""
    from pycdlib import PyCdlib

    iso = PyCdlib()
    iso.new(interchange_level=3, sys_ident="", vol_ident=volume_id, joliet=3, rock_ridge="1.09")
    for name, text in sorted(files.items()):
        data = text.encode()
        stem, _, extension = name.upper().replace("-", "_").partition(".")
        iso.add_fp(
            io.BytesIO(data),
            len(data),
            f"/{stem}.{extension};1",
            rr_name=name,
            joliet_path=f"/{name}",
            file_mode=0o100444,
        )
    for root in (iso.get_record(iso_path="/"), iso.get_record(joliet_path="/")):
        for record in _records(root):
            _set_record_dates(record)
    buffer = io.BytesIO()
    iso.write_fp(buffer)
    iso.close()
    image = bytearray(buffer.getvalue())
    for sector in _DESCRIPTOR_SECTORS:
        for offset in _VOLUME_DATE_OFFSETS:
            start = sector * _SECTOR_BYTES + offset
            image[start : start + len(_VOLUME_DATE)] = _VOLUME_DATE
    return bytes(image)


def _records(root: Any) -> list[Any]:
    return [root, *root.children]


def _set_record_dates(record: Any) -> None:
    record.date = _record_date()
    if record.rock_ridge is None:
        return
    for entries in (record.rock_ridge.dr_entries, record.rock_ridge.ce_entries):
        if entries is not None and entries.tf_record is not None:
            entries.tf_record.access_time = _record_date()
            entries.tf_record.modification_time = _record_date()
            entries.tf_record.attribute_change_time = _record_date()


def _record_date() -> Any:
    from pycdlib.dates import DirectoryRecordDate

    date = DirectoryRecordDate()
    date.parse(_RECORD_DATE)
    return date
