// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// publishFile signs a generation with a file that networkd reads when it starts.
func (r *remote) publishFile(generation uint64, text string) {
	r.t.Helper()
	r.publishItems(generation, layerNamed("a"), spec.Items{Files: []spec.File{{Path: "/etc/systemd/network/10-card.network", Content: text, Mode: "0644"}}})
}

// comesBack starts the machine over into what is current, as a loader does that the registry
// has answered, or has not.
func (r *remote) comesBack(answered bool) {
	r.t.Helper()
	b := &record.Boot{Mode: "netboot", Node: "superhost", RootID: "back", Disk: "/dev/vda1", Source: spec.SourceCached, Sync: spec.SyncBehind, Generation: *r.state().Current}
	if !answered {
		b.Sync = spec.SyncUnreachable
	}
	if err := record.SaveBoot(r.root+paths.RunBoot, b); err != nil {
		r.t.Fatal(err)
	}
	r.reboots = 0
	r.must(r.applyOnce())
}

// A boot that cuts the node off proves nothing, whatever of it did that; what tells is whether
// the generation before reaches the registry.
func TestNoBootThatCutsTheNodeOffIsProved(t *testing.T) {
	changes := map[string]func(o *spec.Overlay){
		"a file":           func(o *spec.Overlay) { o.Items.Files = []spec.File{{Path: "/etc/systemd/network/a", Mode: "0644"}} },
		"a unit":           func(o *spec.Overlay) { o.Items.Units = []spec.Unit{{Name: "a.service", State: "disabled"}} },
		"a module":         func(o *spec.Overlay) { o.Items.Modules = &spec.Modules{Blacklist: []string{"e1000e"}} },
		"kernel arguments": func(o *spec.Overlay) { o.KernelArgs = []string{"pci=off"} },
		"another layer":    func(o *spec.Overlay) { o.Layer = layerNamed("b") },
		"nothing that a list has": func(o *spec.Overlay) {
			o.Items.Sysctl = []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}
		},
	}
	for what, change := range changes {
		for _, told := range []string{"told", "in an outage", "an outage that the loader met"} {
			t.Run(what+", "+told, func(t *testing.T) {
				r := newRemote(t)
				r.publishNetwork(1, "192.0.2.53")
				r.boot()
				r.must(r.applyOnce())
				o := spec.Overlay{Core: spec.Core{Layer: layerNamed("a"), Network: spec.Network{DNS: []string{"192.0.2.53"}}}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}}
				change(&o)
				r.Overlay(o, sign.Predicate{Generation: 2})
				r.boot() // the loader has it from the registry
				s := r.state()
				s.Staged.Attempts = 1
				r.save(s)
				r.set("0")
				if st := r.boots(spec.SourceFetched); st.Activity != spec.ActivitySoaking || len(st.Checks) != 1 || st.Checks[0].Name != gate.Reach.Name {
					t.Fatalf("it is not judged: %s, %+v", st.Activity, st.Checks)
				}
				r.looks()
				if s := r.state(); r.reboots != 1 || s.Current.Generation != 1 || s.Staged == nil || s.Staged.Attempts != state.MaxAttempts || s.Doubted == nil {
					t.Fatalf("%d reboots, %+v", r.reboots, s)
				}
				if told != "in an outage" {
					r.set("1")
				}
				r.within = 1 // nanosecond: it is asked once
				r.comesBack(told == "told")
				if s := r.state(); s.Doubted == nil {
					t.Fatal("it is compared before this root is what it was")
				}
				if _, err := r.syncOnce(); (err == nil) != (told != "in an outage") {
					t.Fatal(err)
				}
				s = r.state()
				if rejected := s.Staged != nil && s.Staged.Failed != ""; s.Doubted != nil || rejected != (told == "told") || !rejected && s.Staged != nil && s.Staged.Attempts != 1 {
					t.Fatalf("staged %+v, doubted %+v", s.Staged, s.Doubted)
				}
				r.set("1")
				st := r.must(r.syncOnce())
				switch live := what != "kernel arguments" && what != "another layer"; {
				case told == "told" && (st.Generation != 1 || st.Staged != ""):
					t.Errorf("what was rejected is taken: %d, %s", st.Generation, st.SyncDetail)
				case told != "told" && live && st.Generation != 2, told != "told" && !live && st.Staged == "":
					t.Errorf("it is not taken again: %d, staged %q, %s %s", st.Generation, st.Staged, st.Sync, st.SyncDetail)
				}
			})
		}
	}
}

// Where another layer cut the node off, the same overlay on the layer before tells of it.
func TestALayerIsComparedWithTheOneBefore(t *testing.T) {
	for _, told := range []bool{true, false} {
		r := newRemote(t)
		r.publish(1, layerNamed("a"), "10")
		r.boot()
		r.must(r.applyOnce())
		r.publishAhead(2, layer("b"), "20", -1, "a")
		r.must(r.syncOnce())
		r.set("0")
		r.boots(spec.SourceFetched)
		r.looks()
		if s := r.state(); r.reboots != 1 || s.Staged.Failed == "" || s.Doubted == nil || s.Best().Generation != 2 {
			t.Fatalf("%d reboots, staged %+v, best %+v, doubted %+v", r.reboots, s.Staged, s.Best(), s.Doubted)
		}
		if told {
			r.set("1")
		}
		r.within, r.reboots = 1, 0 // nanosecond: it is asked once
		r.entered("back", *r.state().Best())
		r.must(r.applyOnce())
		if _, err := r.syncOnce(); (err == nil) != told {
			t.Fatal(err)
		}
		if s := r.state(); s.Doubted != nil || s.Staged == nil || (s.Staged.Failed != "") != told {
			t.Errorf("told %v: staged %+v, doubted %+v", told, s.Staged, s.Doubted)
		}
	}
}

