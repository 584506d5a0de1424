#!/usr/bin/env python3
"""Makes a wheel of the program and the libraries it needs: package/wheel.py PROGRAM VERSION FOLDER PACKAGE...

pip puts the program on the PATH, the libraries into lib/ringtape beside it, and the module ringtape. The wheel's
tag names the oldest glibc that has all symbols it needs. Licences are those of LICENSE, of the libraries and of each
PACKAGE, one of Debian's whose code is compiled in.
"""
import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What every Linux of the tag has: those of PEP 600's policies that ringtape could need.
EVERYWHERE = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|z))\.so.*")
METADATA = """Metadata-Version: 2.1
Name: ringtape
Version: {version}
Summary: Trains neural networks in C++: the program ringtape, and a module that loads what it has trained
License: MIT
Description-Content-Type: text/markdown

The program `ringtape`, to train neural networks on images: `ringtape --help`. It needs no other package. In Python,
`import ringtape` loads trained networks into PyTorch, predicts, embeds and lists runs: `help(ringtape)`.
"""


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"wheel.py: error: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def libraries(program):
    """{name: path} of those that the wheel must have."""
    found = re.findall(r"^\s*(\S+) => (.*?)(?: \(0x\w+\))?$", output("ldd", str(program)), re.M)
    out = {name: Path(path) for name, path in found if not EVERYWHERE.fullmatch(name)}
    missing = [name for name, path in out.items() if not path.is_file()]
    if missing:
        sys.exit(f"wheel.py: error: {program} needs {', '.join(missing)}, not found on this machine")
    return out


def tag(files):
    """That of the newest version of glibc's symbols."""
    text = "".join(output("objdump", "-T", str(file)) for file in files)
    minor = max(int(version) for version in re.findall(r"GLIBC_2\.(\d+)", text))
    machine = output("uname", "-m").strip()
    return f"py3-none-manylinux_2_{minor}_{machine}"


def licences(carried, packages):
    """(file's name, content) of ringtape and of what the wheel has besides."""
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    packages = set(packages)
    for path in carried:
        packages.add(output("dpkg", "-S", f"*/{path.resolve().name}").split(":")[0])
    for package in sorted(packages):
        yield f"{package}.txt", Path("/usr/share/doc", package, "copyright").read_bytes()


def pages():
    """What cmake/library.cmake installs for reading: the pages with their examples, and the recipes."""
    of_build = re.compile(r"docs/([^/]*\.py|Doxyfile)")
    all_files = [ROOT / "README.md", *(ROOT / "docs").rglob("*"), *(ROOT / "configs").rglob("*")]
    return sorted(p for p in all_files if p.is_file() and not of_build.fullmatch(str(p.relative_to(ROOT))))


def main(program, version, folder, *packages):
    carried = libraries(program)
    name = f"ringtape-{version}"
    kind = tag([program, *carried.values()])
    files = [(f"{name}.data/scripts/ringtape", Path(program).read_bytes(), 0o755)]
    files += [("ringtape.py", (ROOT / "package/ringtape.py").read_bytes(), 0o644)]
    files += [(f"{name}.data/data/lib/ringtape/{n}", p.read_bytes(), 0o644) for n, p in sorted(carried.items())]
    files += [(f"{name}.data/data/share/doc/ringtape/{p.relative_to(ROOT)}", p.read_bytes(), 0o644) for p in pages()]
    info = f"{name}.dist-info"
    files += [(f"{info}/licenses/{n}", content, 0o644) for n, content in licences(carried.values(), packages)]
    wheel = f"Wheel-Version: 1.0\nGenerator: ringtape {version}\nRoot-Is-Purelib: false\nTag: {kind}\n"
    files += [(f"{info}/METADATA", METADATA.format(version=version).encode(), 0o644),
              (f"{info}/WHEEL", wheel.encode(), 0o644)]
    record = ""
    for path, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644))
    out = Path(folder) / f"{name}-{kind}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content, mode in files:
            entry = zipfile.ZipInfo(path)  # of 1980: the same bytes whenever it is made
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB, with {' '.join(sorted(carried))}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
