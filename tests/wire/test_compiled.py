"""Kernels are compiled once per version of Headrace and machine; without numba the same code gives the same rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.wire import compiled

WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
import pyarrow as pa
from headrace.wire import compiled
from headrace.wire.tape import Tape
assert not compiled.is_compiled()
tape = Tape(pa.array([b'{"a":"x","b":[1,{"c":"\\\\u00e9"}]}', b'{', None], pa.binary()))
members = tape.members(tape.root)
assert tape.texts(members.names).to_pylist() == ["a", "b"], tape.texts(members.names)
assert tape.texts(members.values).to_pylist() == ["x", '[1,{"c":"\\\\u00e9"}]'], tape.texts(members.values)
"""


def test_without_numba_messages_are_read_all_the_same_and_it_is_said_once() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("numba is not installed") == 1


def test_the_folder_of_kernels_is_another_for_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiled.fingerprint()
    assert compiled.fingerprint() == before
    for path in Path(compiled.__file__).parent.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    assert compiled.fingerprint() == before
    (tmp_path / "spans.py").write_text("another = 1")
    assert compiled.fingerprint() != before


def test_a_folder_that_belongs_to_someone_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345, raising=False)
    assert not compiled._is_ours(tmp_path / "headrace" / "kernels")


@pytest.mark.soak
def test_no_index_is_out_of_bounds(tmp_path: Path) -> None:
    """The tests of the kernels again, compiled with a look at each index, in a folder of their own."""
    here = Path(__file__).parent
    chosen = [
        str(here / name)
        for name in (
            "test_json_reader.py",
            "test_tape.py",
            "test_json_writer.py",
            "test_typed.py",
            "test_avro_reader.py",
        )
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not soak", *chosen],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", compiled.CACHE_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
