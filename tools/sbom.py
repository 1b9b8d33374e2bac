# SPDX-License-Identifier: BSD-3-Clause
"""Prints a list of the parts of Outboard's libraries and programs, or of the monitor (CycloneDX, JSON): sbom.py
library|monitor. Needs cyclonedx-python-lib. The list has the time SOURCE_DATE_EPOCH, if that is set."""
import datetime, os, sys, uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL

from third_party import shipped


def component(package):
    licence = [LicenseFactory().make_from_string(package.licence)] if package.licence else []
    scope, _, name = package.name.rpartition("/")
    place = None if package.is_ours else PackageURL(package.kind, namespace=scope or None, name=name, version=package.version)
    return Component(name=package.name, version=package.version, type=ComponentType.LIBRARY, licenses=licence, purl=place, bom_ref=f"{package.kind}:{package.name}@{package.version}")


part = sys.argv[1]
packages = shipped(part)
version = next(package.version for package in packages if package.is_ours)
name = "outboard" if part == "library" else "outboard-monitor"
# The number depends only on the contents of the list.
bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, " ".join([name, *(f"{package.kind}:{package.name}@{package.version}" for package in packages)])))
bom.metadata.timestamp = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
bom.metadata.component = Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref=f"{name}@{version}")
for package in packages:
    bom.components.add(component(package))
bom.register_dependency(bom.metadata.component, bom.components)
print(JsonV1Dot5(bom).output_as_string(indent=1))
