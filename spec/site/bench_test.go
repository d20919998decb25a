// SPDX-License-Identifier: Apache-2.0

package site_test

import (
	"crypto/ecdsa"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// perFile is how many nodes a file of the inventory has: all that one may.
const perFile = 100_000

// fleet generates a site of n nodes as a large fleet has it: three roles by
// label, 100 kernel parameters, scripts, limits, mounts, and for one node in a
// hundred an override and an address of its own.
func fleet(n int) fstest.MapFS {
	var b strings.Builder
	b.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: bench}\n" +
		"layer: {base: {debian: {suite: trixie}}, kernel: {args: [quiet]}}\nconf:\n  apt: {packages: [{name: jq}]}\n  sysctl:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "    net.ipv4.conf.eth%d.forwarding: %d\n", i, i%2)
	}
	b.WriteString("  mounts:\n    a: {mnt_tgt: /srv/a, device: tmpfs, type: tmpfs}\n  limits:\n    l: {domain: '*', type: hard, item: nofile, value: 65536}\n  exec:\n")
	for i := range 5 {
		fmt.Fprintf(&b, "    script-%d: {rerun_policy: never, data: \"#!/bin/sh\\n%s\"}\n", i, strings.Repeat("echo a line of a script\\n", 20))
	}
	b.WriteString("  overrides:\n    divingbell_apt:\n      labels:\n      - {label: {key: role, values: [storage]}, conf: {apt: {packages: [{name: xfsprogs}]}}}\n    divingbell_sysctl:\n      labels:\n")
	for _, role := range []string{"compute", "storage"} {
		fmt.Fprintf(&b, "      - {label: {key: role, values: [%s]}, conf: {sysctl: {vm.swappiness: 1}}}\n", role)
	}
	b.WriteString("      hosts:\n")
	for i := 0; i < n; i += 100 {
		fmt.Fprintf(&b, "      - {name: node-%06d, conf: {sysctl: {vm.swappiness: 5}}}\n", i)
	}
	b.WriteString("machine:\n  overrides:\n    hosts:\n")
	for i := 0; i < n; i += 100 {
		fmt.Fprintf(&b, "    - {name: node-%06d, conf: {network: {interfaces: [{name: eth0, addresses: [10.%d.%d.%d/8]}]}}}\n", i, i>>16, i>>8&255, i&255+1)
	}
	b.WriteString("inventory:\n")
	fsys := fstest.MapFS{}
	for first := 0; first < n; first += perFile {
		name := fmt.Sprintf("nodes-%d.yaml", first/perFile)
		fsys[name] = &fstest.MapFile{Data: inventory(first, min(first+perFile, n))}
		fmt.Fprintf(&b, "- %s\n", name)
	}
	fsys["site.yaml"] = &fstest.MapFile{Data: []byte(b.String())}
	return fsys
}

// inventory is a file of nodes.
func inventory(from, to int) []byte {
	roles := []string{"control", "compute", "storage"}
	text := []byte("nodes:\n")
	for i := from; i < to; i++ {
		text = fmt.Appendf(text, "- {name: node-%06d, labels: {role: %s, rack: r%d}, match: {macs: ['52:54:00:%02x:%02x:%02x']}}\n", i, roles[i%3], i/40, i>>16, i>>8&255, i&255)
	}
	return text
}

func parseFleet(b testing.TB, fsys fstest.MapFS) *site.Site {
	b.Helper()
	s, r := site.Parse(fsys, "site.yaml")
	if err := r.Err(); err != nil {
		b.Fatal(err)
	}
	return s
}

// TestTheFleetOfBenchmarksIsValid: no rule that came since ends a benchmark.
func TestTheFleetOfBenchmarksIsValid(t *testing.T) { parseFleet(t, fleet(1000)) }

// compileAndSign makes what publish pushes: for each node the overlay's one
// encoding and its bundle. It returns their bytes.
func compileAndSign(b testing.TB, s *site.Site, key *ecdsa.PrivateKey) (total int64) {
	b.Helper()
	nodes := s.Nodes()
	var wg sync.WaitGroup
	sums := make([]int64, runtime.GOMAXPROCS(0))
	errs := make([]error, len(sums))
	now := time.Now().UTC().Truncate(time.Second)
	layer := "sha256:" + strings.Repeat("a", 64)
	for w := range sums {
		wg.Go(func() {
			for i := w; i < len(nodes); i += len(sums) {
				data, err := s.Compile(nodes[i].Name, layer, "")
				if err != nil {
					errs[w] = err
					return
				}
				bundle, err := sign.SignOverlay(key, oci.Digest(data), sign.Predicate{Fleet: "bench", Node: nodes[i].Name, Layer: layer,
					Generation: 1, IssuedAt: now, Expires: now.Add(time.Hour)})
				if err != nil {
					errs[w] = err
					return
				}
				sums[w] += int64(len(data) + len(bundle))
			}
		})
	}
	wg.Wait()
	for i := range sums {
		if errs[i] != nil {
			b.Fatal(errs[i])
		}
		total += sums[i]
	}
	return total
}

