// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// What a service that has nothing to do may take of a processor, and of memory with the
// pages of its program, in KiB. On a quiet machine it takes a fraction of the processor,
// see docs/measured.md; a busy one makes the same work cost more.
const (
	idleShare  = 0.005
	idleMemory = 12 << 10
)

// idleHost leaves a service alone for $SECONDS_ALONE, and prints the seconds that went by,
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
await watches
sleep 20
set +x
took() { cat /proc/$run/task/*/schedstat /proc/uptime | awk -v children="$(cut -d' ' -f16,17 /proc/$run/stat)" '
	NF == 3 {own += $1/1e9} NF == 2 {now = $1} END {split(children, c); print now, own + (c[1]+c[2])/'$(getconf CLK_TCK)'}'; }
before=$(took)
sleep $SECONDS_ALONE
echo "idle: $before $(took) $(awk '/^Rss(Anon|File)/ {print $2}' /proc/$run/status | tr '\n' ' ')"
kill $run
wait $run
kill $serve
`

// taken is what a service took that was left alone.
type taken struct {
	processor, passed float64 // seconds
	own, program      int     // KiB of memory
}

func leaveAlone(t testing.TB, seconds int) (i taken) {
	t.Helper()
	require.Tool(t, "ip", "getconf")
	out := inNamespaces(t, idleHost, fmt.Sprint("SECONDS_ALONE=", seconds))
	_, figures, _ := strings.Cut(out, "idle: ")
	var began, before, ended, after float64
	if _, err := fmt.Sscan(figures, &began, &before, &ended, &after, &i.own, &i.program); err != nil {
		t.Fatalf("%v: %q\n%s", err, figures, out)
	}
	i.processor, i.passed = after-before, ended-began
	return i
}

// BenchmarkIdleMinute is a look at the node, a question to the registry at most, and what
// waits beside it.
func BenchmarkIdleMinute(b *testing.B) {
	for b.Loop() {
		i := leaveAlone(b, 60)
		b.ReportMetric(1000*i.processor, "processor-ms/min")
		b.ReportMetric(float64(i.own+i.program), "KiB")
	}
}

// TestLongIdle looks at what the service takes while nothing happens: it looks at its
// node ten times, and asks the registry twice.
func TestLongIdle(t *testing.T) {
	require.Long(t)
	i := leaveAlone(t, 600)
	share := i.processor / i.passed
	t.Logf("%.3f s of processor in %.0f s, %.4f %%; memory %d KiB of its own, %d KiB of pages of its program", i.processor, i.passed, 100*share, i.own, i.program)
	if share > idleShare {
		t.Errorf("%.4f %% of a processor, the budget is %.1f %%", 100*share, 100*idleShare)
	}
	if i.own+i.program > idleMemory {
		t.Errorf("%d KiB of memory, the budget is %d", i.own+i.program, idleMemory)
	}
}
