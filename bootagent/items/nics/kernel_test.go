// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

func kernelSnapshot(t *testing.T, name string) string {
	t.Helper()
	states, err := NewEthtoolKernel().Features(name)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range sorted(states) {
		fmt.Fprintf(&out, "%s %+v\n", f, states[f])
	}
	return out.String()
}

// A veth pair of the real kernel, in a network namespace of its own.
func TestEthtoolKernel(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	for _, feature := range []string{"tx-checksumming", "tso", "rx-gro", "sg"} {
		t.Run(feature, func(t *testing.T) {
			itemtest.Run(t, func(t *testing.T) itemtest.World {
				ip(t, "link", "add", "cs0", "type", "veth", "peer", "name", "cs1")
				t.Cleanup(func() { ip(t, "link", "del", "cs0") })
				states, err := NewEthtoolKernel().Features("cs0")
				if err != nil {
					t.Fatal(err)
				}
				on := false
				for _, m := range members(feature, states) {
					on = on || states[m].Active
				}
				want := []spec.Feature{{Interface: "cs0", Feature: feature, On: !on}}
				return itemtest.World{
					Wanted:   func(j item.Journal) item.Item { return NewFeatures(want, nil, "", NewEthtoolKernel(), j) },
					Empty:    func(j item.Journal) item.Item { return NewFeatures(nil, nil, "", NewEthtoolKernel(), j) },
					Snapshot: func() string { return kernelSnapshot(t, "cs0") },
				}
			})
		})
	}
	t.Run("missing, fixed, unknown", func(t *testing.T) {
		for _, tc := range []struct {
			want   spec.Feature
			action string
		}{
			{spec.Feature{Interface: "none0", Feature: "tso"}, spec.ActionDefer},
			{spec.Feature{Interface: "lo", Feature: "tx-lockless", On: false}, spec.ActionRefuse},
			{spec.Feature{Interface: "lo", Feature: "tcp-segmentation"}, spec.ActionRefuse},
			{spec.Feature{Interface: "a/b", Feature: "tso"}, spec.ActionRefuse},
		} {
			drift, err := NewFeatures([]spec.Feature{tc.want}, nil, "", NewEthtoolKernel(), itemtest.Journal(t, t.TempDir())).Check(t.Context())
			if err != nil || len(drift) != 1 || drift[0].Action != tc.action || drift[0].Reason == "" {
				t.Errorf("%+v: drift %+v, %v; want %s with a reason", tc.want, drift, err, tc.action)
			}
		}
	})
}

// The table of needs is the kernel's: without what a feature needs, it is kept off.
func TestKernelNeeds(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	tried := 0
	for _, kind := range []string{"veth", "bridge"} {
		ip(t, "link", "add", "cs0", "type", kind)
		for _, need := range needs {
			k := NewEthtoolKernel()
			had, err := k.Features("cs0")
			if err != nil {
				t.Fatal(err)
			}
			without, back := map[string]bool{}, map[string]bool{}
			for _, n := range need.oneOf {
				if had[n].Active && had[n].Changeable {
					without[n], back[n] = false, true
				}
			}
			if len(without) == 0 || !had[need.feature].Active || !had[need.feature].Changeable {
				continue
			}
			if err := k.Change("cs0", without); err != nil {
				t.Fatal(err)
			}
			now, err := k.Features("cs0")
			if err != nil {
				t.Fatal(err)
			}
			if tried++; now[need.feature].Active {
				t.Errorf("%s: %s is on without %v", kind, need.feature, sorted(without))
			}
			if err := k.Change("cs0", back); err != nil {
				t.Fatal(err)
			}
		}
		ip(t, "link", "del", "cs0")
	}
	if tried < 4 {
		t.Errorf("only %d needs could be tried", tried)
	}
}

// The ioctl reports the same as ethtool(8), for every feature by its own name.
func TestKernelAgreesWithEthtool(t *testing.T) {
	require.Tool(t, "ethtool")
	out, err := exec.Command("ethtool", "-k", "lo").Output()
	if err != nil {
		t.Fatal(err)
	}
	states, err := NewEthtoolKernel().Features("lo")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		s, ok := states[name]
		if !ok {
			continue // a group's name, or the heading
		}
		compared++
		if s.Active != strings.HasPrefix(value, "on") || s.Changeable == strings.Contains(value, "[fixed]") {
			t.Errorf("%s: %+v, and ethtool says %q", name, s, value)
		}
	}
	if compared < 20 {
		t.Fatalf("only %d features have names that both know", compared)
	}
}

