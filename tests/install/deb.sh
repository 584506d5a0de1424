#!/usr/bin/env bash
# What is in the Debian packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=.ci/quietly.sh
source .ci/quietly.sh
# shellcheck source=tests/install/packages.sh
source tests/install/packages.sh

usage() {
  cat <<'USAGE'
Usage: tests/install/deb.sh [--packages FOLDER]

Checks the Debian packages: their fields, their files, lintian (errors fail, warnings are printed), and that the program
runs wherever they are unpacked. tests/install/root.sh installs them.
  --packages FOLDER  what `cmake --workflow --preset package` has built [build/package]
USAGE
}

packages_argument "$@"
find_packages "$packages"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

field() { dpkg-deb --field "$1" "$2"; } # PACKAGE NAME
has() { # FILE PATTERN...: each is that of a path in it
  local pattern
  for pattern in "${@:2}"; do grep -qE "$pattern" "$work/$1" || die "$1 has no $pattern"; done
}
for package in "$program" "$development"; do
  name=$(field "$package" Package)
  dpkg-deb --fsys-tarfile "$package" | tar -t | grep -v '/$' | sort >"$work/$name"
  dpkg-deb --extract "$package" "$work/root"
  printf '%-12s %4d files, %4.1f MB, installed %4.1f MB; needs %s\n' "$name" "$(wc -l <"$work/$name")" \
    "$(stat -c %s "$package")e-6" "$(dpkg-deb --contents "$package" | awk '{ n += $3 } END { print n }')e-6" \
    "$(field "$package" Depends)"
done
both=$(comm -12 "$work/ringtape" "$work/ringtape-dev")
[[ ! $both ]] || die "both packages have $both"
has ringtape '^./usr/bin/ringtape$' 'lib/[^/]*/libringtape\.so\.[0-9.]*$' '/man1/ringtape\.1\.gz$' \
  '/doc/ringtape/copyright$' '/doc/ringtape/docs/tutorial\.md$' '/doc/ringtape/docs/examples/02_mlp\.cpp$' \
  '/doc/ringtape/configs/fine_tune\.toml$'
has ringtape-dev '^./usr/include/ringtape/nn/nn\.h$' '/libringtape\.so$' '/libringtape\.a$' '/ringtapeConfig\.cmake$' \
  '/pkgconfig/ringtape\.pc$'
own='bin/ringtape$|include/ringtape/|lib/[^/]+/(libringtape\.|cmake/ringtape/|pkgconfig/ringtape\.pc$)'
own+='|share/(doc/ringtape(-dev)?/|man/man1/ringtape\.1)'
outside=$(grep -hvE "^./usr/($own)" "$work/ringtape" "$work/ringtape-dev") || true
[[ ! $outside ]] || die "paths that other packages may have: $outside"

# What it needs is what it is linked with; the library's version is the package's.
for library in libc6 libfmt libjpeg libpng16 libtiff libwebp libssl; do
  [[ $(field "$program" Depends) == *"$library"* ]] || die "ringtape does not depend on $library"
done
[[ $(field "$development" Depends) == *"ringtape (= $(field "$program" Version))"* ]] ||
  die "ringtape-dev does not depend on its own version of ringtape"
read -ra statics < <(sed -nE 's/.*foreach\(library (.*)\)/\1/p' cmake/ringtapeConfig.cmake.in)
((${#statics[@]})) || die "no libraries found in cmake/ringtapeConfig.cmake.in"
for static in "${statics[@]}" webp cpp-httplib; do
  case $static in OpenSSL) static=ssl ;; ZLIB) static=zlib1g ;; esac
  [[ $(field "$development" Depends) == *"${static,,}"*-dev* ]] || die "ringtape-dev does not depend on $static"
done

"$work/root/usr/bin/ringtape" doctor >"$work/log" || { cat "$work/log" >&2 && die "ringtape doctor fails"; }
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error "$program" "$development" || die "lintian finds errors"
else
  echo "not checked by lintian: it is not installed"
fi
