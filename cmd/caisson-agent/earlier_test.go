// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/test/pinned"
	"github.com/caisson-os/caisson/test/require"
)

// earlierHost has the agent of release 0.9.0, and what today's publisher makes for it.
const earlierHost = ownHost + `
forward=/proc/sys/net/ipv4/conf/lo/forwarding
echo 0 >$forward
site() { # VALUE [SECTIONS [ITEMS]]
	cat >site.yaml <<-END
	apiVersion: caisson.dev/v1alpha1
	kind: Site
	metadata: {name: metal-a}
	registry: oci:out
	nodes: [{name: superhost}]
	health: [{name: ready, file: /srv/ready, watch: true, interval: 1s, timeout: 1s}]
	conf: {sysctl: {net.ipv4.conf.lo.forwarding: $1}${3-}}
	${2-}
	END
	caisson publish site.yaml --to oci:out --key keys/operator.key
}
says() { caisson-agent status >now && grep -q "$1" now; }
keeps() { # REFUSED VALUE: what is there is refused, and the node goes on as it was
	code=0
	caisson-agent sync >said 2>&1 || code=$?
	cat said
	test $code = 4
	grep -q "refused (needs-agent): the overlay needs .*$1" said
	grep -q "hint: boot a layer whose agent knows it" said
	says '^sync *refused'
	says '^health *ok'
	test $(cat $forward) = $2
}
caisson-agent --version | grep -F "$VERSION"
touch /srv/ready
site 1
caisson serve oci:out --listen 127.0.0.1:5001 &
serve=$!
await caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub
caisson-agent apply
test $(cat $forward) = 1
says '^sync *current'
says '^health *ok'

# Secrets are refused by name, also where they are not sealed to it. What comes without them is
# followed again.
secrets='secrets: {token: {command: [printf, x]}, pull: {command: [echo, "{\"auths\": {\"r.example.org\": {\"auth\": \"dTpw\"}}}"]}}'
site 0 "$secrets" ', files: {/etc/app/token: {secret: token}}'
keeps secrets 1
not test -e /etc/app/token
site 0
caisson-agent sync
test $(cat $forward) = 0

# Credentials are left out: it goes on with those that it was installed with. Sealed ones, as
# for a node that has come back from a later layer, are refused as secrets.
credentials="$secrets
machine: {agent: {credentials: {registry: pull, report: token}, report: {url: http://127.0.0.1:1}}}"
site 1 "$credentials"
caisson-agent sync
test $(cat $forward) = 1
says 'left out: agent.credentials '
says '^sync *current'
caisson secrets accept site.yaml superhost --recipient age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq
site 0 "$credentials"
keeps secrets 1
site 0
caisson-agent sync
test $(cat $forward) = 0
says '^sync *current'
says '^health *ok'

# A check that is watched is one after the change, too: the service finds that it does not hold.
rm /srv/ready
caisson-agent run &
run=$!
degraded() { caisson-agent sync >now 2>&1 || grep '^health *degraded: check ready' now || { sleep 1; false; }; }
await degraded
kill $run
wait $run || true
caisson-agent restore --all
test $(cat $forward) = 0
kill $serve
`

// TestTheEarlierAgent: what today's publisher makes with secrets, watched checks and
// credentials is taken by the agent of release 0.9.0, or refused with its reason.
func TestTheEarlierAgent(t *testing.T) {
	require.Tool(t, "git", "make")
	t.Parallel()
	dir := t.TempDir()
	for name, at := range map[string]string{"caisson": programs(t) + "/caisson", "caisson-agent": pinned.Programs(t) + "/bin/caisson-agent"} {
		if err := os.Symlink(at, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	inNamespaces(t, earlierHost, "PATH="+dir+":/usr/sbin:/usr/bin:/sbin:/bin", "VERSION="+pinned.Version)
}
