// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// ownHost makes the namespaces that a script runs in a host with real paths of its
// own. Nothing that is done to it reaches the machine.
const ownHost = `
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
for at in /etc /var; do
	mkdir -p /mnt/up$at /mnt/work$at
	mount -t overlay overlay -o lowerdir=$at,upperdir=/mnt/up$at,workdir=/mnt/work$at $at
done
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /srv
rm -rf /etc/caisson /var/lib/caisson /var/divingbell*
test -s /etc/machine-id || echo 0123456789abcdef0123456789abcdef >/etc/machine-id
hostname superhost
ip link set lo up
not() { if "$@"; then return 1; fi; } # a shell's own "!" fails nothing
await() { n=0; until "$@"; do n=$((n+1)); test $n -lt 1200; sleep 0.1; done; }
watches() { grep -qs ^link_type: /proc/$run/fdinfo/*; } # the service $run, writes of parameters
soon() { n=0; until "$@"; do n=$((n+1)); test $n -lt 300; sleep 0.1; done; } # before the look of each minute
cd /mnt
caisson init .
`

// attachedHost goes through the life of an attached node.
const attachedHost = ownHost + `
forward=/proc/sys/net/ipv4/conf/lo/forwarding
echo 0 >$forward
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	conf: {sysctl: {net.ipv4.conf.lo.forwarding: $1}}
	END
	caisson publish site.yaml --to oci:out --key keys/operator.key
}
site 1
caisson serve oci:out --listen 127.0.0.1:5001 &
serve=$!
# The name is the host's own, and loopback needs no TLS.
await caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub
test -d /etc/caisson
caisson-agent apply
test $(cat $forward) = 1

# The service corrects what drifts, as soon as it starts, also after a reboot.
echo 0 >$forward
rm -rf /run/caisson
caisson-agent run &
run=$!
await sh -c "test \$(cat $forward) = 1"
caisson-agent status

# Later it is told of changes, and where the kernel says so, by whom.
await watches
await sh -c "caisson-agent status -o json | grep -q '\"hints\"'"
echo 0 >$forward
soon sh -c "test \$(cat $forward) = 1"

# A look that had to wait for a verb, or for a slow disk, keeps the next one from nothing.
flock /run/caisson/lock sh -c "echo 0 >$forward; sleep 2"
await sh -c "test \$(cat $forward) = 1"
echo 0 >$forward
soon sh -c "test \$(cat $forward) = 1"

# What somebody changes again and again is left, until somebody clears it: then at once.
# A status that looks while the last correction is made says so a moment before.
insist() { echo 0 >$forward; caisson-agent status | grep '^health *quarantined' && test $(cat $forward) = 0; }
await insist
caisson-agent clear sysctl
soon sh -c "test \$(cat $forward) = 1"
kill $run
wait $run

caisson-agent sync

# Back without the registry, by a service that is told nothing else; and forward with it.
site 0
caisson-agent sync
test $(cat $forward) = 0
kill $serve
wait $serve || true
caisson-agent rollback --reason 'no way out'
test $(cat $forward) = 1
caisson-agent pause
echo 0 >$forward
caisson-agent run &
run=$!
await sh -c "caisson-agent status | grep '^activity *waiting:resume'"
test $(cat $forward) = 0
caisson-agent resume
soon sh -c "test \$(cat $forward) = 1"
kill $run
wait $run
caisson serve oci:out --listen 127.0.0.1:5001 &
serve=$!
caisson-agent freeze
await caisson-agent sync
test $(cat $forward) = 1
caisson-agent forward
caisson-agent sync
test $(cat $forward) = 0
caisson-agent pin 1
test $(cat $forward) = 1
caisson-agent restore --all
test $(cat $forward) = 0
kill $serve
`

