"""Deletion vectors: which rows of a data file are no more, as Delta keeps them in files beside the data.

Each commit that marks rows has one file, with a vector for each data file. Vectors in the log itself are read, but not
written: not every reader knows them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from headrace.sinks.lake.indexed import Rows
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.vectors import FRAME, decoded, framed, unframed

_FORMAT = b"\x01"
_IN_FILE, _AT_PATH, _IN_LOG = "u", "p", "i"
_UUID_LETTERS = 20
_PYTHON = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = str.maketrans(_PYTHON, _Z85), str.maketrans(_Z85, _PYTHON)


def write_vectors(folder: Folder, vectors: Sequence[Rows]) -> list[dict[str, Any]]:
    """Write vectors into one new file.

    Args:
        folder: the table's.
        vectors: none of them empty.

    Returns:
        For each what stands in the log of it.
    """
    name, body, described = uuid4(), bytearray(_FORMAT), []
    for rows in vectors:
        frame = framed(rows)
        described.append(
            {
                "storageType": _IN_FILE,
                "pathOrInlineDv": base64.b85encode(name.bytes).decode().translate(_TO_Z85),
                "offset": len(body),
                "sizeInBytes": len(frame) - FRAME,
                "cardinality": len(rows),
            }
        )
        body += frame
    if vectors:
        folder.storage.write(folder.location(_file_name(name)), bytes(body))
    return described


def read_vector(folder: Folder, described: Mapping[str, Any]) -> Rows:
    """The rows of a vector.

    Args:
        folder: the table's.
        described: what stands in the log of it.

    Raises:
        OSError: its file is not there.
        ValueError: its file is damaged, or its form is not known.
    """
    kind, location, size = described["storageType"], described["pathOrInlineDv"], described["sizeInBytes"]
    if kind == _IN_LOG:
        return decoded(base64.b85decode(location.translate(_FROM_Z85))[:size])
    if kind == _IN_FILE:
        before, name = location[:-_UUID_LETTERS], location[-_UUID_LETTERS:]
        file = _file_name(UUID(bytes=base64.b85decode(name.translate(_FROM_Z85))))
        path = folder.location(f"{before}/{file}" if before else file)
    elif kind == _AT_PATH and location.startswith("/") and folder.storage.is_local:
        path = location
    else:
        raise ValueError(f"a deletion vector is stored as '{kind}' at '{location}'")
    return unframed(folder.storage.read(path, described.get("offset") or 0, size + FRAME), path)


def _file_name(name: UUID) -> str:
    return f"deletion_vector_{name}.bin"
