// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// attachedHost takes a host of its own kernel namespaces, with its real paths,
// through the life of an attached node. Nothing of it reaches the machine.
const attachedHost = `
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
for at in /etc /var/lib; do
	mkdir -p /mnt/up$at /mnt/work$at
	mount -t overlay overlay -o lowerdir=$at,upperdir=/mnt/up$at,workdir=/mnt/work$at $at
done
mount -t tmpfs tmpfs /run
rm -rf /etc/caisson /var/lib/caisson
test -s /etc/machine-id || echo 0123456789abcdef0123456789abcdef >/etc/machine-id
hostname superhost
ip link set lo up
forward=/proc/sys/net/ipv4/conf/lo/forwarding
echo 0 >$forward

cd /mnt
caisson init .
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
await() { n=0; until "$@"; do n=$((n+1)); test $n -lt 100; sleep 0.1; done; }
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
kill $run
wait $run

caisson-agent sync
caisson-agent restore --all
test $(cat $forward) = 0
kill $serve
`

func TestAnAttachedHostInNamespaces(t *testing.T) {
	require.Root(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		require.Missing(t, "unshare", err.Error())
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, ".", "../caisson").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(unshare, "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "sh", "-exc", attachedHost)
	cmd.Env = []string{"PATH=" + bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/mnt"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
