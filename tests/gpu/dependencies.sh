#!/usr/bin/env bash
# Collects the libraries for building ringtape, for a GPU machine without these libraries and without a network.
set -euo pipefail
# shellcheck source=.ci/quietly.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../.ci/quietly.sh"

usage() {
  cat <<'USAGE'
Usage: tests/gpu/dependencies.sh FOLDER

Unpacks Debian packages into FOLDER/usr, without installing them; tests/gpu.sh --deps FOLDER builds with them on another
machine of the same architecture, as does cmake -DCMAKE_PREFIX_PATH=FOLDER/usr. A FOLDER made by an earlier call is
replaced. Needs apt-get and its package lists.
USAGE
}

case "${1:-}" in
  -h | --help) usage && exit ;;
  -*) die "unknown argument '$1'; --help explains" 2 ;;
esac
(($# == 1)) || die "expected one folder; --help explains" 2
command -v apt-get >/dev/null || die "there is no apt-get here"
folder=$1
[[ ! -e $folder || -f $folder/packages.txt ]] || rmdir "$folder" 2>/dev/null ||
  die "$folder exists and was not made by this script"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=(libgtest-dev libgmock-dev libbenchmark-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev
  zlib1g-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libtiff-dev libssl-dev libeigen3-dev libdlpack-dev
  libcpp-httplib-dev libbrotli-dev libjs-dygraphs)

# Of some, only shared libraries are packaged, in a package whose name has a version; those of TIFF need further ones.
shared_libraries() { # PACKAGE...
  local names='libbenchmark|libfmt|libtomlplusplus|zlib|libjpeg|libpng|libwebp|libsharpyuv|libtiff|libdeflate|libjbig'
  names+='|liblerc|liblzma|libzstd|libssl|libcpp-httplib|libbrotli'
  apt-cache depends --no-recommends --no-suggests "$@" |
    sed -nE 's/^ *Depends: (([a-z-]+)[0-9].*)/\2 \1/p' | sed -nE "s/^($names) //p"
}
add_shared_libraries() {
  local more
  mapfile -t more < <(shared_libraries libbenchmark-dev libfmt-dev libtomlplusplus-dev zlib1g-dev libjpeg62-turbo-dev \
    libpng-dev libwebp-dev libtiff-dev libssl-dev libcpp-httplib-dev libbrotli-dev)
  mapfile -t more < <(printf '%s\n' "${more[@]}" && shared_libraries "${more[@]}")
  mapfile -t -O "${#packages[@]}" packages < <(printf '%s\n' "${more[@]}" | sort -u)
}

download() {
  (cd "$work" && apt-get -q -o Acquire::Retries=3 -o APT::Sandbox::User=root \
    download "${packages[@]}" >download.log 2>&1 </dev/null)
}

add_shared_libraries
if ! download; then
  if ((EUID == 0)); then apt-get -q update >"$work/update.log" 2>&1 </dev/null || true; fi
  if ! download; then
    tail -n 5 "$work/download.log" >&2
    die "apt-get could not download them: ${packages[*]}"
  fi
fi
for deb in "$work"/*.deb; do dpkg -x "$deb" "$work/root"; done

# What a compiler needs of it: headers and libraries, without a folder for the architecture among
# the headers, since zlib.h includes one that lies there; and the licences.
usr=$work/kept/usr
mkdir -p "$usr/include" "$usr/lib" "$usr/share"
cp -a "$work/root/usr/include/." "$usr/include"
for triplet in "$usr"/include/*-linux-gnu; do
  if [[ -d $triplet ]]; then cp -a "$triplet/." "$usr/include" && rm -r "$triplet"; fi
done
for lib in "$work"/root/usr/lib "$work"/root/lib; do
  if [[ -d $lib ]]; then cp -a "$lib/." "$usr/lib"; fi
done
cp -a "$work"/root/usr/share/{cmake,eigen3,javascript,pkgconfig} "$usr/share"
for copyright in "$work"/root/usr/share/doc/*/copyright; do
  name=${copyright%/copyright}
  install -D -m 644 "$copyright" "$usr/share/licenses/${name##*/}"
done

# Points broken and absolute links to the file beside them, or removes them: those to /lib would find another machine's
# library, or none.
while IFS= read -r link; do
  target=$(readlink "$link")
  rm "$link"
  if [[ -e ${link%/*}/${target##*/} ]]; then ln -s "${target##*/}" "$link"; fi
done < <(find "$usr" -type l ! -xtype f; find "$usr" -type l -lname '/*')
while IFS= read -r file; do
  up=../../..
  [[ $file == "$usr"/share/* ]] && up=../..
  sed -i "s|=/usr|=\${pcfiledir}/$up|" "$file"
done < <(find "$usr" -name '*.pc')

for wanted in include/{gtest/gtest.h,gmock/gmock.h,benchmark/benchmark.h,CLI/CLI.hpp,fmt/core.h,nlohmann/json.hpp} \
  include/{toml++/toml.h,zlib.h,zconf.h,jpeglib.h,png.h,tiffio.h,webp/decode.h,openssl/evp.h} \
  include/{eigen3/Eigen/Core,dlpack/dlpack.h} \
  include/{httplib.h,brotli/decode.h} \
  lib/*/{libjpeg.so,libpng.so,libwebp.so,libtiff.so,libcrypto.so,libcpp-httplib.so,libgtest.a,libgmock.a} \
  share/javascript/dygraphs/dygraph.min.js \
  lib/*/{libbenchmark.so,libfmt.so,libtomlplusplus.so,libz.a}; do
  compgen -G "$usr/$wanted" >/dev/null || die "the packages hold no $wanted"
done

for deb in "$work"/*.deb; do
  dpkg-deb -W --showformat="\${Package} \${Version} \${Architecture}\\n" "$deb"
done >"$work/kept/packages.txt"
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
cp -a "$work/kept" "$folder"
cat "$folder/packages.txt"
echo "dependencies.sh: $(wc -l <"$folder/packages.txt") packages, $(du -sh "$folder" | cut -f1) in $folder"
