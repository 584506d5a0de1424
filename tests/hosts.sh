# Sourced by tests whose hosts are network namespaces. Before: `name` of the script, `binary`. Makes `work`, a folder.
# shellcheck shell=bash
work=$(mktemp -d)
namespaces=()
cleanup() {
  for host in "${namespaces[@]}"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -9 || true
    ip netns del "$host" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap cleanup EXIT

skip() { echo "$name: skipped: $1" && exit 77; }
fail() { echo "$name: $1" >&2 && tail -n 30 "$work"/*.log >&2 && exit 1; }

# Runs a command; where this process may not do that, the test is skipped.
permitted() { "$@" 2>"$work/error" || skip "$(cat "$work/error")"; }

# NAME...: makes namespaces of these names, which are removed at the end.
make_namespaces() {
  command -v ip >/dev/null || skip "there is no ip (apt-get install iproute2)"
  for host in "$@"; do
    permitted ip netns add "$host"
    namespaces+=("$host")
  done
  permitted ip netns exec "$1" true # as in a chroot
}
