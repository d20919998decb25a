#!/bin/sh
# Runs in the pod: copies what the host needs to the host, and does the rest there. Its
# arguments are further flags of enroll.
set -eu
to=/run/caisson-attach
rm -f "$to"/*.pub # a key that is not given any more does not count
cp /usr/local/bin/caisson-agent "${FILES:-/files}"/* "$to"
exec nsenter --target 1 --mount --uts --ipc --net --pid -- sh "$to/attach.sh" "$@"
