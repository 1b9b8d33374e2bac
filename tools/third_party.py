# SPDX-License-Identifier: BSD-3-Clause
"""What others wrote of what is in our programs and libraries: third_party.py library|monitor --to FILE writes their names and the texts
of their licences; with --debian it writes a copyright file in Debian's form (DEP-5) instead.

Crates are those that cargo links into what is shipped: no proc-macros, nothing of builds and tests. Beside the library lies libfabric, where
tools/libfabric has built it. The monitor's page has packages of npm, as package-lock.json names them. `tools/sbom.py` writes the same list for programs."""
import argparse, hashlib, json, re, shutil, subprocess, sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Members of a workspace that are not shipped.
TOOLS = {"outboard-xtask"}
TEXTS = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
# The place of the texts in Debian's packages.
PLACE = {"library": "/usr/share/doc/outboard/THIRD-PARTY.gz", "monitor": "/usr/share/doc/outboard-monitor/THIRD-PARTY.gz"}
# The text for a package that has this licence and brings no text.
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE
SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


@dataclass(frozen=True)
class Package:
    """A package that is linked or bundled. `is_ours` says that it is a member of a workspace of this repository."""

    kind: str
    name: str
    version: str
    licence: str
    authors: str
    folder: Path
    is_ours: bool

    def texts(self):
        found = [path for path in sorted(self.folder.rglob("*")) if TEXTS.match(path.name) and path.is_file() and path.suffix not in {".rs", ".js", ".ts", ".c", ".h"}]
        if found:
            return [path.read_text(errors="replace").strip() for path in found]
        if "MIT" in self.licence:
            return [f"Copyright (c) {self.authors or f'the authors of {self.name}'}\n\n{MIT}".strip()]
        sys.exit(f"third_party: {self.name} {self.version} ({self.licence}) brings no text of its licence")


def crates(manifest):
    """The crates that are linked into what the workspace of this manifest ships."""
    host = re.search("host: (.*)", subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout)[1]
    asked = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host, "--manifest-path", manifest]
    metadata = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    wanted, found = [key for key in metadata["workspace_members"] if packages[key]["name"] not in TOOLS], set()
    while wanted:
        key = wanted.pop()
        if key in found or any("proc-macro" in target["kind"] for target in packages[key]["targets"]):
            continue
        found.add(key)
        wanted += [edge["pkg"] for edge in nodes[key]["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
    for package in (packages[key] for key in found):
        authors = ", ".join(re.sub(" <.*", "", author) for author in package["authors"])
        yield Package("cargo", package["name"], package["version"], package["license"] or "", authors, Path(package["manifest_path"]).parent, not package["source"])


def libfabric():
    """The libfabric that tools/libfabric has built."""
    for text in (ROOT / ".cache/libfabric").glob("libfabric-*/COPYING"):
        folder = text.parent
        yield Package("generic", "libfabric", folder.name.split("-")[1], "BSD-2-Clause OR GPL-2.0-only", "Intel Corporation, Cisco Systems, Inc., and others", folder, False)


def scripts(page):
    """The packages that are bundled into the monitor's page; empty if npm has not fetched them."""
    for place, package in json.loads((page / "package-lock.json").read_text())["packages"].items():
        folder = page / place
        if place and not package.get("dev") and not package.get("peer") and folder.exists():
            yield Package("npm", place.split("node_modules/")[-1], package["version"], package.get("license", ""), "", folder, False)


def shipped(part):
    """All parts of the library with its programs, or of the monitor, in order. Parts of this repository are
    included."""
    if part == "library":
        found = [*crates(ROOT / "Cargo.toml"), *libfabric()]
    else:
        found = [*crates(ROOT / "monitor/Cargo.toml"), *scripts(ROOT / "monitor/web")]
    return sorted(found, key=lambda package: (package.kind, package.name, package.version))


def write(packages, to):
    texts = {}
    for package in packages:
        for text in package.texts():
            key = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            texts.setdefault(key, (text, []))[1].append(f"{package.name} {package.version}")
    line = "=" * 100
    with to.open("w") as file:
        print("Programs and libraries of Outboard contain code of the packages below. The texts of their licences follow; where", file=file)
        print("a package offers several, Outboard takes Apache-2.0, MIT or BSD-2-Clause. SQLite, in outboard-monitor, is in the public domain.", file=file)
        print("The Rust standard library is under MIT or Apache-2.0; THIRD-PARTY-rust.html has the notices of its parts.\n", file=file)
        for package in packages:
            print(f"{package.kind} {package.name} {package.version}: {package.licence}", file=file)
        for text, users in sorted(texts.values(), key=lambda entry: entry[1]):
            print(f"\n{line}\n{', '.join(users)}\n{line}\n\n{text}", file=file)


def debian(part, packages, to):
    """https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"""
    indented = lambda text: "\n".join(f" {line.rstrip() or '.'}" for line in text.strip().splitlines())
    ours = (ROOT / "LICENSE").read_text().split("\n\n", 2)[2]
    with to.open("w") as file:
        print("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/", file=file)
        print("Upstream-Name: outboard", file=file)
        print("Comment: Programs and libraries contain the packages of crates.io and npm that are named below by folders of their own.", file=file)
        print(f" {PLACE[part]} has the text and the notices of each.", file=file)
        print(f"\nFiles: *\nCopyright: 2026 The Outboard authors\nLicense: BSD-3-Clause\n{indented(ours)}", file=file)
        named = {}
        for package in packages:
            licence = package.licence.replace("/", " or ").replace(" OR ", " or ").replace(" AND ", " and ").replace("(", "").replace(")", "")
            named.setdefault(licence, []).append(package)
        for licence, users in named.items():
            files = "\n ".join(f"{package.kind}/{package.name}-{package.version}/*" for package in users)
            owners = "\n ".join(sorted({package.authors or f"the authors of {package.name}" for package in users}))
            print(f"\nFiles:\n {files}\nCopyright:\n {owners}\nLicense: {licence}", file=file)
        for licence in sorted({name for licence in named for name in re.split(" or | and ", licence)} - {"BSD-3-Clause"}):
            where = "/usr/share/common-licenses/Apache-2.0" if licence == "Apache-2.0" else PLACE[part]
            print(f"\nLicense: {licence}\n The text is in {where}.", file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PLACE])
    parser.add_argument("--to", type=Path, required=True, help="the file; notices of Rust's library go beside it, to FILE-rust.html")
    parser.add_argument("--debian", action="store_true", help="Debian's form")
    arguments = parser.parse_args()
    part, to = arguments.part, arguments.to
    packages = [package for package in shipped(part) if not package.is_ours]
    if arguments.debian:
        return debian(part, packages, to)
    write(packages, to)
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    rust = Path(sysroot) / "share/doc/rust/COPYRIGHT-library.html"
    if rust.exists():
        shutil.copyfile(rust, to.with_name(f"{to.name}-rust.html"))


if __name__ == "__main__":
    main()
