# SPDX-License-Identifier: Apache-2.0
"""The agent as one file: a zip of the package, `vgpuctl/agent` and a part of pynvml, the same bytes each time.

To read pynvml and to compress takes 0.1 s of processor time, so the user's cache keeps the file. Its name there has the
digest of all that it is made from, and its first line the digest of the rest.
"""

import contextlib
import hashlib
import importlib.util
import io
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import vgpuctl
from vgpuctl import local_files
from vgpuctl.errors import AgentBroken, FileNotWritten
from vgpuctl.hosts import pynvml_excerpt
from vgpuctl.user_folders import UserFolder

_MAIN = """\
# SPDX-License-Identifier: Apache-2.0
from vgpuctl.agent.__main__ import main

main()
"""
# Much quicker to import than the standard library's dataclasses, which the same sources use here.
_VALUES, _LIGHT_VALUES = "vgpuctl/agent/wire/values.py", "vgpuctl/agent/wire/light_values.py"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PREFIX, _WHAT = "packed-agent-", "the packed agent"
# One of each installation of a user, such as a checkout beside the package, and of their versions of late.
_MOST_KEPT = 8


@dataclass(frozen=True)
class Bundle:
    """The agent's file: its bytes and their sha256 in hex."""

    data: bytes
    sha256: str


_BUILDING = threading.Lock()


def build_agent() -> Bundle:
    """The agent of this installation, zipped once however many threads ask at once.

    Raises AgentBroken when pynvml (nvidia-ml-py) is not installed here.
    """
    with _BUILDING:
        return _build()


@cache
def _build() -> Bundle:
    """Take the agent from the user's cache, or zip it and keep it there. Raises as `build_agent`."""
    sources, pynvml = _sources(), _pynvml_source()
    packers = [Path(__file__).read_bytes(), Path(pynvml_excerpt.__file__).read_bytes()]
    inputs = [name.encode() + b"\0" + content for name, content in sorted(sources.items())]
    made_from = hashlib.sha256(b"\0".join((*inputs, pynvml.encode(), *packers))).hexdigest()
    folder = UserFolder.CACHE.find()
    path = None if folder is None else folder / f"{_PREFIX}{made_from}"
    kept = None if path is None else _kept(path)
    if kept is not None:
        return kept
    excerpt = pynvml_excerpt.excerpt(pynvml, pynvml_excerpt.names_used(one.decode() for one in sources.values()))
    data = _zipped({**sources, "pynvml.py": excerpt.encode()})
    made = Bundle(data, hashlib.sha256(data).hexdigest())
    if path is not None:
        with contextlib.suppress(FileNotWritten):  # It is made again next time, as for a user without a home.
            _keep(path, made)
    return made


def _kept(path: Path) -> Bundle | None:
    """The agent of a file in the cache; None where there is none, it is damaged, or another user could write to it."""
    digest, _, data = (local_files.read_own(path) or b"").partition(b"\n")
    is_whole = hashlib.sha256(data).hexdigest().encode() == digest
    return Bundle(data, digest.decode()) if is_whole else None


def _keep(path: Path, made: Bundle) -> None:
    """Write the file that `_kept` reads, and remove those of replaced installations. Raises FileNotWritten."""
    if local_files.make_own_folder(path.parent, _WHAT):
        local_files.write_file(path, made.sha256.encode() + b"\n" + made.data, _WHAT, mode=0o600)
        with local_files.writing(_WHAT, path):
            for old in sorted(path.parent.glob(f"{_PREFIX}*"), key=_written_at)[:-_MOST_KEPT]:
                old.unlink(missing_ok=True)


def _written_at(path: Path) -> float:
    return path.lstat().st_mtime


def _zipped(sources: Mapping[str, bytes]) -> bytes:
    """Equal sources give equal bytes: order, times and modes are fixed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(sources.items()):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _sources() -> dict[str, bytes]:
    """The agent's own files by their names in the zip."""
    package = Path(vgpuctl.__file__).parent
    files = [package / "__init__.py", *sorted((package / "agent").rglob("*.py"))]
    sources = {f"vgpuctl/{path.relative_to(package).as_posix()}": path.read_bytes() for path in files}
    sources[_VALUES] = sources.pop(_LIGHT_VALUES)
    sources["__main__.py"] = _MAIN.encode()
    return sources


def _pynvml_source() -> str:
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise AgentBroken(
            "the agent cannot be packed: the module pynvml is not installed beside vgpuctl",
            hint="install the package nvidia-ml-py into vgpuctl's environment",
        )
    return Path(spec.origin).read_text(encoding="utf-8")
