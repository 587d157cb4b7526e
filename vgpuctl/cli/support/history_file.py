# SPDX-License-Identifier: Apache-2.0
"""The file of the kept readings: named, or beside the store."""

from pathlib import Path


def history_file(named: Path | None, database: str | None) -> Path:
    """Return the file. A store on PostgreSQL has its readings in the user's data folder. Raises UsageError."""
    from vgpuctl.store.address import SqliteAddress, default_path, default_url, parse_url

    if named is not None:
        return named.absolute()
    address = parse_url(database or default_url())
    store = address.path if isinstance(address, SqliteAddress) else default_path()
    return Path(store).absolute().with_name(f"{Path(store).name}.history")
