"""Rules: the built wheel works in an environment that has nothing else, and says the version that the code says; what
it needs has licences that somebody allowed."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from release.component import Component, Licences
from release.python_packages import python_packages

from headrace.versions import __version__

TREE = Path(__file__).parents[1]
EMULATORS = TREE / "src/headrace_emulators"
ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_every_locked_package_runs_on_the_oldest_python_that_the_project_promises() -> None:
    """Debian 12 has 3.11.2, for one: a package that asks for a later patch release ends `make setup` there."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = f"{project['requires-python'].removeprefix('>=')}.0"
    locked = re.findall(r"^([\w.-]+)==", (TREE / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    needed = {name: importlib.metadata.metadata(name).get("Requires-Python") or "" for name in locked}
    assert {name: needs for name, needs in needed.items() if not SpecifierSet(needs).contains(oldest)} == {}


def wheel(project: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(into), str(project)], check=True, env=ALONE)
    [made] = into.glob("*.whl")
    return made


@pytest.mark.system
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    made = wheel(TREE, tmp_path / "dist")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python)]
    subprocess.run([*pip, "install", "--only-binary", ":all:", "--no-compile", str(made)], check=True, env=ALONE)

    def headrace(*arguments: str) -> str:
        command = [str(python.parent / "headrace"), *arguments]
        given = {**ALONE, "PASSWORD": "secret"}
        return subprocess.run(command, check=True, env=given, cwd=tmp_path, capture_output=True, text=True).stdout

    assert headrace("--version") == f"headrace {__version__}\n"
    assert "Change data capture for Apache Spark" in headrace("--help")
    named = ["--source", "postgresql", "--sink", "files", "--password-env", "PASSWORD"]
    headrace("init", "pipeline.yaml", *named)
    told = headrace("check", "pipeline.yaml", "--level", "static")
    assert "from postgresql to files" in told and "PySpark is not installed here" in told


@pytest.mark.system
def test_the_emulators_are_of_the_same_version_and_need_that_one(tmp_path: Path) -> None:
    made = wheel(EMULATORS, tmp_path)
    assert made.name == f"headrace_emulators-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(made) as archive:
        said = archive.read(f"headrace_emulators-{__version__}.dist-info/METADATA").decode()
        assert not [name for name in archive.namelist() if "hatch" in name]
    assert f"Requires-Dist: headrace[delta,spark]=={__version__}\n" in said


@pytest.mark.parametrize(
    ("licence", "refused"),
    [
        ("MIT", False),
        ("BSD-3-Clause AND MIT", False),
        ("GPL-3.0-only OR MIT", False),
        ("BSD-3-Clause AND GPL-3.0-only", True),
        ("GPL-3.0-only", True),
    ],
)
def test_a_licence_that_nobody_allowed_is_refused(licence: str, refused: bool) -> None:
    one = Component("pkg:pypi/x@1", "", "x", "1", licence, ("headrace",))
    assert Licences().refused(one, "x") is refused
    # Unless somebody decided on that package.
    assert not Licences().refused(one, "psycopg")


def test_a_package_that_says_no_licence_stops_until_somebody_looked_it_up() -> None:
    assert Licences().of("x", ["something", "Apache Software License"]) == "Apache-2.0"
    with pytest.raises(SystemExit, match="The licence of x is not known"):
        Licences().of("x", ["something"])
    assert Licences().of("numba", []) == "BSD-2-Clause"


def test_files_of_others_are_named_with_the_licence_that_lies_beside_them() -> None:
    said = tomllib.loads((TREE / "release/licences.toml").read_text(encoding="utf-8"))["contained"]
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [one.name for one in Licences().contained] == list(said) == ["uPlot"]
    for name, one in said.items():
        assert f"{one['folder']}/LICENSE" in project["license-files"]
        assert one["licence"] in project["license"].split(" AND ")
        assert one["licence"] in (TREE / one["folder"] / "LICENSE").read_text(encoding="utf-8")
        [script] = (TREE / one["folder"]).glob("*.js")
        assert f"{name} (v{one['version']})" in script.read_text(encoding="utf-8")[:200]


def test_what_a_wheel_needs_is_listed_with_what_that_needs_and_as_what(tmp_path: Path) -> None:
    made = tmp_path / "own-1-py3-none-any.whl"
    said = "Metadata-Version: 2.4\nName: own\nVersion: 1\nProvides-Extra: more\nProvides-Extra: dev\n"
    needs = ("rich", "oracledb>=3; extra == 'more'", "mypy; extra == 'dev'", "own[more]; extra == 'dev'")
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("own-1.dist-info/METADATA", said + "".join(f"Requires-Dist: {need}\n" for need in needs))
    found = {one.name: one for one in python_packages([made], Licences())}
    assert {name: one.needed_by for name, one in found.items()} == {
        **dict.fromkeys(("rich", "markdown-it-py", "mdurl", "pygments"), ("own",)),
        "oracledb": ("own[more]",),
    }
    assert [need.split("@")[0] for need in found["rich"].needs] == ["pkg:pypi/markdown-it-py", "pkg:pypi/pygments"]
    assert (found["oracledb"].version, found["oracledb"].licence) == ("", "Apache-2.0 OR UPL-1.0")


def test_the_bill_of_materials_has_licences_hashes_and_who_needs_what_and_the_same_input_gives_the_same_bytes() -> None:
    # Of the build alone: who runs the tests with other packages can do without it.
    pytest.importorskip("cyclonedx")
    from release.bill_of_materials import cyclonedx, licence_list

    jar = Component("pkg:maven/g/j@1.0", "g", "j", "1.0", "BSD-2-Clause", ("headrace (Delta)",), "ab" * 32)
    lib = Component("pkg:pypi/lib@2", "", "lib", "2", "MIT", ("headrace[more]",), needs=("pkg:pypi/low@1",))
    low = Component("pkg:pypi/low@1", "", "low", "1", "MIT OR Apache-2.0", ("headrace[more]", "headrace-emulators"))
    made = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    text = cyclonedx("7.1.0", [jar, lib, low], made)
    assert text == cyclonedx("7.1.0", [jar, lib, low], made)
    said = json.loads(text)
    assert said["metadata"]["timestamp"] == "2026-01-02T00:00:00+00:00"
    found = {one["bom-ref"]: one for one in said["components"]}
    assert found.keys() == {jar.purl, lib.purl, low.purl, "pkg:pypi/headrace-emulators@7.1.0"}
    assert found[jar.purl]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert found[low.purl]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    needs = {one["ref"]: one.get("dependsOn", []) for one in said["dependencies"]}
    assert needs["pkg:pypi/headrace@7.1.0"] == [jar.purl, lib.purl, low.purl]
    assert needs["pkg:pypi/headrace-emulators@7.1.0"] == ["pkg:pypi/headrace@7.1.0", low.purl]
    assert needs[lib.purl] == [low.purl]
    assert re.search(r"^g:j +1\.0 +BSD-2-Clause +headrace \(Delta\)$", licence_list("7.1.0", "4.0", [jar, lib]), re.M)
