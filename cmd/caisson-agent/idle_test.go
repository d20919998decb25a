// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// What a service that has nothing to do may take of a processor, and of memory with the
// pages of its program, in KiB. On a quiet machine it takes a fraction of the processor,
// see docs/reliability.md; a busy one makes the same work cost more.
const (
	idleShare  = 0.005
	idleMemory = 12 << 10
)

// idleHost leaves a service alone for ten minutes, and prints the seconds that went by,
// the seconds of processor that it and what it started took, and its memory.
const idleHost = ownHost + `
cat >site.yaml <<-END
apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: metal-a}
registry: oci:out
attached: true
nodes: [{name: superhost}]
conf:
  sysctl: {net.ipv4.conf.lo.accept_redirects: 0, net.ipv4.conf.lo.forwarding: 1}
  limits: {a: {domain: '*', type: hard, item: nofile, value: 65536}}
  files: {a: {path: /etc/words.conf, content: words}}
END
caisson publish site.yaml --to oci:out --key keys/operator.key
caisson serve oci:out --listen 127.0.0.1:5001 2>serve.log &
serve=$!
await caisson-agent enroll --from 127.0.0.1:5001 --fleet metal-a --key keys/operator.pub
caisson-agent apply
caisson-agent run 2>run.log &
run=$!
await sh -c "caisson-agent status -o json | grep -q '\"hints\"'"
sleep 20
set +x
took() { cat /proc/$run/task/*/schedstat /proc/uptime | awk -v children="$(cut -d' ' -f16,17 /proc/$run/stat)" '
	NF == 3 {own += $1/1e9} NF == 2 {now = $1} END {split(children, c); print now, own + (c[1]+c[2])/'$(getconf CLK_TCK)'}'; }
before=$(took)
sleep 600
echo "idle: $before $(took) $(awk '/^Rss(Anon|File)/ {print $2}' /proc/$run/status | tr '\n' ' ')"
kill $run
wait $run
kill $serve
`

// TestLongIdle looks at what the service takes while nothing happens: it looks at its
// node ten times, and asks the registry twice.
func TestLongIdle(t *testing.T) {
	require.Long(t)
	require.Tool(t, "ip", "getconf")
	out := inNamespaces(t, idleHost)
	_, figures, _ := strings.Cut(out, "idle: ")
	var began, before, ended, after float64
	var own, program int
	if _, err := fmt.Sscan(figures, &began, &before, &ended, &after, &own, &program); err != nil {
		t.Fatalf("%v: %q\n%s", err, figures, out)
	}
	share := (after - before) / (ended - began)
	t.Logf("%.3f s of processor in %.0f s, %.4f %%; memory %d KiB of its own, %d KiB of pages of its program", after-before, ended-began, 100*share, own, program)
	if share > idleShare {
		t.Errorf("%.4f %% of a processor, the budget is %.1f %%", 100*share, 100*idleShare)
	}
	if own+program > idleMemory {
		t.Errorf("%d KiB of memory, the budget is %d", own+program, idleMemory)
	}
}