// divingbellLeft is what Divingbell leaves on a host that it configured with the
// values in examples/migration. $ONCE and $DAILY are its names for the runs of the
// scripts; one parameter is of an older version of the values.
const divingbellLeft = ownHost + `
cp "$EXAMPLE"/values.yaml values.yaml
sed 's|^registry:.*|registry: oci:out|' "$EXAMPLE"/site.yaml >site.yaml

# What Divingbell did, a pod after another.
value() { cat /proc/sys/$1; }
ip link add eth0 type veth peer name eth1
records=/var/divingbell
mkdir -p $records/sysctl $records/ethtool $records/mounts $records/perm $records/exec/$ONCE $records/exec/$DAILY $records/apt /srv/scratch /etc/sysctl.d /etc/systemd/system/local-fs.target.wants
somaxconn=$(value net/core/somaxconn) keepalive=$(value net/ipv4/tcp_keepalive_time)
echo "net.core.somaxconn = $somaxconn" >$records/sysctl/60-divingbell-net.core.somaxconn.conf
echo "net.ipv4.tcp_keepalive_time = $keepalive" >$records/sysctl/60-divingbell-net.ipv4.tcp_keepalive_time.conf
echo "net.ipv4.tcp_fin_timeout = $(value net/ipv4/tcp_fin_timeout)" >$records/sysctl/60-divingbell-net.ipv4.tcp_fin_timeout.conf
fin=$(value net/ipv4/tcp_fin_timeout)
echo net.core.somaxconn=1024 >/etc/sysctl.d/60-divingbell-net.core.somaxconn.conf
echo net.ipv4.tcp_keepalive_time=600 >/etc/sysctl.d/60-divingbell-net.ipv4.tcp_keepalive_time.conf
echo net.ipv4.tcp_fin_timeout=15 >/etc/sysctl.d/60-divingbell-net.ipv4.tcp_fin_timeout.conf
echo 1024 >/proc/sys/net/core/somaxconn
echo 600 >/proc/sys/net/ipv4/tcp_keepalive_time
echo 15 >/proc/sys/net/ipv4/tcp_fin_timeout
gro() { ethtool -k eth0 | sed -n 's/^generic-receive-offload: //p'; }
ethtool -K eth0 gro on
ethtool -K eth0 gro off
echo "eth0 generic-receive-offload on" >$records/ethtool/eth0.generic.service
printf '[Mount]\nWhat=tmpfs\nWhere=/srv/scratch\nType=tmpfs\nOptions=size=16m,mode=0755\n' >$records/mounts/srv-scratch.mount
cp $records/mounts/srv-scratch.mount /etc/systemd/system/
ln -s /etc/systemd/system/srv-scratch.mount /etc/systemd/system/local-fs.target.wants/
mount -t tmpfs -o size=16m,mode=0755 tmpfs /srv/scratch
echo '* - nofile 65536' >/etc/security/limits.d/60-divingbell-nofile.conf
touch /srv/report.txt
chmod 0600 /srv/report.txt
printf '600 /srv/report.txt\nroot:root /srv/report.txt\n' >$records/perm/-srv-report.txt
chmod 0640 /srv/report.txt
chown root:adm /srv/report.txt
for run in $ONCE $DAILY; do
	date +%s >$records/exec/$run/last_run_timestamp
	echo 0 >$records/exec/$run/exit_code
done
printf 'once\ndaily report\n' >/srv/runs
echo procps >$records/apt/packages
grep -q ^ann: /etc/passwd || echo 'ann:x:54321:54321:divingbell:/home/ann:/bin/bash' >>/etc/passwd
mkdir -p /etc/sudoers.d /var/lib/dpkg
echo 'ann ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/divingbell-ann-sudo
printf 'Package: procps\nStatus: install ok installed\nVersion: 4\n' >/var/lib/dpkg/status

# The kubelet keeps a pod's secret mounted as long as the pod is there.
secret=/var/lib/kubelet/pods/6cbb9a51/volumes/kubernetes.io~secret/divingbell-sysctl-default
mkdir -p $secret
mount -t tmpfs tmpfs $secret

# A boot ends what the kernel holds.
reboot() {
	umount /srv/scratch
	echo $somaxconn >/proc/sys/net/core/somaxconn
	echo $keepalive >/proc/sys/net/ipv4/tcp_keepalive_time
	ip link del eth0
	ip link add eth0 type veth peer name eth1
	ethtool -K eth0 gro on
	rm -rf /run/caisson
	cat /proc/sys/kernel/random/uuid >/mnt/boot
	mount --bind /mnt/boot /proc/sys/kernel/random/boot_id
}
`

