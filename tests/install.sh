# Functions for the scripts `install.sh` in the folders of tests. Each installs the packages that its
# folder pins into a folder of the same name below `target`.
#
# shellcheck shell=bash
set -euo pipefail

sources="$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)"
installed="$sources/../../target/$(basename "$sources")"
stamp="$installed/installed"

# Installs the packages of npm. Ends the script if all packages are installed already. The arguments
# are further files that pin packages.
install_npm_packages() {
    # `cksum`, because every POSIX machine has it. Not for security: npm checks the lock's hashes
    # itself.
    checksums="$(cd "$sources" && cksum ../install.sh install.sh package.json package-lock.json "$@")"
    if [[ -f "$stamp" && "$(cat "$stamp")" == "$checksums" ]]; then
        exit 0
    fi
    mkdir -p "$installed"
    # A failed install must not look like an earlier successful one.
    rm -f "$stamp"
    cp "$sources/package.json" "$sources/package-lock.json" "$installed/"
    # No package needs its install scripts, so none may run. Of packages for several systems, npm
    # installs the one for this machine.
    npm ci --prefix "$installed" --ignore-scripts --no-audit --no-fund
}

# Records that all packages are installed.
finish_install() {
    printf '%s\n' "$checksums" >"$stamp"
}
