#!/bin/sh
# Makes this host a node of a fleet. It runs on the host itself, not in a container, from a
# directory that has the agent, its unit, and the operators' public keys (*.pub); FROM, FLEET,
# NODE and PHASE (look or apply) are in its environment, its arguments are further flags of
# enroll. It may be run again at any time.
set -eu
cd "$(dirname "$0")"
if systemctl is-active --quiet caisson-agent; then
	echo "caisson-agent runs already: nothing to do"
	exit 0
fi

# The agent, whole or not at all; that of the Debian package stays.
if [ ! -e /usr/share/doc/caisson-agent ]; then
	install -D -m 0755 caisson-agent /usr/lib/caisson/caisson-agent.new
	mv /usr/lib/caisson/caisson-agent.new /usr/lib/caisson/caisson-agent
	install -D -m 0644 caisson-agent.service /etc/systemd/system/caisson-agent.service
	mkdir -p /usr/local/sbin
	ln -sf /usr/lib/caisson/caisson-agent /usr/local/sbin/caisson-agent
	systemctl daemon-reload
fi
agent=/usr/lib/caisson/caisson-agent
for key in *.pub; do
	set -- "$@" --key "$key"
done
"$agent" enroll --from "$FROM" --fleet "$FLEET" --node "$NODE" "$@"
case $PHASE in
look)
	code=0
	"$agent" plan || code=$?
	[ "$code" = 3 ] || exit "$code" # 3: there is something to do
	;;
apply)
	"$agent" apply # it changes nothing while a pod of Divingbell is here
	systemctl enable --now caisson-agent
	;;
*)
	echo "PHASE is $PHASE: look or apply" >&2
	exit 2
	;;
esac
