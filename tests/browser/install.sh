#!/usr/bin/env bash
# Installs Chromium, if there is none, and the driver at the version pinned here into
# target/browser. Does nothing if they are there already.
source "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

if [[ -z "${CHROMIUM:-}" ]] && ! command -v chromium >/dev/null; then
    apt-get update
    apt-get install --yes --no-install-recommends chromium
fi

install_npm_packages
finish_install
