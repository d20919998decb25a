// SPDX-License-Identifier: Apache-2.0

package items

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// keys500 are 500 keys of the real kernel, in a network namespace of this
// benchmark's thread, each with a value that it does not have.
func keys500(b *testing.B) []spec.Sysctl {
	b.Helper()
	require.Root(b)
	require.Tool(b, "ip")
	runtime.LockOSThread() // and never let go: the thread ends with the benchmark
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		require.Missing(b, "net", fmt.Sprintf("no network namespace: %v", err))
	}
	var want []spec.Sysctl
	for n := range 25 {
		a, z := fmt.Sprintf("a%d", n), fmt.Sprintf("z%d", n)
		if out, err := exec.Command("ip", "link", "add", a, "type", "veth", "peer", "name", z).CombinedOutput(); err != nil {
			b.Fatalf("ip link add: %v: %s", err, out)
		}
		for _, name := range []string{a, z} {
			for _, key := range []string{"accept_redirects", "send_redirects", "secure_redirects", "shared_media", "log_martians",
				"proxy_arp", "arp_filter", "arp_accept", "promote_secondaries", "drop_gratuitous_arp"} {
				path := "net/ipv4/conf/" + name + "/" + key
				now, err := os.ReadFile("/proc/sys/" + path)
				if err != nil {
					b.Fatal(err)
				}
				value := "1"
				if strings.TrimSpace(string(now)) == "1" {
					value = "0"
				}
				want = append(want, spec.Sysctl{Key: path, Value: value})
			}
		}
	}
	return want
}

func benchItems(b *testing.B, want []spec.Sysctl) ([]item.Item, []item.Item, *journal.Journal) {
	b.Helper()
	j, err := journal.Open(filepath.Join(b.TempDir(), "journal"), testScopes)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { j.Close() }) // the test is over
	o := Options{Journal: j, Scopes: testScopes, State: b.TempDir()}
	return Table(spec.Items{Sysctl: want}, o), Table(spec.Items{}, o), j
}

// peer sets the same 500 keys with systemd-sysctl, which neither looks, nor remembers, nor
// reads back.
type peer struct{ to, back string }

func newPeer(b *testing.B, want []spec.Sysctl) peer {
	b.Helper()
	if _, err := os.Stat(systemdSysctl); err != nil {
		require.Missing(b, "tools", systemdSysctl+" is not installed")
	}
	var to, back strings.Builder
	for _, w := range want {
		fmt.Fprintf(&to, "%s = %s\n", w.Key, w.Value)
		fmt.Fprintf(&back, "%s = %d\n", w.Key, map[string]int{"0": 1, "1": 0}[w.Value])
	}
	p := peer{filepath.Join(b.TempDir(), "to.conf"), filepath.Join(b.TempDir(), "back.conf")}
	for name, text := range map[string]string{p.to: to.String(), p.back: back.String()} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return p
}

const systemdSysctl = "/usr/lib/systemd/systemd-sysctl"

func (p peer) run(b *testing.B, name string) {
	if out, err := exec.Command(systemdSysctl, name).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// against runs ours and the peer in turns, so that both see the same machine, and reports
// the ratios of the medians, by the clock and by the processor time that was used: the
// second says more where something else runs. ready runs before each of ours.
func against(b *testing.B, p peer, ours, ready func()) {
	var own, peers, ownUsed, peersUsed []time.Duration
	measure := func(clock, used *[]time.Duration, who int, do func()) {
		start, before := time.Now(), processorTime(b, who)
		do()
		*clock, *used = append(*clock, time.Since(start)), append(*used, processorTime(b, who)-before)
	}
	for b.Loop() {
		b.StopTimer()
		p.run(b, p.back)
		measure(&peers, &peersUsed, unix.RUSAGE_CHILDREN, func() { p.run(b, p.to) })
		p.run(b, p.back)
		ready()
		b.StartTimer()
		measure(&own, &ownUsed, unix.RUSAGE_SELF, ours)
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2])
	}
	b.ReportMetric(median(own)/median(peers), "x-systemd-sysctl")
	b.ReportMetric(median(ownUsed)/median(peersUsed), "x-its-processor-time")
}

func processorTime(b *testing.B, who int) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(who, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// Preflight, journal with fsync, 500 writes, read-back, and the second check.
func BenchmarkSysctl500(b *testing.B) {
	want := keys500(b)
	p := newPeer(b, want)
	items, none, j := benchItems(b, want)
	against(b, p, func() {
		if r := Reconcile(b.Context(), items, j); r.Err != nil || of(b, r, "sysctl").Applied != 500 {
			b.Fatalf("%+v", r)
		}
	}, func() {
		if r := Reconcile(b.Context(), none, j); r.Err != nil {
			b.Fatal(r.Err)
		}
	})
}

// An unchanged node, looked at; the peer sets what is looked at.
func BenchmarkCheck500(b *testing.B) {
	want := keys500(b)
	p := newPeer(b, want)
	items, _, j := benchItems(b, want)
	against(b, p, func() {
		if drift, err := Preview(b.Context(), items, nil, nil); err != nil || len(drift) > 0 {
			b.Fatalf("%+v, %v", drift, err)
		}
	}, func() {
		if r := Reconcile(b.Context(), items, j); r.Err != nil {
			b.Fatal(r.Err)
		}
	})
}

// An overlay of 500 items of all kinds but mounts and scripts: half sysctl, the
// rest limits, permissions and features of 25 interfaces. With CAISSON_BENCH_ETC
// the limits go to that directory; on a node /etc lies on a tmpfs.
func BenchmarkMixed500(b *testing.B) {
	want := spec.Items{Sysctl: keys500(b)[:250], Perm: &spec.Perm{}}
	files := b.TempDir()
	for n := range 100 {
		want.Limits = append(want.Limits, spec.Limit{ID: fmt.Sprint(n), Domain: fmt.Sprintf("user%d", n), Type: "soft", Item: "nofile", Value: "1024"})
		name := filepath.Join(files, fmt.Sprint(n))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		want.Perm.Paths = append(want.Perm.Paths, spec.PermPath{Path: name, Owner: "7", Mode: "0640"})
	}
	for n := range 25 {
		for _, feature := range []string{"tso", "gso"} {
			want.Ethtool = append(want.Ethtool, spec.Feature{Interface: fmt.Sprintf("a%d", n), Feature: feature})
		}
	}
	j, err := journal.Open(filepath.Join(b.TempDir(), "journal"), testScopes)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close() // the test is over
	o := Options{Journal: j, Scopes: testScopes, State: b.TempDir(), Etc: cmp.Or(os.Getenv("CAISSON_BENCH_ETC"), b.TempDir())}
	items, none := Table(want, o), Table(spec.Items{}, o)
	for b.Loop() {
		if r := Reconcile(b.Context(), items, j); r.Err != nil || len(r.Drift) > 0 {
			b.Fatalf("%+v", r)
		}
		b.StopTimer()
		if r := Reconcile(b.Context(), none, j); r.Err != nil {
			b.Fatal(r.Err)
		}
		b.StartTimer()
	}
}
