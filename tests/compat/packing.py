"""Folders as they are kept: small, and the same content gives the same bytes."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path


def pack(folder: Path, file: Path) -> None:
    """Keep a folder, with the folders in it that are empty."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if Path(member.name).name == ".headrace.lock" else member

    file.parent.mkdir(parents=True, exist_ok=True)
    # Databases of a server have many files in common, further apart than smaller dictionaries reach.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 64 << 20}]
    with lzma.open(file, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() or (path.is_dir() and not any(path.iterdir())):
                archive.add(path, str(path.relative_to(folder)), filter=plain, recursive=False)


def unpack(file: Path, folder: Path) -> Path:
    """A kept folder in a new place."""
    with lzma.open(file) as packed, tarfile.open(fileobj=packed) as archive:
        archive.extractall(folder, filter="data")
    return folder
