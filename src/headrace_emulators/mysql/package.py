"""MySQL from Debian's packages, unpacked into Headrace's cache folder: nothing is installed, and nobody needs root.

Debian has MySQL in its unstable distribution only, so its libraries come with it, and its own dynamic loader.
`python -m headrace_emulators.mysql.package` downloads it (about 50 MB) from the mirror that this machine's apt uses.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ConnectError
from headrace.spark.java import cache_folder

FETCH = "python -m headrace_emulators.mysql.package"
"""The command that downloads it."""
_PACKAGE = "mysql-server-core"
_SUITE = "unstable"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_NOT_NEEDED = ("perl", "libperl")
"""What its scripts are run by, which nobody runs here."""


def unpacked() -> Path | None:
    """The folder of the unpacked packages, the newest where there are several; None where there is none."""
    return max(_folder().glob(f"{_PACKAGE}-*"), default=None)


def fetch() -> Path:
    """Download and unpack it, unless this version is here already.

    Raises:
        ConnectError: apt can't download it.
    """
    with tempfile.TemporaryDirectory(dir=_folder()) as name:
        draft = Path(name)
        apt = _Apt(draft)
        found = _folder() / f"{_PACKAGE}-{apt.version}"
        if not found.is_dir():
            content = draft / "content"
            for package in apt.download():
                _run("dpkg-deb", "-x", package, content)
            content.replace(found)
    return found


def _folder() -> Path:
    folder = cache_folder() / "distributions"
    folder.mkdir(exist_ok=True)
    return folder


class _Apt:
    """The machine's apt with another distribution and a folder of its own, beside what is installed.

    Args:
        folder: for its lists and downloads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        lists = folder / "lists"
        (lists / "partial").mkdir(parents=True)
        (folder / "status").touch()
        sources = folder / "sources.list"
        self._options = [
            f"-oDir::Etc::sourcelist={sources}",
            "-oDir::Etc::sourceparts=-",
            f"-oDir::State::lists={lists}",
            f"-oDir::State::status={folder / 'status'}",
            f"-oDir::Cache={folder}",
            "-oAPT::Sandbox::User=",
            "-oAcquire::Languages=none",
        ]
        sources.write_text(f"deb [signed-by={_KEYS}] {_mirror()} {_SUITE} main\n", encoding="utf-8")
        _run("apt-get", *self._options, "-q", "update")
        said = _run("apt-cache", *self._options, "policy", _PACKAGE)
        self.version = next((line.split()[1] for line in said.splitlines() if "Candidate:" in line), "(none)")
        if self.version == "(none)":
            raise ConnectError(f"Debian's {_SUITE} has no package {_PACKAGE}.", remedy="Tests with MySQL are skipped.")

    def download(self) -> Iterator[Path]:
        without = [f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")]
        said = _run("apt-cache", *self._options, "depends", "--recurse", *without, _PACKAGE)
        names = {line for line in said.splitlines() if line[:1].isalnum() and not line.startswith(_NOT_NEEDED)}
        _run("apt-get", *self._options, "-q", "download", *sorted(names), folder=self._folder)
        yield from self._folder.glob("*.deb")


def _mirror() -> str:
    """Where the machine's apt gets Debian's packages."""
    said = _run("apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(CREATED_BY) $(LABEL) $(REPO_URI)")
    for line in said.splitlines():
        if line.startswith("Debian main Packages Debian "):
            return line.split()[-1]
    raise ConnectError(f"The apt of this machine knows no mirror of Debian, which has {_PACKAGE}.")


def _run(*words: str | Path, folder: Path | None = None) -> str:
    try:
        done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        raise ConnectError(f"The program {words[0]} is needed, and this machine does not have it.") from None
    if done.returncode != 0:
        raise ConnectError(f"{words[0]} failed: {' '.join(done.stderr.split())}", remedy="Check the network.")
    return done.stdout


if __name__ == "__main__":
    try:
        print(fetch())
    except ConnectError as failure:
        sys.exit(str(failure))