// save writes what a loader would have.
func (r *remote) save(s *state.State) {
	r.t.Helper()
	folder, err := state.Open(r.root + paths.State)
	if err == nil {
		err = folder.Save(s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// A change of a running node in whose minute the registry dies is not held against it.
func TestALiveChangeInAnOutage(t *testing.T) {
	for _, told := range []bool{true, false} {
		r := newRemote(t)
		r.up()
		r.within = 1
		r.publishItems(2, layerNamed("a"), items2("20", "0"))
		if _, err := r.syncOnce(); err == nil {
			t.Fatal("it is reached")
		}
		if s := r.state(); s.Doubted == nil || s.Doubted.Generation != 2 || r.got() != "1" {
			t.Fatalf("%+v, link %s", s.Doubted, r.got())
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := r.do(func(n *Node) (*spec.Status, error) { return nil, n.cycle.Settle(ended) }); err != nil || r.state().Doubted == nil {
			t.Fatalf("an agent that ends tells something: %v", err)
		}
		if !told {
			r.set("0") // the registry is dead, whatever the node has
		}
		_, err := r.do(func(n *Node) (*spec.Status, error) { return nil, n.cycle.Settle(t.Context()) })
		if s := r.state(); err != nil || s.Doubted != nil || (s.Trial != nil) != told {
			t.Errorf("told %v: %v, trial %+v, doubted %+v", told, err, s.Trial, s.Doubted)
		}
	}
}

// What only a start reads is not proved by a change of a running node: the next boot that the
// registry answered is on trial, and goes back to what a boot has proved.
func TestWhatOnlyABootReads(t *testing.T) {
	r := newRemote(t)
	r.publishFile(1, "good")
	r.boot()
	r.must(r.applyOnce())
	for n := uint64(2); n < 4; n++ { // the second changes nothing that is read
		r.publishFile(n, "bad")
		r.must(r.syncOnce())
		if s := r.state(); s.Current.Generation != n || s.Current.Unread != "files /etc/systemd/network/10-card.network" {
			t.Fatalf("current %+v, staged %+v", s.Current, s.Staged)
		}
	}
	r.publish(4, layerNamed("a"), "10") // the file goes
	r.must(r.syncOnce())
	s := r.state()
	if s.Current.Unread == "" {
		t.Fatalf("that it goes was tried: %+v", s.Current)
	}
	if !s.Retest(*s.Current) || s.Current.Generation != 1 || s.Staged.Generation != 4 || s.Staged.Unread != "" {
		t.Fatalf("current %+v, staged %+v", s.Current, s.Staged)
	}
	r.save(s)
	r.set("0")
	r.boots(spec.SourceFetched)
	if r.looks(); r.reboots != 1 || r.state().Staged.Failed == "" {
		t.Fatalf("%d reboots, %+v", r.reboots, r.state().Staged)
	}
	r.set("1")
	r.comesBack(true)
	r.must(r.syncOnce())
	if s := r.state(); s.Current.Generation != 1 || s.Staged == nil || s.Staged.Failed == "" || s.Doubted != nil {
		t.Errorf("%+v", s)
	}

	r = newRemote(t)
	r.publishFile(1, "good")
	r.boot()
	r.must(r.applyOnce())
	r.publishFile(2, "good, too")
	r.must(r.syncOnce())
	s = r.state()
	s.Retest(*s.Current)
	r.save(s)
	if r.boots(spec.SourceFetched); r.state().Current.Generation != 2 || r.state().Current.Unread != "" {
		t.Errorf("a boot that is well proves nothing: %+v", r.state().Current)
	}
}

// A site's check that fails on a root which came up with what only a start reads brings back what
// ran before by a boot: to take a file away restarts no program. All else goes back live.
func TestWhatABootHasReadGoesBackByABoot(t *testing.T) {
	read := spec.Items{Files: []spec.File{{Path: "/etc/ssh/sshd_config.d/a.conf", Mode: "0644"}}}
	for what, row := range map[string]struct {
		items   spec.Items
		booted  bool
		reboots int
	}{
		"read by a boot":      {read, true, 1},
		"read by nobody yet":  {read, false, 0},
		"read when it is set": {items2("20", "1"), true, 0},
	} {
		r := newRemote(t)
		r.up()
		if row.items.Sysctl == nil {
			row.items.Sysctl = items2("10", "1").Sysctl
		}
		r.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: row.items,
			Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready", Timeout: 1, Interval: 1, Retries: 1}}}}, sign.Predicate{Generation: 2})
		r.confirm(fixture.Now())
		if row.booted {
			r.boots(spec.SourceFetched)
		} else {
			r.must(r.syncOnce())
		}
		r.looks()
		if s := r.state(); r.reboots != row.reboots || s.Current.Generation != 1 || s.Staged == nil || s.Staged.Failed == "" {
			t.Errorf("%s: %d reboots, current %+v, staged %+v", what, r.reboots, s.Current, s.Staged)
		}
	}
}

// A registry that answers badly is reached.
func TestAnyAnswerIsAWay(t *testing.T) {
	for err, want := range map[error]bool{errCut: false, fmt.Errorf("a: %w", oci.ErrAnswered): true, fmt.Errorf("a: %w", unix.ECONNRESET): true,
		fmt.Errorf("a: %w", io.EOF): true, fmt.Errorf("a: %w", io.ErrUnexpectedEOF): true, fmt.Errorf("a: %w", x509.UnknownAuthorityError{}): false} {
		r := newRemote(t)
		r.up()
		r.fails = err
		_, got := r.do(func(n *Node) (*spec.Status, error) { return nil, n.session.Dial(t.Context()) })
		if (got == nil) != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
