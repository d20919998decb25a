#!/bin/sh
# Runs in the pod: copies what the host needs to the host, and does the rest there. Its
# arguments are further flags of enroll.
set -eu
to=/run/caisson-attach
rm -f "$to"/*.pub # a key that is not given any more does not count
cp /usr/local/bin/caisson-agent "${FILES:-/files}"/* "$to"

# The host's first process is found in the host's /proc, which this container is given: the pod
# needs not see the host's processes, and what stays of it does not.
first=${PROC:-/host/proc}/1/ns
exec nsenter --mount="$first/mnt" --uts="$first/uts" --ipc="$first/ipc" --net="$first/net" --pid="$first/pid" -- sh "$to/attach.sh" "$@"
