#!/usr/bin/env bash
# Installs Chromium, if there is none, and the driver at the version pinned here into
# target/browser. Does nothing if they are there already.
set -euo pipefail

sources="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
installed="$sources/../../target/browser"
stamp="$installed/installed"
pins=(install.sh package.json package-lock.json)

if [[ -z "${CHROMIUM:-}" ]] && ! command -v chromium >/dev/null; then
    apt-get update
    apt-get install --yes --no-install-recommends chromium
fi

checksums="$(cd "$sources" && cksum "${pins[@]}")"
if [[ -f "$stamp" && "$(cat "$stamp")" == "$checksums" ]]; then
    exit 0
fi

mkdir -p "$installed"
# An install that fails half-way must not pass for one that succeeded earlier.
rm -f "$stamp"
cp "$sources/package.json" "$sources/package-lock.json" "$installed/"
# No package here needs its install scripts, so none may run.
npm ci --prefix "$installed" --ignore-scripts --no-audit --no-fund

printf '%s\n' "$checksums" >"$stamp"
