"""What a user sees of `headrace run`: one sentence and 2, or the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.failure import program
from headrace.observe.history import FILE, KeptFigures
from headrace.testing.waiting import PATIENCE, until

PLUGIN = Path(__file__).parents[1] / "pipeline" / "plugin"


def environment(**more: str) -> dict[str, str]:
    paths = [str(PLUGIN), *(p for p in sys.path if p)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def headrace(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True,
        text=True,
        env=environment(**more),
        timeout=PATIENCE,
        # A fault that kills takes the whole session with it.
        start_new_session=True,
    )


def pipeline(folder: Path, source: dict[str, object] | None = None, sink: dict[str, object] | None = None) -> Path:
    (folder / "commits").mkdir(exist_ok=True)
    text = {
        "source": {"type": "folder", "hostname": str(folder / "commits"), **(source or {})},
        "sink": {"type": "list_changes", "path": "out", **(sink or {})},
        "pipeline": {"name": "test", "checkpoint": "state", "trigger": "100ms"},
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(text, indent=1))
    return file


def test_version() -> None:
    done = headrace("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "headrace")


MISTAKES = [
    ({"source": {"hostnam": "x"}}, "line 5: Unknown option 'hostnam' for source 'folder'. Did you mean 'hostname'?"),
    ({"source": {"tables": ["dbo.none"]}}, "Table 'dbo.none' is not set up for capture. Enable it."),
    ({"source": {"hostname": "/nowhere"}}, "The server '/nowhere' can't be reached. Start it."),
    (
        {"source": {"password": "wrong"}},
        "The server refused the login with *********(redacted). Check user and password.",
    ),
    ({"sink": {"path": "/unwritable"}}, "The folder '/unwritable' can't be written. Name another."),
    (
        {"source": {"type": "nothing"}},
        "Unknown source 'nothing'. Known: db2, folder, kafka, mysql, oracle, postgresql, sqlserver.",
    ),
    ({"source": {"type": "mariadb"}}, "Unknown source 'mariadb'. Use 'mysql', which is for MariaDB too."),
]


@pytest.mark.smoke("line 5*", "Table *")
@pytest.mark.parametrize(("change", "sentence"), MISTAKES, ids=[sentence[:40] for _, sentence in MISTAKES])
def test_a_mistake_is_one_sentence_and_2(tmp_path: Path, change: dict[str, dict[str, object]], sentence: str) -> None:
    done = headrace("run", str(pipeline(tmp_path, **change)))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(sentence + "\n")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["commits", "pipeline.yaml"]


def test_a_missing_file_and_broken_yaml(tmp_path: Path) -> None:
    done = headrace("run", str(tmp_path / "no.yaml"))
    assert (done.returncode, done.stderr) == (
        2,
        f"There is no pipeline file '{tmp_path / 'no.yaml'}'. Check the path.\n",
    )
    (tmp_path / "bad.yaml").write_text("source:\n  type: [folder\nsink: 1\n")
    done = headrace("run", str(tmp_path / "bad.yaml"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tmp_path / 'bad.yaml'}, line 3: This is not valid YAML")


def test_debug_shows_the_trace_without_secrets(tmp_path: Path) -> None:
    done = headrace("run", str(pipeline(tmp_path, {"password": "wrong"})), "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "wrong" not in done.stderr.replace("what is wrong", "")


def test_a_mistake_is_told_before_spark_is_loaded(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom headrace.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    sys.exit('pyspark' in sys.modules)\n"
    )
    file = pipeline(tmp_path, {"hostname": "/nowhere"})
    done = subprocess.run(
        [sys.executable, "-c", program, "run", str(file)], env=environment(), capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == 0


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.system
def test_a_run_goes_on_after_a_kill_and_after_ctrl_c(tmp_path: Path) -> None:
    from headrace_standins import commit_changes, written

    file = pipeline(tmp_path)
    for n in (1, 2, 3, 4):
        commit_changes(tmp_path / "commits", n, [("dbo.a", "c", str(n))])
    killed = headrace(
        "run",
        str(file),
        HEADRACE_FAULT_DIR=str(tmp_path),
        HEADRACE_FAULT_SPARE=str(os.getsid(0)),
        HEADRACE_FAULTPOINTS="pipeline.sink.1.written=kill",
    )
    assert killed.returncode == -signal.SIGKILL
    gate = tmp_path / "gate"
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(file)],
        env=environment(HEADRACE_FAULT_DIR=str(tmp_path), HEADRACE_FAULTPOINTS=f"pipeline.batch.entered=hold:{gate}@3"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    reached = gate.with_name("gate.reached")
    until(lambda: reached.exists() or process.poll() is not None, "the third batch is begun")
    assert process.poll() is None, process.stderr and process.stderr.read()
    # The third batch is inside: Ctrl-C must let it finish, and must not begin the fourth.
    process.send_signal(signal.SIGINT)
    gate.touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    again = f"{program('headrace')} run {file}"
    assert out.endswith(f"Stopped. To continue where it stopped, run: {again}\n")
    # The batch of the run that was killed came once more.
    assert [(n, texts) for n, _, texts in written(tmp_path / "out")][:2] == [(0, ["c 1"])] * 2
    assert len(written(tmp_path / "out")) < 5 or (tmp_path / "state/commits/3").exists()

    done = headrace("run", str(file), "--once", "--ui", "--ui-port", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Watch it at http://127.0.0.1:" in done.stdout
    assert "batch 2: 1 insert in dbo.a; " in out + done.stdout
    assert done.stdout.endswith("The sinks have everything that the source had.\n")
    assert [texts for _, _, texts in written(tmp_path / "out")] == [["c 1"], ["c 1"], ["c 2"], ["c 3"], ["c 4"]]
    assert (last_words(tmp_path).figures["troubles"], last_words(tmp_path).every) == ([], 2)


def last_words(folder: Path) -> KeptFigures:
    found = KeptFigures.from_text((folder / "state" / FILE).read_text())
    assert found is not None
    return found


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.system
def test_an_error_in_the_middle_is_one_sentence(tmp_path: Path) -> None:
    from headrace_standins import commit_changes

    file = pipeline(tmp_path, sink={"fails": "1"})
    commit_changes(tmp_path / "commits", 1, [("dbo.a", "c", "1")])
    done = headrace("run", str(file), "--once")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "The target belongs to another pipeline. Take it over."
    assert "Traceback" not in done.stderr
    [trouble] = last_words(tmp_path).figures["troubles"]
    assert (trouble["sentence"], trouble["fatal"]) == ("The target belongs to another pipeline.", True)