// divingbellHost takes that host over, and back.
const divingbellHost = divingbellLeft + `
caisson publish site.yaml --to oci:out --key keys/operator.key

# While a pod of it is there, nothing is changed.
caisson-agent enroll --from oci:out --fleet metal-a --key keys/operator.pub 2>said
grep 'apply takes over the originals of 3 kernel parameters, 1 features and 1 paths, 1 mounts, the history of 2 scripts' said
not caisson-agent apply 2>said
grep 'Divingbell still runs on this host' said
test $(value net/ipv4/tcp_fin_timeout) = 15
umount $secret
unshare --mount sh -c 'mount -t tmpfs tmpfs /tmp; echo sleep 300 >/tmp/sysctl.sh; exec sh /tmp/sysctl.sh' &
pod=$!
await sh -c "tr '\0' ' ' </proc/$pod/cmdline | grep -q '^sh /tmp/sysctl.sh'"
not caisson-agent apply 2>said
grep "process $pod of a container runs /tmp/sysctl.sh" said
kill $pod
wait $pod || true

# plan counts on the take-over: what nobody wants any more goes back.
caisson-agent plan >said || test $? = 3
grep 'remove  sysctl net.ipv4.tcp_fin_timeout: "15" → "'$fin'"' said
grep 'cannot  apt jq: needs a layer; here: apt-get install jq' said
not grep 'somaxconn\|exec\|mounts\|perm' said

caisson-agent apply >said 2>&1
cat said >journal
grep 'taken over from Divingbell: the originals of 3 kernel parameters, 1 features and 1 paths, 1 mounts, the history of 2 scripts; its records are in /var/divingbell.taken-over' said
grep 'left as Divingbell made them, since they need a layer: packages that it installed' said
test $(value net/ipv4/tcp_fin_timeout) = $fin
test $(value net/core/somaxconn) = 1024
test "$(cat /srv/runs)" = "$(printf 'once\ndaily report')"
test -z "$(find /etc -name '60-divingbell*' -o -name 'srv-scratch*')"

# The service; then a boot, which ends what the kernel holds, and nothing of Divingbell's.
caisson-agent run 2>>journal &
run=$!
await caisson-agent status
kill $run
wait $run || true
reboot
caisson-agent run 2>>journal &
run=$!
await sh -c "test \$(cat /proc/sys/net/core/somaxconn) = 1024 && caisson-agent status"
caisson-agent status >said
grep '^node        superhost of fleet metal-a (attached)' said
grep '  sysctl    ok, 2 as wanted' said
grep '  mounts    ok, 1 as wanted' said
test $(gro) = off
findmnt -no SIZE /srv/scratch | grep 16M
test "$(stat -c '%a %U:%G' /srv/report.txt)" = "640 root:adm"
test "$(cat /srv/runs)" = "$(printf 'once\ndaily report')"
kill $run
wait $run || true

# And back to what was before Divingbell.
caisson-agent restore --all 2>>journal
test $(value net/core/somaxconn) = $somaxconn
test $(value net/ipv4/tcp_keepalive_time) = $keepalive
test "$(stat -c '%a %U:%G' /srv/report.txt)" = "600 root:root"
not findmnt /srv/scratch
test $(gro) = on
test ! -e /etc/security/limits.d/60-caisson-nofile.conf

# Each change is in the journal, with who, what, from, to and why.
grep 'taken-over by=root/apply item=sysctl key=net/core/somaxconn original=' journal
grep 'change by=root/apply item=sysctl key=net.ipv4.tcp_fin_timeout from=15 to='$fin' action=remove generation=1 why="generation 1"' journal
grep 'change by=service item=sysctl key=net.core.somaxconn from='$somaxconn' to=1024 action=change generation=1 why=boot' journal
grep 'change by=root/restore item=perm key=/srv/report.txt from="0640 0:4" to="0600 0:0" action=remove .* why="restore --all"' journal
`

func TestAnAttachedHostInNamespaces(t *testing.T) {
	t.Parallel()
	inNamespaces(t, attachedHost)
}

// A host with a history of Divingbell's is enrolled, applied, followed over a boot,
// and put back to what it was before Divingbell.
func TestADivingbellHostInNamespaces(t *testing.T) {
	t.Parallel()
	onDivingbellHost(t, divingbellHost)
}

// onDivingbellHost runs a script that begins with divingbellLeft.
func onDivingbellHost(t *testing.T, script string, env ...string) (out string) {
	t.Helper()
	require.Tool(t, "ip", "findmnt", "ethtool")
	example, err := filepath.Abs("../../examples/migration")
	if err != nil {
		t.Fatal(err)
	}
	return inNamespaces(t, script, append(env, "EXAMPLE="+example,
		"ONCE="+divingbellHash("data", "#!/bin/sh\necho once >>/srv/runs\n", "rerun_policy", "never"),
		"DAILY="+divingbellHash("args", "[report]", "data", "#!/bin/sh\necho $NAME $1 >>/srv/runs\n", "env:NAME", "daily", "rerun_interval", "86400"))...)
}

// divingbellHash is Divingbell's name for the runs of a script, made here apart from
// the agent: each entry of a list is the list so far and a key with its value.
func divingbellHash(pairs ...string) string {
	var list []string
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, fmt.Sprint("[", strings.Join(list, " "), "];", pairs[i], ":", pairs[i+1]))
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte("["+strings.Join(list, " ")+"]")))
}

// inNamespaces runs a script with the programs of today as a host of its own, and
// returns what it prints.
func inNamespaces(t testing.TB, script string, env ...string) string {
	t.Helper()
	return inThese(t, []string{"--mount", "--net", "--uts", "--pid"}, script, env...)
}

func inThese(t testing.TB, namespaces []string, script string, env ...string) string {
	t.Helper()
	require.Root(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		require.Missing(t, "unshare", err.Error())
	}
	bin := programs(t)
	cmd := exec.Command(unshare, append(namespaces, "--fork", "--kill-child", "sh", "-exc", script)...)
	cmd.Env = []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/mnt"}
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
