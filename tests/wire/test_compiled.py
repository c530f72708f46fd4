"""Kernels are compiled once per version of Headrace and machine; without numba the same code gives the same rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.testing.waiting import PATIENCE
from headrace.wire import compiled, kernel_files

SOURCE = Path(compiled.__file__).parents[2]

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


def test_without_numba_messages_are_read_all_the_same_and_it_is_announced_once() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMBA], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("numba is not installed") == 1


ONE_KERNEL = """
import os, sys
import numpy as np
from headrace.wire import compiled
if "read_only" in sys.argv:
    compiled._can_write = lambda folder: False

@compiled.kernel
def total(numbers):
    found = 0
    for number in numbers:
        found += number
    return found

assert total(np.arange(4)) == 6
print(sum(total.kernel.stats.cache_misses.values()))
"""


def start(folder: Path, *arguments: str, source: Path = SOURCE, **environment: str) -> subprocess.Popen[str]:
    """A process that calls one kernel and prints how often it compiled it."""
    given = {compiled.CACHE_VARIABLE: str(folder), "PYTHONPATH": str(source), "XDG_CACHE_HOME": str(folder / "caches")}
    return subprocess.Popen(
        [sys.executable, "-c", ONE_KERNEL, *arguments],
        env={**os.environ, **given, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled_by(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How often the process compiled, and what it warned of."""
    printed, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return int(printed), errors


def test_a_kernel_is_compiled_once_and_loaded_afterwards(tmp_path: Path) -> None:
    assert compiled_by(start(tmp_path)) == (1, "")
    assert compiled_by(start(tmp_path)) == (0, "")
    (kernels,) = tmp_path.glob("kernels-*")
    assert sorted(path.suffix for path in kernels.iterdir()) == ["", ".kernel"]


@pytest.mark.system
def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    together = [start(tmp_path) for _ in range(4)]
    assert sum(compiled_by(process)[0] for process in together) == 1


@pytest.mark.system
def test_kernels_are_used_where_the_package_stands_elsewhere_and_not_by_other_sources(tmp_path: Path) -> None:
    assert compiled_by(start(tmp_path))[0] == 1
    elsewhere = tmp_path / "elsewhere"
    # Without the times of the files.
    shutil.copytree(SOURCE / "headrace", elsewhere / "headrace", copy_function=shutil.copyfile)
    assert compiled_by(start(tmp_path, source=elsewhere)) == (0, "")
    archive = Path(shutil.make_archive(str(tmp_path / "package"), "zip", elsewhere))
    assert compiled_by(start(tmp_path, source=archive)) == (0, "")
    (elsewhere / "headrace" / "wire" / "spans.py").write_text("another = 1")
    assert compiled_by(start(tmp_path, source=elsewhere)) == (1, "")
    assert compiled_by(start(tmp_path, NUMBA_CPU_NAME="generic")) == (1, "")


def test_kernels_are_taken_from_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    assert compiled_by(start(tmp_path))[0] == 1
    assert compiled_by(start(tmp_path, "read_only")) == (0, "")


@pytest.mark.system
def test_without_a_folder_each_process_compiles_and_says_so(tmp_path: Path) -> None:
    for _ in range(2):
        times, warned = compiled_by(start(tmp_path, "read_only"))
        assert times == 1
        assert "it has none for this machine and version, and is not writable" in warned
        assert "Can't write compiled kernels to any folder" in warned


@pytest.mark.system
def test_a_kernel_that_was_cut_off_is_compiled_again(tmp_path: Path) -> None:
    compiled_by(start(tmp_path))
    (path,) = tmp_path.glob("kernels-*/*.kernel")
    path.write_bytes(path.read_bytes()[:1000])
    times, warned = compiled_by(start(tmp_path))
    assert times == 1
    assert f"Can't read the compiled kernel {path}" in warned
    assert compiled_by(start(tmp_path)) == (0, "")


def test_a_process_that_never_ends_its_turn_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_files, "PATIENCE", 0.0)
    stuck, other = kernel_files._Turn(), kernel_files._Turn()
    assert stuck.take(tmp_path)
    assert not other.take(tmp_path)
    stuck.end()
    assert not other.take(tmp_path)


@pytest.mark.parametrize(
    ("above", "folder", "owner", "safe"),
    [
        (0o755, 0o755, "me", True), (0o755, 0o777, "me", False), (0o777, 0o755, "me", False),
        (0o1777, 0o755, "me", True), (0o755, 0o755, "someone", False),
    ],
)  # fmt: skip
def test_a_folder_that_someone_else_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: int, folder: int, owner: str, safe: bool
) -> None:
    made = tmp_path / "headrace" / "kernels"
    made.mkdir(parents=True)
    made.chmod(folder)
    made.parent.chmod(above)
    if owner != "me":
        theirs = SimpleNamespace(st_mode=folder, st_uid=os.getuid() + 12345)
        monkeypatch.setattr(Path, "stat", lambda path: theirs)
    assert compiled._is_safe(made) is safe


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
