#!/bin/sh
# The models of the protocol, in their small worlds: every state, and every rule switched off is found out. Skipped where spin is missing.
# It needs a processor and no clock, so it gives way to the suites that run beside it.
exec nice -n 10 bash "${TOP_SRCDIR:-$(dirname "$0")/..}/docs/model/check" small
