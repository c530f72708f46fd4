"""`python -m release`: build both distributions into `dist/`, and list what they need with its licences.

The same commit gives the same bytes in the same environment: every time in what is built is `SOURCE_DATE_EPOCH`, by
default that of the commit. Stops before it writes a list where a licence is not among those of `licences.toml`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from headrace.spark.releases import running_version
from headrace.versions import __version__
from release.bill_of_materials import cyclonedx, licence_list
from release.component import Component, Licences
from release.jars import java_libraries
from release.python_packages import python_packages

TREE = Path(__file__).parents[1]


def build(into: Path) -> None:
    """Wheels and source distributions, their lists and `SHA256SUMS`, in place of what the folder holds."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _commit_time()
    shutil.rmtree(into, ignore_errors=True)
    for project in (TREE, TREE / "src/headrace_emulators"):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), str(project)]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    licences = Licences()
    packages = python_packages(sorted(into.glob("*.whl")), licences)
    jars = java_libraries(licences)
    _refuse([*licences.contained, *packages], jars, licences)
    listed = [*licences.contained, *packages, *jars]
    spark = running_version()
    name = f"headrace-{__version__}-spark-{spark}"
    made = dt.datetime.fromtimestamp(int(epoch), dt.UTC)
    (into / f"{name}.licences.txt").write_text(licence_list(__version__, spark, listed), encoding="utf-8")
    (into / f"{name}.cdx.json").write_text(cyclonedx(__version__, listed, made), encoding="utf-8")
    files = sorted(file for file in into.iterdir() if file.is_file())
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in files]
    (into / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    print(f"{len(files)} files in {into}: {len(packages)} Python packages and {len(jars)} Java libraries are listed.")


def _commit_time() -> str:
    asked = ["git", "-C", str(TREE), "log", "-1", "--format=%ct"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise SystemExit("This is no Git work tree, so the time of the release is not known. Set SOURCE_DATE_EPOCH.")
    return done.stdout.strip()


def _refuse(packages: list[Component], jars: list[Component], licences: Licences) -> None:
    named = [(one, one.name) for one in packages] + [(one, f"{one.group}:{one.name}") for one in jars]
    refused = [f"{name} {one.version}: {one.licence}" for one, name in named if licences.refused(one, name)]
    if refused:
        raise SystemExit("Licences that nobody allowed (release/licences.toml):\n" + "\n".join(refused))


if __name__ == "__main__":
    build(Path(sys.argv[1]) if sys.argv[1:] else TREE / "dist")
