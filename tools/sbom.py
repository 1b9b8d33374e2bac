"""Prints a list of the crates in Outboard's libraries and programs (CycloneDX, JSON) from what `cargo metadata` says: sbom.py [CRATE...] <METADATA
The crates are those of the library and its programs, unless others are named."""
import json, sys
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL

SHIPPED = set(sys.argv[1:]) or {"outboard-standard", "outboard-mpich", "outboard-fortran", "outboard-fortran-mpich", "outboard-programs"}
metadata = json.load(sys.stdin)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}


def component(package, kind):
    licence = [LicenseFactory().make_from_string(package["license"])] if package["license"] else []
    place = PackageURL("cargo", name=package["name"], version=package["version"]) if package["source"] else None
    return Component(name=package["name"], version=package["version"], type=kind, licenses=licence, purl=place, bom_ref=package["id"])


# Crates for tests and for building are not in what is shipped.
wanted, found = [key for key, package in packages.items() if package["name"] in SHIPPED], set()
while wanted:
    key = wanted.pop()
    if key not in found:
        found.add(key)
        wanted += [edge["pkg"] for edge in nodes[key]["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
bom = Bom()
version = next(package["version"] for package in packages.values() if package["name"] in SHIPPED)
bom.metadata.component = Component(name=sys.argv[1] if sys.argv[1:] else "outboard", version=version, type=ComponentType.LIBRARY)
for key in sorted(found):
    bom.components.add(component(packages[key], ComponentType.LIBRARY))
bom.register_dependency(bom.metadata.component, bom.components)
print(JsonV1Dot5(bom).output_as_string(indent=1))
