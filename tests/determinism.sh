#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Same scenario and seed: byte-identical JSON.
#   determinism.sh twice BINARY   the same binary twice, with another address layout, environment and
#                                 working directory the second time
#   determinism.sh builds         g++ Release, g++ Debug and clang Release of this tree
# Exit status 77 (skipped) if clang is not installed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
scenario=$root/scenarios/library/arm64_64k/mallocstress.toml
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# An [expect] that fails (exit status 1) is another test's business.
run() {
  local status=0
  "$@" >/dev/null || status=$?
  [[ $status -le 1 ]] || { echo "exit status $status: $*"; exit 1; }
}

same() {
  if ! cmp -s "$1" "$2"; then
    echo "the results differ: $(basename "$1") and $(basename "$2")"
    diff "$1" "$2" | head -n 20
    exit 1
  fi
}

case ${1:-} in
  twice)
    binary=$(realpath "$2")
    run "$binary" run "$scenario" --quiet --json "$out/first.json"
    (cd / && run env -i TZ=Asia/Tokyo LC_ALL=C.UTF-8 PADDING="$(printf '%2000s' x)" setarch -R \
      "$binary" run "$scenario" --quiet --json "$out/second.json" </dev/null)
    [[ $(wc -c <"$out/first.json") -gt 1000 ]] || { echo "the result is empty"; exit 1; }
    same "$out/first.json" "$out/second.json"
    ;;
  builds)
    command -v clang++ >/dev/null || { echo "clang is not installed"; exit 77; }
    for preset in release dev clang; do
      "$root/dev" build "$preset"
      run "$root/build/$preset/faultline" run "$scenario" --quiet --json "$out/$preset.json"
    done
    same "$out/release.json" "$out/dev.json"
    same "$out/release.json" "$out/clang.json"
    ;;
  *)
    echo "usage: determinism.sh twice BINARY | builds" >&2
    exit 2
    ;;
esac
