// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// killedHost kills apply and restore at any moment, also in the middle of a change to another
// generation. One apply puts right whatever a kill left, and restore gives the originals back.
const killedHost = ownHost + `
set +x
mkdir -p /srv/perm /srv/files
touch /srv/perm/a
chmod 600 /srv/perm/a
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	conf:
	  sysctl: {kernel.domainname: "d$1.example"}
	  files:
	    motd: {path: /etc/motd, content: "file $1"}
	    other: {path: /etc/caisson-other-$1, content: other}
	  mounts:
	    scratch: {mnt_tgt: /srv/scratch, device: tmpfs, type: tmpfs, options: "size=$1m,mode=0755"}
	    more$1: {mnt_tgt: /srv/more$1, device: tmpfs, type: tmpfs, options: "size=1m,mode=0755"}
	    inner: {mnt_tgt: /srv/scratch/inner, device: tmpfs, type: tmpfs, options: "size=$1m,mode=0755"}
	    bound: {mnt_tgt: /srv/bound, device: /srv/files, type: none, options: bind}
	  limits: {nofile: {domain: "*", type: "-", item: nofile, value: 6553$1}}
	  perm: {paths: [{path: /srv/scratch, permissions: "075$1"}, {path: /srv/perm/a, permissions: "064$1", owner: root, group: adm}]}
	  exec:
	    mark: {data: "#!/bin/sh\necho $1 >>/srv/mark\n", revert: "#!/bin/sh\nrm -f /srv/mark\n", rerun_policy: once_successfully}
	    slow: {data: "#!/bin/sh\nsleep 0.05; echo $1 >/srv/files/slow\n", rerun_interval: 1000}
	    back: {data: "#!/bin/sh\nsleep 0.03; echo $1 >>/srv/files/back\n", blocking_policy: background, rerun_policy: once_successfully}
	END
	caisson publish site.yaml --to oci:out --key keys/operator.key >said 2>&1
}
snap() {
	cat /proc/sys/kernel/domainname /etc/motd
	ls /srv /etc /etc/security/limits.d /etc/systemd/system
	findmnt -rno TARGET,OPTIONS -R /srv
	stat -c '%a %U:%G %n' /srv/perm/*
}
cut() { # a verb after some milliseconds, by SIGKILL
	after=$(($(od -An -N2 -tu2 /dev/urandom) % 180))
	timeout -s KILL $(printf 0.%03d $after) caisson-agent "$@" >cut 2>&1 && killed=0 || killed=$?
	if [ $killed = 137 ]; then kills=$((kills + 1)); fi
}
whole() { caisson-agent "$@" >said 2>&1 || { echo "after $kills kills, the last of them $after ms after its begin: $*"; cat cut said; exit 1; }; }
site 1
caisson-agent enroll --from oci:out --fleet metal-a --key keys/operator.pub
snap >before
n=0 kills=0
while [ $kills -lt $KILLS ]; do
	n=$((n + 1))
	if [ $((n % 4)) = 0 ]; then site $((1 + n / 4 % 2)); fi
	if [ $((n % 4)) = 3 ]; then cut restore --all; else cut apply; fi
	whole apply
	if [ $((n % 5)) = 0 ]; then
		cut restore --all
		whole restore --all
		snap >after
		diff before after
	fi
done
`

// orphanHost kills an agent whose script goes on in the background, and ends while the next
// agent is at another one.
const orphanHost = ownHost + `
cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	conf:
	  exec:
	    a: {data: "#!/bin/sh\necho >>/srv/began; until test -e /srv/go; do sleep 0.05; done; echo >/srv/ended\n", blocking_policy: background, rerun_policy: once_successfully}
	    b: {data: "#!/bin/sh\necho \$\$ >/srv/b; until test -e /srv/killed; do sleep 0.05; done; echo >/srv/go; until test -e /srv/ended; do sleep 0.05; done; sleep 0.5\n", rerun_policy: once_successfully}
END
caisson publish site.yaml --to oci:out --key keys/operator.key
caisson-agent enroll --from oci:out --fleet metal-a --key keys/operator.pub
caisson-agent apply &
agent=$!
soon test -e /srv/began
soon test -s /srv/b
kill -9 $agent
not wait $agent
kill -9 $(cat /srv/b) # it would go on, too
touch /srv/killed
caisson-agent apply
test $(wc -l </srv/began) = 2
`

// TestAScriptOfAKilledAgent: one apply is enough, also where a script of the agent that was killed
// still runs when it begins.
func TestAScriptOfAKilledAgent(t *testing.T) {
	t.Parallel()
	inNamespaces(t, orphanHost)
}

// TestLongKills1 and the three behind it kill the agent 10,000 times: a part of the long tests has
// room for one of them.
func TestLongKills1(t *testing.T) {
	require.Long(t)
	killed(t)
}

func TestLongKills2(t *testing.T) {
	require.Long(t)
	killed(t)
}

func TestLongKills3(t *testing.T) {
	require.Long(t)
	killed(t)
}

func TestLongKills4(t *testing.T) {
	require.Long(t)
	killed(t)
}

// killed kills the agent 2,500 times, on two hosts at once.
func killed(t *testing.T) {
	t.Helper()
	require.Tool(t, "timeout", "findmnt", "diff")
	for _, host := range []string{"a", "b"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			inNamespaces(t, killedHost, "KILLS=1250")
		})
	}
}
