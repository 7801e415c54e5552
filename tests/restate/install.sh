#!/usr/bin/env bash
# Installs the server of Restate into target/restate, at the version pinned here. Does nothing if it
# is there already.
set -euo pipefail

sources="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
installed="$sources/../../target/restate"
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
# No package here needs its install scripts, so none may run. Of the servers, npm
# installs the one for this machine.
npm ci --prefix "$installed" --ignore-scripts --no-audit --no-fund
printf '%s\n' "$checksums" >"$stamp"
