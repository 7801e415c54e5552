#!/usr/bin/env bash
# Installs the servers and SDKs that others wrote into target/foreign, at the
# versions pinned here. Does nothing if they are there already.
source "$(dirname "${BASH_SOURCE[0]}")/../install.sh"

install_npm_packages requirements.txt requirements-v1.txt

# Creates the environment $1 with exactly what the file $2 pins.
python_environment() {
    python3 -m venv --clear "$installed/$1"
    # `--no-deps`: an unpinned dependency is a mistake that `pip check` reports.
    "$installed/$1/bin/pip" install --quiet --no-deps --requirement "$sources/$2"
    "$installed/$1/bin/pip" check
}
python_environment python requirements.txt
python_environment python-v1 requirements-v1.txt

finish_install
