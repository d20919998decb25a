// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"
)

// attached runs what the chart kube/deploy/attach runs on a host with Divingbell's history,
// where systemd is stood in for.
const attached = divingbellLeft + `
caisson publish site.yaml --to oci:out --key keys/operator.key
mkdir -p /mnt/up/usr /mnt/work/usr /mnt/bin /mnt/files /run/caisson-attach
mount -t overlay overlay -o lowerdir=/usr,upperdir=/mnt/up/usr,workdir=/mnt/work/usr /usr
install -D "$(command -v caisson-agent)" /usr/local/bin/caisson-agent
cp -L "$ATTACH"/start.sh "$ATTACH"/attach.sh "$ATTACH"/caisson-agent.service keys/operator.pub /mnt/files
echo 'no key' >/run/caisson-attach/old.pub
cat >/mnt/bin/systemctl <<'END'
#!/bin/sh
case "$*" in
daemon-reload) test -s /etc/systemd/system/caisson-agent.service ;;
"is-active --quiet caisson-agent") test -e /mnt/pid ;;
"enable --now caisson-agent")
	/usr/lib/caisson/caisson-agent run >>/mnt/agent.log 2>&1 &
	echo $! >/mnt/pid
	;;
*) exit 1 ;;
esac
END
# systemd-run has the host do it, as systemd does: the program runs in the host's namespaces.
cat >/mnt/bin/systemd-run <<'END'
#!/bin/sh
printf '%s\n' "$@" >/mnt/asked.new
mv /mnt/asked.new /mnt/asked
while [ ! -e /mnt/code ]; do sleep 0.05; done
code=$(cat /mnt/code)
rm /mnt/code
cat /mnt/answer
exit "$code"
END
cat >/mnt/bin/host <<'END'
#!/bin/bash
while true; do
	[ -e /mnt/asked ] || { sleep 0.05; continue; }
	mapfile -t args </mnt/asked
	rm /mnt/asked
	with=(PATH="$PATH")
	while [[ ${args[0]} = --* ]]; do
		[[ ${args[0]} != --setenv=* ]] || with+=("${args[0]#--setenv=}")
		args=("${args[@]:1}")
	done
	code=0
	env -i "${with[@]}" "${args[@]}" >/mnt/answer 2>&1 </dev/null || code=$?
	echo $code >/mnt/code.new
	mv /mnt/code.new /mnt/code
done
END
chmod +x /mnt/bin/*
PATH=/mnt/bin:$PATH host >/mnt/host.log 2>&1 &
# The pod has a root and processes of its own: what it does to the host it does from the host's.
attach() { PATH=/mnt/bin:$PATH FILES=/mnt/files PROC=/proc FROM=oci:/mnt/out FLEET=metal-a NODE=superhost PHASE=$1 unshare --mount --pid --fork sh -c 'mount -t tmpfs tmpfs /var; exec sh /mnt/files/start.sh --threshold=1' >said 2>&1; }

# A look installs, enrols, and changes nothing else; it may be repeated.
attach look
attach look
cat said
grep 'enrolled as node superhost of fleet metal-a' said
grep 'remove  sysctl net.ipv4.tcp_fin_timeout: "15" → "'$fin'"' said
test $(value net/ipv4/tcp_fin_timeout) = 15
test -e /etc/sysctl.d/60-divingbell-net.core.somaxconn.conf
test ! -e /mnt/pid
test ! -e /run/caisson-attach/old.pub

# While Divingbell is there nothing is changed, and the pod begins again.
not attach apply
grep 'Divingbell still runs on this host' said
test $(value net/ipv4/tcp_fin_timeout) = 15
test ! -e /mnt/pid
umount $secret

# Then its records are taken over, and the service keeps the host.
attach apply
cat said
grep 'taken over from Divingbell: the originals of 3 kernel parameters, 1 features and 1 paths, 1 mounts, the history of 2 scripts; its records are in /var/divingbell.taken-over' said
test $(value net/ipv4/tcp_fin_timeout) = $fin
test $(value net/core/somaxconn) = 1024
test "$(cat /srv/runs)" = "$(printf 'once\ndaily report')"
test -z "$(find /etc -name '60-divingbell*')"
await /usr/local/sbin/caisson-agent status
attach apply
grep 'runs already: nothing to do' said

# The registry and the cluster are gone, and the host is started over: it is configured.
kill $(cat /mnt/pid)
await sh -c "not() { if \"\$@\"; then return 1; fi; }; not kill -0 $(cat /mnt/pid) 2>/dev/null"
rm -rf out /run/caisson-attach /mnt/pid
reboot
test $(value net/core/somaxconn) = $somaxconn
/mnt/bin/systemctl enable --now caisson-agent
await sh -c "test \$(cat /proc/sys/net/core/somaxconn) = 1024 && /usr/local/sbin/caisson-agent status"
findmnt -no SIZE /srv/scratch | grep 16M
test "$(stat -c '%a %U:%G' /srv/report.txt)" = "640 root:adm"
test "$(cat /srv/runs)" = "$(printf 'once\ndaily report')"

# And back.
kill $(cat /mnt/pid)
await sh -c "not() { if \"\$@\"; then return 1; fi; }; not kill -0 $(cat /mnt/pid) 2>/dev/null"
/usr/local/sbin/caisson-agent restore --all
test $(value net/core/somaxconn) = $somaxconn
test $(value net/ipv4/tcp_keepalive_time) = $keepalive
`

// TestAttachInNamespaces: a cluster's host that Divingbell configured is looked at, attached
// once Divingbell is gone, and configured after a boot without a cluster.
func TestAttachInNamespaces(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("../../kube/deploy/attach/files")
	if err != nil {
		t.Fatal(err)
	}
	onDivingbellHost(t, attached, "ATTACH="+dir)
}