// The kernel keeps what was set for an interface under the interface's new name.
func TestRenamed(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip(t, "link", "add", "v0", "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "name", "v1", "numrxqueues", "4", "numtxqueues", "4")
	sets := func(it item.Item, j item.Journal) { reconcile(t, it, j) }
	j, device := itemtest.Journal(t, t.TempDir()), NewEthtoolKernel()
	tso := func(name string) spec.Feature { return spec.Feature{Interface: name, Feature: "tso"} }
	holds := func(name, rx string, on bool) {
		t.Helper()
		states, err := device.Features(name)
		if err != nil || states["tx-tcp-segmentation"].Active != on {
			t.Errorf("%s: %+v, %v", name, states["tx-tcp-segmentation"], err)
		}
		if got, err := (kernel{}).Read(name + "/channels/rx"); err != nil || got != rx {
			t.Errorf("%s: %q, %v, want %q", name, got, err, rx)
		}
	}
	holds("v0", "4", true)
	for _, carried := range []bool{false, true} {
		sets(NewFeatures([]spec.Feature{tso("v0")}, nil, "/sys", device, j), j)
		sets(New([]spec.NIC{nic("v0", set("channels", "rx", "2"))}, "/sys", j), j)
		holds("v0", "2", false)
		ip(t, "link", "set", "v0", "name", "v9")
		if carried { // as of one that is found by its address
			sets(NewFeatures([]spec.Feature{tso("v9")}, nil, "/sys", device, j), j)
			sets(New([]spec.NIC{nic("v9", set("channels", "rx", "2"))}, "/sys", j), j)
			holds("v9", "2", false)
		}
		sets(NewFeatures(nil, nil, "/sys", device, j), j)
		sets(New(nil, "/sys", j), j)
		holds("v9", "4", true)
		if left := append(j.Entries(FeaturesName), j.Entries(Name)...); len(left) > 0 {
			t.Errorf("left: %+v", left)
		}
		ip(t, "link", "set", "v9", "name", "v0")
	}
	ip(t, "link", "property", "add", "dev", "v0", "altname", "enp3s0")
	sets(NewFeatures([]spec.Feature{tso("enp3s0")}, nil, "/sys", device, j), j)
	sets(New([]spec.NIC{nic("enp3s0", set("channels", "rx", "2"))}, "/sys", j), j)
	holds("v0", "2", false)
	sets(NewFeatures(nil, nil, "/sys", device, j), j)
	sets(New(nil, "/sys", j), j)
	holds("v0", "4", true)
}

// reconcile does what a run of the agent does with one kind.
func reconcile(t *testing.T, it item.Item, j item.Journal) {
	t.Helper()
	check := func() []spec.Drift {
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return drift
	}
	due := check()
	left := slices.DeleteFunc(j.Entries(it.Name()), func(e item.Entry) bool {
		return !slices.ContainsFunc(due, func(d spec.Drift) bool { return d.Key == e.Key && d.Action == spec.ActionRemove })
	})
	if err := it.Restore(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	drift := check()
	if r, ok := it.(interface{ Remember(context.Context) error }); ok {
		if err := r.Remember(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if drift = check(); len(drift) > 0 {
		t.Errorf("%s is not as wanted after one run: %+v", it.Name(), drift)
	}
}

// Where another card takes the name of one that got a new name, each gets back what it had itself.
func TestRenamedAndReplaced(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	j, device := itemtest.Journal(t, t.TempDir()), NewEthtoolKernel()
	rename := func(before, after string) { ip(t, "link", "set", before, "name", after) }
	holds := func(t *testing.T, name, rx string, tso bool) {
		t.Helper()
		states, err := device.Features(name)
		if err != nil || states["tx-tcp-segmentation"].Active != tso {
			t.Errorf("%s: %+v, %v, want %v", name, states["tx-tcp-segmentation"], err, tso)
		}
		if got, err := (kernel{}).Read(name + "/channels/rx"); err != nil || got != rx {
			t.Errorf("%s: %q, %v, want %q", name, got, err, rx)
		}
	}
	wanted := func(t *testing.T, names ...string) {
		t.Helper()
		var features []spec.Feature
		var settings []spec.NIC
		for _, name := range names {
			features = append(features, spec.Feature{Interface: name, Feature: "tso"})
			settings = append(settings, nic(name, set("channels", "rx", "2")))
		}
		reconcile(t, NewFeatures(features, nil, "/sys", device, j), j)
		reconcile(t, New(settings, "/sys", j), j)
	}
	for _, c := range []struct {
		name          string
		before, after []string // wanted
		rename        func()
		first, second string // what the two are called by then
	}{
		{"wanted by name", []string{"a0"}, []string{"a0"}, func() { rename("a0", "a9"); rename("b0", "a0") }, "a9", "a0"},
		{"wanted by address", []string{"a0"}, []string{"a9"}, func() { rename("a0", "a9"); rename("b0", "a0") }, "a9", "a0"},
		{"both wanted", []string{"a0", "b0"}, []string{"a9", "a0"}, func() { rename("a0", "a9"); rename("b0", "a0") }, "a9", "a0"},
		{"swapped", []string{"a0", "b0"}, []string{"a0", "b0"}, func() { rename("a0", "c"); rename("b0", "a0"); rename("c", "b0") }, "b0", "a0"},
		{"one swapped", []string{"a0"}, []string{"a0"}, func() { rename("a0", "c"); rename("b0", "a0"); rename("c", "b0") }, "b0", "a0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"a", "b"} {
				ip(t, "link", "add", name+"0", "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "name", name+"1", "numrxqueues", "4", "numtxqueues", "4")
			}
			if err := (kernel{}).Write("b0/channels/rx", "3"); err != nil {
				t.Fatal(err)
			}
			wanted(t, c.before...)
			c.rename()
			wanted(t, c.after...)
			for _, at := range []struct{ name, rx string }{{c.first, "4"}, {c.second, "3"}} {
				if slices.Contains(c.after, at.name) {
					at.rx = "2"
				}
				holds(t, at.name, at.rx, at.rx != "2")
			}
			wanted(t)
			holds(t, c.first, "4", true)
			holds(t, c.second, "3", true)
			if left := append(j.Entries(FeaturesName), j.Entries(Name)...); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
			ip(t, "link", "del", "a1")
			ip(t, "link", "del", "b1")
		})
	}
}
