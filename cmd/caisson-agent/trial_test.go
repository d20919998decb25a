// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// remoteRegistry is a host whose registry is in another network namespace. Its answers
// come in by another card than its questions go out by, so that rp_filter=1 drops them.
const remoteRegistry = ownHost + `
ip netns add reg
ip link add v0 type veth peer name v1 netns reg
ip link add w0 type veth peer name w1 netns reg
ip addr add 10.9.0.2/24 dev v0
ip addr add 10.8.0.2/24 dev w0
ip link set v0 up
ip link set w0 up
ip -n reg addr add 10.9.0.1/24 dev v1
ip -n reg addr add 10.8.0.1/24 dev w1
ip -n reg link set lo up
ip -n reg link set v1 up
ip -n reg link set w1 up
ip -n reg route add 10.9.0.2/32 via 10.8.0.2 dev w1
filter=/proc/sys/net/ipv4/conf/w0/rp_filter
for at in all v0 w0; do echo 0 >/proc/sys/net/ipv4/conf/$at/rp_filter; done
site() {
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	conf:
	  sysctl: {net.ipv4.conf.w0.rp_filter: $1}
	  files: {motd: {path: /etc/motd, content: "$2"}}
	END
	shift 2
	caisson publish site.yaml --to oci:out --key keys/operator.key "$@"
}
site 0 first
ip netns exec reg caisson serve oci:out --listen 10.9.0.1:5001 &
serve=$!
await caisson-agent enroll --from 10.9.0.1:5001 --plain-http --fleet metal-a --key keys/operator.pub
caisson-agent apply
test $(cat /etc/motd) = first
`

const cutOffHost = remoteRegistry + `
# What cuts the host off is undone, with all that came with it, and not tried again.
site 1 second
not caisson-agent sync 2>said
grep 'generation 2 was undone: after it the registry was not reached within 1m0s' said
test $(cat $filter) = 0
test $(cat /etc/motd) = first
caisson-agent status >said || test $? = 3
grep 'overlay generation 2: it was undone: after it the registry was not reached' said
grep '^generation  1' said
caisson-agent sync || true
test $(cat $filter) = 0

# Nor does it stay when nobody is left who would undo it.
site 1 third
caisson-agent sync &
agent=$!
await sh -c "test \$(cat $filter) = 1"
kill -9 $agent
wait $agent || true
test $(cat $filter) = 1
caisson-agent run &
run=$!
await sh -c "test \$(cat $filter) = 0"
await sh -c "caisson-agent status | grep 'generation 3: it was undone: the agent ended before it was confirmed'"
kill $run
wait $run || true

# A newer generation is.
site 2 fourth
caisson-agent sync
test $(cat $filter) = 2
test $(cat /etc/motd) = fourth
kill $serve
`

// A change that cuts a host off from its registry, by the kernel's own means, undoes
// itself, also when the agent is killed before it could.
func TestAHostThatIsCutOff(t *testing.T) {
	require.Tool(t, "ip")
	t.Parallel()
	inNamespaces(t, cutOffHost)
}
