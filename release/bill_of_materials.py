"""The bill of materials in CycloneDX's JSON, and the licences for people; the same input gives the same bytes."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Sequence

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component as Listed
from cyclonedx.model.component import ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from release.component import Component

_HEADRACE = re.compile(r"headrace(?!-)")
_EMULATORS = re.compile(r"headrace-emulators")


def cyclonedx(version: str, components: Sequence[Component], made: dt.datetime) -> str:
    """The bill of materials of Headrace and its emulators.

    Args:
        version: Headrace's.
        components: what they need.
        made: when the release was made.
    """
    root = _own("headrace", version)
    emulators = _own("headrace-emulators", version)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([version, *(one.purl for one in components)]))
    bom = Bom(serial_number=serial, metadata=BomMetaData(component=root, timestamp=made))
    listed = {one.purl: _listed(one) for one in components}
    bom.components.update([emulators, *listed.values()])
    of_headrace = [one for one in components if any(map(_HEADRACE.match, one.needed_by))]
    of_emulators = [one for one in components if any(map(_EMULATORS.match, one.needed_by))]
    bom.register_dependency(root, [listed[one.purl] for one in of_headrace])
    bom.register_dependency(emulators, [root, *(listed[one.purl] for one in of_emulators)])
    for one in components:
        bom.register_dependency(listed[one.purl], [listed[need] for need in one.needs])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1) + "\n"


def licence_list(version: str, spark: str, components: Sequence[Component]) -> str:
    """The licences of everything, a line each."""
    rows = [
        (f"{one.group}:{one.name}".lstrip(":"), one.version or "(any)", one.licence, ", ".join(one.needed_by))
        for one in components
    ]
    name, number, licence = (max(len(row[place]) for row in rows) for place in range(3))
    lines = [f"{row[0]:{name}}  {row[1]:{number}}  {row[2]:{licence}}  {row[3]}\n" for row in rows]
    head = f"""\
Headrace {version} and headrace-emulators {version} are under the Apache License 2.0.

They need the following: Python packages of PyPI, and Java libraries that Spark {spark} downloads from Maven. They
contain none of it but what says so. Each line has the name, the version, the licence (SPDX), and what needs it.

"""
    return head + "".join(lines)


def _own(name: str, version: str) -> Listed:
    return Listed(
        type=ComponentType.APPLICATION if name == "headrace" else ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=f"pkg:pypi/{name}@{version}",
        purl=PackageURL("pypi", None, name, version),
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )


def _listed(one: Component) -> Listed:
    return Listed(
        type=ComponentType.LIBRARY,
        group=one.group or None,
        name=one.name,
        version=one.version or None,
        bom_ref=one.purl,
        purl=PackageURL.from_string(one.purl),
        licenses=[LicenseFactory().make_from_string(one.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one.sha256)] if one.sha256 else [],
    )
