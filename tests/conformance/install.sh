#!/usr/bin/env bash
# Installs the official conformance suite, and the Node that it needs, into
# target/conformance, at the versions pinned here. Does nothing if they are there already.
source "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

install_npm_packages
finish_install
