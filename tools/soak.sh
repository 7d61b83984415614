#!/usr/bin/env bash
# Trainings, requests, shared input and light jobs under one daemon for so many hours (0.05: three minutes), while jobs, producers and
# the daemon are killed at random. Fails at the first broken invariant; tools/soak.py says which there are.
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/python tools/soak.py "${1:?expected hours, such as 2 or 0.05}" "${@:2}"
