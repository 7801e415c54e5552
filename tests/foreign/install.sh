#!/usr/bin/env bash
# Installs the servers and SDKs that others wrote into target/foreign, at the
# versions pinned here. Does nothing if they are there already.
set -euo pipefail

sources="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
installed="$sources/../../target/foreign"
stamp="$installed/installed"
pins=(install.sh package.json package-lock.json requirements.txt requirements-v1.txt)

# `cksum`, because every POSIX machine has it. Not for security: npm checks
# the lock's hashes itself.
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

# Creates the environment $1 with exactly what the file $2 pins.
python_environment() {
    python3 -m venv --clear "$installed/$1"
    # `--no-deps`: an unpinned dependency is a mistake that `pip check` tells.
    "$installed/$1/bin/pip" install --quiet --no-deps --requirement "$sources/$2"
    "$installed/$1/bin/pip" check
}
python_environment python requirements.txt
python_environment python-v1 requirements-v1.txt

printf '%s\n' "$checksums" >"$stamp"
