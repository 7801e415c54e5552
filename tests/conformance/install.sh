#!/usr/bin/env bash
# Installs the official conformance suite, and the Node that it needs, into
# target/conformance, at the versions pinned here. Does nothing if they are there already.
set -euo pipefail

sources="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
installed="$sources/../../target/conformance"
stamp="$installed/installed"
pins=(install.sh package.json package-lock.json)

# `cksum`, because every POSIX machine has it. Not for security: npm checks
# the lock's hashes itself.
checksums="$(cd "$sources" && cksum "${pins[@]}")"
if [[ -f "$stamp" && "$(cat "$stamp")" == "$checksums" ]]; then
    exit 0
fi

mkdir -p "$installed"
# A failed install must not look like an earlier successful one.
rm -f "$stamp"
cp "$sources/package.json" "$sources/package-lock.json" "$installed/"
# No package here needs its install scripts, so none may run. Of the Nodes, npm
# installs the one for this machine.
npm ci --prefix "$installed" --ignore-scripts --no-audit --no-fund
printf '%s\n' "$checksums" >"$stamp"
