#!/bin/sh
# Every replica of a new release begins here. The first one migrates; the others wait for it,
# find nothing left to do, and start. When the migration fails, so does the replica.
set -e
tenure run --wait 10m --hold-at-most 30m --label "$(hostname)" migrate-orders -- ./migrate
exec "$@"
