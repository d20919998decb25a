#!/bin/sh
# Runs in the pod: copies what the host needs to the host, and does the rest there. Its
# arguments are further flags of enroll.
set -eu
to=/run/caisson-attach
rm -f "$to"/*.pub # a key that is not given any more does not count
cp /usr/local/bin/caisson-agent "${FILES:-/files}"/* "$to"

# The host's first process is found in the host's /proc, which this container is given: the pod
# needs not see the host's processes, and what stays of it does not. A process cannot enter the
# process namespace above its own, so systemd does the work: as a unit of the host, which is not
# cut when this pod is, and which is not begun twice.
first=${PROC:-/host/proc}/1/ns
exec nsenter --mount="$first/mnt" --uts="$first/uts" --ipc="$first/ipc" --net="$first/net" -- \
	systemd-run --quiet --wait --pipe --collect --unit=caisson-attach \
	--setenv=FROM="$FROM" --setenv=FLEET="$FLEET" --setenv=NODE="$NODE" --setenv=PHASE="$PHASE" \
	sh "$to/attach.sh" "$@"
