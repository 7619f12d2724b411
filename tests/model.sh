#!/bin/sh
# The models of the protocol, in their small worlds: every state, and every rule switched off is found out. Skipped where spin is missing.
exec bash "${TOP_SRCDIR:-$(dirname "$0")/..}/docs/model/check" small
