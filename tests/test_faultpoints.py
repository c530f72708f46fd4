"""Rule: a named point does nothing unless a test arms it, acts once, and leaves proof."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace import faultpoints
from headrace.faultpoints import reach
from headrace.testing.faults import InjectedFault
from headrace.testing.waiting import PATIENCE, until


def test_an_unarmed_point_does_nothing(monkeypatch):
    monkeypatch.delenv("HEADRACE_FAULTPOINTS", raising=False)
    reach("anything")


def test_an_armed_point_raises_at_the_wanted_time_and_only_then(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", "a.b=raise@2;other=raise")
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    reach("a.b")
    assert not (tmp_path / "a.b.hit").exists()
    with pytest.raises(InjectedFault, match=r"a\.b"):
        reach("a.b")
    assert (tmp_path / "a.b.hit").exists()
    reach("a.b")


def test_a_held_point_waits_for_its_gate(monkeypatch, tmp_path):
    gate = tmp_path / "gate"
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", f"p=hold:{gate}")
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    done = threading.Event()
    thread = threading.Thread(target=lambda: (faultpoints.reach("p"), done.set()))
    thread.start()
    while not (tmp_path / "gate.reached").exists():
        assert thread.is_alive()
    assert not done.is_set()
    gate.touch()
    thread.join(PATIENCE)
    assert done.is_set()


def test_an_unknown_action_is_an_error_not_a_silence(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", "p=explode")
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    with pytest.raises(ValueError, match="explode"):
        reach("p")


def test_a_kill_ends_the_whole_session_and_spares_the_tests(tmp_path):
    program = "import subprocess, sys; from headrace.faultpoints import reach; "
    program += "p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    program += "open(sys.argv[1], 'w').write(str(p.pid)); reach('p')"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "pid")],
        start_new_session=True,
        env={
            **os.environ,
            "HEADRACE_FAULTPOINTS": "p=kill",
            "HEADRACE_FAULT_DIR": str(tmp_path),
            "HEADRACE_FAULT_SPARE": str(os.getsid(0)),
        },
    )
    assert child.wait(PATIENCE) == -signal.SIGKILL
    assert (tmp_path / "p.hit").exists()
    grandchild = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{grandchild}/stat")
    # Killed: gone, or a zombie that its parent has not collected yet.
    until(lambda: not state.exists() or state.read_text().split()[2] in "ZX", "the grandchild is killed")


def test_a_kill_never_ends_its_own_tests(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", "p=kill")
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_FAULT_SPARE", str(os.getsid(0)))
    with pytest.raises(RuntimeError, match="refusing"):
        reach("p")