// sizes are how many nodes a benchmark has, one after another: CAISSON_NODES says one more, as 1000000.
func sizes(b *testing.B) []int {
	b.Helper()
	list := []int{1_000, 10_000, 100_000}
	if s := os.Getenv("CAISSON_NODES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// BenchmarkCompileAndSign is a publication without the pushing: read, check,
// merge, compile, sign.
func BenchmarkCompileAndSign(b *testing.B) {
	key, err := sign.Generate()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range sizes(b) {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			fsys := fleet(n)
			resetPeak()
			start, worked := time.Now(), processorTime()
			runs := 0
			for b.Loop() {
				s := parseFleet(b, fsys)
				if compileAndSign(b, s, key) < int64(n)*1000 {
					b.Fatal("overlays are too small to be true")
				}
				runs++
			}
			report(b, n*runs, time.Since(start), processorTime()-worked)
		})
	}
}

// BenchmarkPlan compares what is published with a site that differs in one
// value for a third of the nodes, as preview does: a row of fleet:index settles what is
// equal, and what differs arrives as bytes.
func BenchmarkPlan(b *testing.B) {
	for _, n := range sizes(b) {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			fsys := fleet(n)
			before := parseFleet(b, fsys)
			rows := make(map[string]string, n)
			for _, node := range before.Nodes() {
				rows[node.Name] = oci.Digest(compile(b, before, node.Name))
			}
			fsys["site.yaml"].Data = []byte(strings.Replace(string(fsys["site.yaml"].Data), "values: [compute]}, conf: {sysctl: {vm.swappiness: 1", "values: [compute]}, conf: {sysctl: {vm.swappiness: 2", 1))
			resetPeak()
			start, worked := time.Now(), processorTime()
			runs := 0
			for b.Loop() {
				s := parseFleet(b, fsys)
				if got := comparePublished(b, s, before, rows); len(got.Nodes) != n || !got.Changed() {
					b.Fatal("the plan is not of the whole fleet")
				}
				runs++
			}
			report(b, n*runs, time.Since(start), processorTime()-worked)
		})
	}
}

func comparePublished(b *testing.B, s, before *site.Site, rows map[string]string) *plan.Plan {
	b.Helper()
	p := plan.New(s, noLayers{})
	differ := make(chan string)
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for name := range differ {
				o := &spec.Overlay{}
				if err := spec.Decode(compile(b, before, name), o); err != nil {
					b.Error(err)
				}
				p.Add(name, o)
			}
		})
	}
	for _, node := range s.Nodes() {
		if !p.AddRow(node.Name, rows[node.Name], "") {
			differ <- node.Name
		}
	}
	close(differ)
	readers.Wait()
	return p.Plan()
}

func compile(b *testing.B, s *site.Site, node string) []byte {
	b.Helper()
	data, err := s.Compile(node, "", "")
	if err != nil {
		b.Error(err)
	}
	return data
}

func report(b *testing.B, nodes int, took, worked time.Duration) {
	b.Helper()
	b.ReportMetric(float64(nodes)/took.Seconds(), "nodes/s")
	b.ReportMetric(float64(worked.Microseconds())/float64(nodes), "cpu-µs/node")
	if peak := peakMemory(); peak > 0 {
		b.ReportMetric(float64(peak)/1024, "peak-MiB")
	}
}

// processorTime returns the processor time of this process so far, which other processes slow down
// less than the clock.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for other arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resetPeak resets the kernel's high-water mark of this process, see proc(5).
func resetPeak() {
	runtime.GC()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func peakMemory() int {
	status, _ := os.ReadFile("/proc/self/status")
	if m := highWater.FindSubmatch(status); m != nil {
		n, _ := strconv.Atoi(string(m[1]))
		return n
	}
	return 0
}

// noLayers is a registry without any.
type noLayers struct{}

func (noLayers) Next(site.Variant) *plan.Layer { return nil }
func (noLayers) Published(string) *plan.Layer  { return nil }
func (noLayers) Fetch(_, _ *plan.Layer) int64  { return 0 }

// nights is maintenance of every node: a window each night, an operation in it that
// takes turns by rack, and one each night beside it.
const nights = `---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: Europe/Berlin, duration: 4h, startGuard: 30m, opens: [{weekly: [mon, tue, wed, thu, fri, sat, sun], at: "01:00"}]}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: nightly}
spec:
  windows: [night]
  slot: {by: rack, max: 1, fleetlock: "https://lock.example"}
  operations:
  - {name: reboot, template: {name: reboot-if-required, version: "1"}, schedule: {weekly: [mon, tue, wed, thu, fri, sat, sun], at: "01:30", jitter: 1h}}
  - {name: trim, template: {name: fstrim, version: "1"}, schedule: {weekly: [mon, tue, wed, thu, fri, sat, sun], at: "02:00", jitter: 1h}}
`

// BenchmarkMaintenance reads and compiles 10,000 nodes with nightly windows, and says
// how large an overlay is; beside it is the same site without any.
func BenchmarkMaintenance(b *testing.B) {
	const n = 10_000
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ name, more string }{{"none", ""}, {"nightly", nights}} {
		b.Run(c.name, func(b *testing.B) {
			fsys := fleet(n)
			fsys["site.yaml"].Data = append(fsys["site.yaml"].Data, c.more...)
			size := 0
			for b.Loop() {
				s, r := site.ParseAt(now, fsys, "site.yaml")
				if err := r.Err(); err != nil {
					b.Fatal(err)
				}
				size = 0
				for _, node := range s.Nodes() {
					data, err := s.Compile(node.Name, "sha256:0", "")
					if err != nil {
						b.Fatal(err)
					}
					size += len(data)
				}
			}
			b.ReportMetric(float64(size)/n, "B/overlay")
		})
	}
}
