#!/usr/bin/env bash
# NumPy 2.4.6, the newest of 2026-11: text that becomes float32.
# Guess: float32("...") is the float32 that is nearest to the number, as C's strtof gives it.
# Seen: it is rounded to float64 first and then again: 1.00000017881393432617187499, which is below the middle of two
# neighbours, becomes the upper one. The same in numpy.array, astype and loadtxt. Nine digits are not affected: each of
# a million float32 came back, so that a table of features with that many digits is exact.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --quiet --disable-pip-version-check install numpy==2.4.6
seen=$("$folder/venv/bin/python" - <<'PYTHON'
import ctypes
import io
import numpy

text = "1.00000017881393432617187499"
libc = ctypes.CDLL(None)
libc.strtof.restype, libc.strtof.argtypes = ctypes.c_float, [ctypes.c_char_p, ctypes.c_void_p]
f32 = numpy.float32
for name, value in [("strtof", libc.strtof(text.encode(), None)), ("float32", f32(text)),
                    ("array", numpy.array([text], f32)[0]), ("astype", numpy.array([text]).astype(f32)[0]),
                    ("loadtxt", numpy.loadtxt(io.StringIO(text), dtype=f32))]:
    print(name, float(value).hex())
bits = numpy.random.default_rng(0).integers(0, 2**32, 1_100_000, dtype=numpy.uint32)
numbers = bits.view(f32)
numbers = numbers[numpy.isfinite(numbers)][:1_000_000]
back = numpy.array(["%.9g" % x for x in numbers.tolist()]).astype(f32)
print("nine digits", int((back.view(numpy.uint32) != numbers.view(numpy.uint32)).sum()), "of", len(numbers), "differ")
PYTHON
)
echo "$seen"
[[ $seen == "strtof 0x1.0000020000000p+0
float32 0x1.0000040000000p+0
array 0x1.0000040000000p+0
astype 0x1.0000040000000p+0
loadtxt 0x1.0000040000000p+0
nine digits 0 of 1000000 differ" ]]
