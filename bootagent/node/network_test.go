// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// publishNetwork signs a generation with a resolver of its own.
func (r *remote) publishNetwork(generation uint64, dns string) {
	r.t.Helper()
	r.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a"), Network: spec.Network{DNS: []string{dns}}},
		Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}}, sign.Predicate{Generation: generation})
	r.confirm(fixture.Now())
}

// boots starts the machine over with what its loader was given by the registry, or has kept.
func (r *remote) boots(source spec.Source) *spec.Status {
	r.t.Helper()
	r.boot()
	b, err := record.LoadBoot(r.root + paths.RunBoot)
	if err != nil {
		r.t.Fatal(err)
	}
	b.RootID, b.Source = string(rune('a'+r.state().Floor.Generation)), source
	if source == spec.SourceCached {
		b.Live.Began = ""
	}
	if err := record.SaveBoot(r.root+paths.RunBoot, b); err != nil {
		r.t.Fatal(err)
	}
	return r.must(r.applyOnce())
}

// looks judges until nothing is judged any more, or the machine is to start over.
func (r *remote) looks() (st *spec.Status) {
	r.t.Helper()
	for range 40 {
		wait, now, err := Judge(r.t.Context(), r.options(), r.bootstrap())
		if err != nil {
			r.t.Fatal(err)
		}
		if now != nil {
			st = now
		}
		if wait == 0 || r.reboots > 0 {
			break
		}
		r.kernel.Sleep(r.t.Context(), wait)
	}
	return st
}

// A boot that brings another network has to reach the registry, as its loader has: else the
// machine starts over into what ran before, without any check of the site.
func TestANetworkThatCutsTheNodeOff(t *testing.T) {
	r := newRemote(t)
	r.publishNetwork(1, "192.0.2.53")
	r.boot()
	if st := r.must(r.applyOnce()); st.Activity == spec.ActivitySoaking || r.state().Current == nil {
		t.Fatalf("the first network is judged: %+v", st)
	}
	r.publishNetwork(2, "192.0.2.54")
	if st := r.must(r.syncOnce()); st.Staged == "" {
		t.Fatalf("it does not wait for a boot: %+v", st)
	}
	r.set("0")
	if st := r.boots(spec.SourceFetched); st.Activity != spec.ActivitySoaking || len(st.Checks) != 1 || st.Checks[0].Name != gate.Reach.Name {
		t.Fatalf("it is not judged: %s, %+v", st.Activity, st.Checks)
	}
	r.looks()
	if s := r.state(); r.reboots != 1 || s.Current.Generation != 1 || s.Staged == nil || s.Staged.Failed == "" {
		t.Fatalf("%d reboots, current %+v, staged %+v", r.reboots, s.Current, s.Staged)
	}

	// A generation whose network is reached is good, and so is one whose boot had no registry
	// before it: nothing would show what cut it off.
	r.reboots = 0
	r.set("1")
	r.publishNetwork(3, "192.0.2.55")
	r.must(r.syncOnce())
	r.boots(spec.SourceFetched)
	if r.looks(); r.reboots != 0 || r.state().Current.Generation != 3 {
		t.Errorf("it is reached: %d reboots, %+v", r.reboots, r.state().Current)
	}
	r.publishNetwork(4, "192.0.2.56")
	r.must(r.syncOnce())
	r.set("0")
	if st := r.boots(spec.SourceCached); st.Activity == spec.ActivitySoaking || r.state().Current.Generation != 4 {
		t.Errorf("with a dead registry: %s, %+v", st.Activity, r.state().Current)
	}
}
