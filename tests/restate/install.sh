#!/usr/bin/env bash
# Installs the server of Restate into target/restate, at the version pinned here. Does nothing if it
# is there already.
source "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

install_npm_packages
finish_install
