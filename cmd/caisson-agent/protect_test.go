// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/sense/watch/bpf"
	"github.com/caisson-os/caisson/test/require"
)

// protectedHost has a site that protects a parameter that nobody else on the machine
// writes: what the kernel protects is so in all namespaces.
const protectedHost = ownHost + `
key=/proc/sys/net/ipv4/tcp_thin_linear_timeouts
other=/proc/sys/net/ipv4/tcp_comp_sack_nr
echo 0 >$key
echo 44 >$other
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	machine: {agent: {policy: {sysctl: {net.ipv4.tcp_thin_linear_timeouts: $1}}}}
	conf: {sysctl: {net.ipv4.tcp_thin_linear_timeouts: $2, net.ipv4.tcp_comp_sack_nr: 40}}
	END
	caisson publish site.yaml --to oci:out --key keys/operator.key
}
is() { test $(cat $key) = $1; }
refused() { not sh -c "exec /bin/echo $1 >$key" 2>said && grep 'Operation not permitted' said; }
site protect 1
caisson-agent enroll --from oci:out --fleet metal-a --key keys/operator.pub
`

// protects is that host where the kernel can protect parameters.
const protects = protectedHost + `
run=
trap 'test -z "$run" || kill $run; caisson-agent restore --all' EXIT
caisson-agent run 2>journal &
run=$!
await grep 'protected by=service item=sysctl key=net.ipv4.tcp_thin_linear_timeouts' journal
await watches # what was refused before, nobody tells of
is 1
refused 0
is 1
echo 41 >$other
await sh -c "test \$(cat $other) = 40"

# Who tried is in the journal and in the status, and the node is well.
await grep 'refused by=service item=sysctl key=net.ipv4.tcp_thin_linear_timeouts to=0 count=1 rival="echo (pid [0-9]*)' journal
caisson-agent status >said
grep '^protected   1 of the kernel parameters' said
grep '^refused     net.ipv4.tcp_thin_linear_timeouts = 0, by echo (pid [0-9]*).*; 1 times, last ' said
grep '^health      ok' said

# Neither does the end of the agent lift it; and the next one may do what it likes, verbs, too.
kill -9 $run
wait $run || true
run=
refused 0
site protect 0
caisson-agent sync
is 0
refused 1

# A pause gives it to whoever has paused the node, the end of the pause takes it back.
caisson-agent pause --reason 'I try something'
echo 1 >$key
caisson-agent status -o json >said || test $? = 3
not grep '"protected"' said
caisson-agent resume
caisson-agent apply
is 0
refused 1

# Another policy ends it, and so does restore --all.
site enforce 1
caisson-agent sync 2>said
grep 'lifted by=root/sync item=sysctl key=net.ipv4.tcp_thin_linear_timeouts' said
is 1
echo 0 >$key
site protect 1
caisson-agent sync
refused 0
caisson-agent restore --protection
echo 0 >$key
caisson-agent apply
is 1
refused 0
caisson-agent restore --all
is 0
test $(cat $other) = 44
echo 1 >$key
echo 0 >$key
`

// cannotProtect is that host in a PID namespace, where the kernel knows the agent by
// another number.
const cannotProtect = protectedHost + `
not caisson-agent apply 2>said
grep 'unprotected by=root/apply why="kernel parameters are not protected: the agent runs in a container: its pid namespace is not the machine.s' said
is 1
echo 0 >$key
not caisson-agent apply
is 1
caisson-agent status >said || test $? = 3
grep '^health      degraded: agent protect: kernel parameters are not protected' said
site enforce 1
caisson-agent sync
caisson-agent status | grep '^health      ok'
`

// protectAlone has a test be the only one of the machine that protects the parameter, or
// writes it.
func protectAlone(t *testing.T) {
	t.Helper()
	require.Root(t)
	lock, err := os.OpenFile(os.TempDir()+"/caisson-protect-test.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() }) // which ends the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// needBPF skips a test where the kernel cannot protect parameters.
func needBPF(t *testing.T) {
	t.Helper()
	root, err := bpf.Root()
	if err != nil {
		require.Missing(t, "bpf", err.Error())
	}
	defer root.Close() // only read
	if err := bpf.Protect(root, []string{"net/ipv4/tcp_thin_linear_timeouts"}); err != nil {
		require.Missing(t, "bpf", err.Error())
	}
	if err := bpf.Protect(root, nil); err != nil {
		t.Fatal(err)
	}
}

func TestProtectedParametersInNamespaces(t *testing.T) {
	t.Parallel()
	protectAlone(t)
	needBPF(t)
	inThese(t, []string{"--mount", "--net", "--uts"}, protects)
}

func TestNothingIsProtectedInAContainer(t *testing.T) {
	t.Parallel()
	protectAlone(t)
	inNamespaces(t, cannotProtect)
}
