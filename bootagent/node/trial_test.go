// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// link is the parameter without which a test's machine reaches nothing: "0" cuts it off.
const link = "/proc/sys/net/ipv4/ip_forward"

var errCut = errors.New("no route to host")

// cable is a registry that is reached for as long as the link is there.
type cable struct {
	oci.Source
	link  string
	asked *atomic.Int32
	cut   func() // somebody asks while the link is not there
	fails error  // what the registry answers, nil where it is well
}

func (c cable) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	c.asked.Add(1)
	if data, err := os.ReadFile(c.link); err != nil || strings.TrimSpace(string(data)) == "0" {
		c.cut()
		return oci.Response{}, errCut
	}
	if c.fails != nil {
		return oci.Response{}, c.fails
	}
	return c.Source.Manifest(ctx, repo, reference, etag)
}

// remote is a machine whose registry is behind the link.
type remote struct {
	*machine
	asked   atomic.Int32
	cut     func()
	fails   error
	reboots int
	within  time.Duration // that a change has to prove that the registry is reached
}

func newRemote(t *testing.T) *remote {
	t.Helper()
	r := &remote{machine: newMachine(t), cut: func() {}}
	if err := os.MkdirAll(filepath.Dir(r.root+link), 0o755); err != nil {
		t.Fatal(err)
	}
	r.set("1")
	return r
}

func (r *remote) set(value string) {
	r.t.Helper()
	if err := os.WriteFile(r.root+link, []byte(value+"\n"), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *remote) got() string {
	r.t.Helper()
	data, err := os.ReadFile(r.root + link)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// publishLink signs a generation with one harmless parameter, and the link.
func (r *remote) publishLink(generation uint64, layer, swappiness, value string) {
	r.t.Helper()
	r.within = time.Minute
	if value == "0" {
		r.within = 1200 * time.Millisecond // all of which is waited for
	}
	r.publishItems(generation, layerNamed(layer), items2(swappiness, value))
}

func items2(swappiness, value string) spec.Items {
	return spec.Items{Sysctl: []spec.Sysctl{{Key: "net/ipv4/ip_forward", Value: value}, {Key: "vm/swappiness", Value: swappiness}}}
}

func (r *remote) options() session.Options {
	reboot := func(context.Context) error { r.reboots++; return nil }
	return traced(session.Options{Root: r.root, Kernel: &r.kernel, Name: fixture.Node, Say: r.t.Logf, Within: r.within, Reboot: reboot, Fetch: func(b spec.Bootstrap, way track.Way) (oci.Source, error) {
		s, err := track.Open(b, way)
		return cable{s, r.root + link, &r.asked, r.cut, r.fails}, err
	}})
}

func (r *remote) do(act func(*Node) (*spec.Status, error)) (*spec.Status, error) {
	r.t.Helper()
	n, err := Open(r.t.Context(), r.options(), r.bootstrap())
	if err != nil {
		r.t.Fatal(err)
	}
	defer n.Close() // the test looks at files
	return act(n)
}

func (r *remote) applyOnce() (*spec.Status, error) {
	r.t.Helper()
	return r.do(func(n *Node) (*spec.Status, error) { return n.cycle.Apply(r.t.Context()) })
}

func (r *remote) syncOnce() (*spec.Status, error) {
	r.t.Helper()
	return r.do(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(r.t.Context()) })
}

func (r *remote) must(st *spec.Status, err error) *spec.Status {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// up is a node that runs generation 1, which has the link.
func (r *remote) up() {
	r.t.Helper()
	r.publishLink(1, "a", "10", "1")
	r.boot()
	if st := r.must(r.applyOnce()); st.Health != spec.HealthOK || st.Trial != nil {
		r.t.Fatalf("%s, %+v", st.Health, st.Drift)
	}
}

func (r *remote) state() *state.State {
	r.t.Helper()
	s, err := state.View(r.root + paths.State).Load()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestAChangeThatCutsTheNodeOffIsUndone(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishLink(2, "a", "20", "0")
	st, err := r.syncOnce()
	if err == nil || !strings.Contains(err.Error(), "generation 2 was undone: after it the registry was not reached within 1s: no route to host") {
		t.Errorf("error %v", err)
	}
	check := func(when string, st *spec.Status) {
		t.Helper()
		if st == nil || st.Generation != 1 || st.Health != spec.HealthDegraded || st.Sync != spec.SyncBehind || st.Trial == nil || !strings.Contains(st.Trial.Undone, "no route to host") || st.Staged != "" {
			t.Errorf("%s: %+v", when, st)
		}
		if r.got() != "1" || r.swappiness("") != "10" {
			t.Errorf("%s: link %s, swappiness %s", when, r.got(), r.swappiness(""))
		}
	}
	check("at once", st)
	check("at the next pass", r.must(r.applyOnce()))
	check("when it is asked for again", r.must(r.syncOnce()))
	r.publishLink(3, "a", "30", "1")
	if st := r.must(r.syncOnce()); st.Generation != 3 || st.Health != spec.HealthOK || st.Trial != nil || r.swappiness("") != "30" {
		t.Errorf("a newer one: %+v", st)
	}
}

// What had drifted before the change, and is only reported, stays: it is not the change's.
func TestAChangeThatIsUndoneLeavesDrift(t *testing.T) {
	r := newRemote(t)
	publish := func(generation uint64, value string) {
		o := spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: items2("10", value), Agent: &spec.Agent{Enforce: []spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyReport}}}}
		o.SetNeeds()
		r.Overlay(o, sign.Predicate{Generation: generation})
		r.confirm(fixture.Now())
	}
	r.within = time.Minute
	publish(1, "1")
	r.boot()
	r.must(r.applyOnce())
	r.machine.swappiness("77")
	r.within = 1200 * time.Millisecond // all of which goes by
	publish(2, "0")
	if _, err := r.syncOnce(); err == nil || !strings.Contains(err.Error(), "was undone") {
		t.Errorf("error %v", err)
	}
	if r.got() != "1" || r.machine.swappiness("") != "77" {
		t.Errorf("link %s, swappiness %s", r.got(), r.machine.swappiness(""))
	}
}

// What needs no proof is not kept waiting for it, and what does and has it stands.
func TestATrialThatGoesWell(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishLink(2, "a", "20", "1")
	r.asked.Store(0)
	r.must(r.syncOnce())
	plain := r.asked.Load()
	r.publishLink(3, "a", "20", "2")
	r.asked.Store(0)
	if st := r.must(r.syncOnce()); st.Generation != 3 || st.Health != spec.HealthOK || st.Trial != nil || r.got() != "2" {
		t.Errorf("%+v, link %s", st, r.got())
	}
	if got := r.asked.Load(); got != plain+1 {
		t.Errorf("%d questions with a trial, %d without", got, plain)
	}
	if s := r.state(); s.Trial != nil || s.Current.Generation != 3 {
		t.Errorf("%+v", s)
	}
}

// A process that finds a trial without an outcome undoes it: in this boot and after it.
func TestATrialThatWasCut(t *testing.T) {
	for name, boot := range map[string]string{"the agent": "", "the machine": "another"} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			r.up()
			r.publishLink(2, "a", "20", "0")
			n, err := Open(t.Context(), r.options(), r.bootstrap())
			if err != nil {
				t.Fatal(err)
			}
			next, err := n.session.Tracker.Sync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r.set("0")
			s := r.state()
			s.Trial = &state.Trial{Generation: next.Generation, Boot: n.session.Scopes.Kernel, Confirm: state.ByReach}
			if boot != "" {
				s.Trial.Boot = boot
			}
			if err := n.session.Folder.Save(s); err != nil {
				t.Fatal(err)
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			st := r.must(r.applyOnce())
			if st.Generation != 1 || r.got() != "1" || st.Trial == nil || !strings.Contains(st.Trial.Undone, name) || st.Health != spec.HealthDegraded {
				t.Errorf("%+v, link %s", st, r.got())
			}
			if st := r.must(r.syncOnce()); st.Generation != 1 || r.got() != "1" {
				t.Errorf("asked: %+v, link %s", st, r.got())
			}
		})
	}
}

// Who is told to end while it proves a change undoes it, and holds nothing against it.
func TestATrialThatIsCancelled(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishLink(2, "a", "20", "0")
	ctx, cancel := context.WithCancel(t.Context())
	r.within, r.cut = time.Minute, cancel
	n, err := Open(t.Context(), r.options(), r.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.cycle.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if s := r.state(); r.got() != "1" || s.Trial != nil || s.Current.Generation != 1 || s.Staged == nil {
		t.Errorf("link %s, %+v", r.got(), s)
	}
}

// A node that has nothing to go back to leaves out what cuts it off, in every pass of
// this boot, until there is something newer.
func TestABootThatCutsTheNodeOff(t *testing.T) {
	r := newRemote(t)
	r.publishLink(1, "a", "10", "0")
	r.boot()
	if err := os.WriteFile(r.root+paths.RunDeadline, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(when string, st *spec.Status, health spec.Health) {
		t.Helper()
		if st == nil || st.Generation != 1 || st.Health != health || r.got() != "1" || r.swappiness("") != "10" || st.Staged != "" {
			t.Errorf("%s: %+v, link %s, swappiness %s", when, st, r.got(), r.swappiness(""))
		}
	}
	check("at boot", r.must(r.applyOnce()), spec.HealthDegraded)
	if _, err := os.Stat(r.root + paths.RunDeadline); err == nil {
		t.Error("the machine would be started over, to end the same")
	}
	check("later", r.must(r.applyOnce()), spec.HealthDegraded)
	check("asked", r.must(r.syncOnce()), spec.HealthDegraded)
	if s := r.state(); s.Current != nil {
		t.Errorf("what cut it off counts as good: %+v", s)
	}
	r.publishLink(2, "a", "20", "0")
	if st, err := r.syncOnce(); err == nil || st == nil || st.Generation != 2 || r.got() != "1" || r.swappiness("") != "20" {
		t.Errorf("no better: %+v, %v, link %s, swappiness %s", st, err, r.got(), r.swappiness(""))
	}
	r.publishLink(3, "a", "10", "3")
	if st := r.must(r.syncOnce()); st.Generation != 3 || st.Health != spec.HealthOK || r.got() != "3" {
		t.Errorf("%+v, link %s", st, r.got())
	}
}

// Another layer that comes up and cuts the node off is not the good one: the next look
// starts the machine over, and the deadline of its boot does where nobody looks.
func TestABootOfAnotherLayerThatCutsTheNodeOff(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishLink(2, "b", "20", "0")
	if st := r.must(r.syncOnce()); st.Staged == "" || st.Sync != spec.SyncBehind {
		t.Fatalf("%+v", st)
	}
	r.boot()
	for _, name := range []string{paths.RunStatus, link} { // of another root and kernel
		if err := os.Remove(r.root + name); err != nil {
			t.Fatal(err)
		}
	}
	r.set("1")
	if err := os.WriteFile(r.root+paths.RunDeadline, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for look := range 2 {
		st := r.must(r.applyOnce())
		if st.Health != spec.HealthDegraded || r.got() != "1" || r.swappiness("") != "20" || r.reboots != look {
			t.Errorf("%+v, link %s, swappiness %s, %d reboots", st, r.got(), r.swappiness(""), r.reboots)
		}
		if _, err := os.Stat(r.root + paths.RunDeadline); err != nil {
			t.Errorf("nothing takes it back: %v", err)
		}
	}
	// The loader of the next boot takes what was good.
	f := track.Tracker{Source: r.Registry.Source(), Bootstrap: *r.bootstrap(), Identity: fixtureIdentity(), Folder: state.View(r.root + paths.State), Say: t.Logf, CoreOnly: true}
	found, err := f.Sync(t.Context())
	if err != nil || !found.Held {
		t.Errorf("%+v, %v", found, err)
	}
	if good, err := f.Good(false); err != nil || good[0].Generation.Generation != 1 {
		t.Errorf("%+v, %v", good, err)
	}
}

// Where the registry was out of reach before, nothing is left out for it.
func TestABootThatCannotBeTested(t *testing.T) {
	r := newRemote(t)
	r.publishLink(1, "a", "10", "2")
	r.boot()
	r.set("0")
	r.within = 1200 * time.Millisecond
	if st := r.must(r.applyOnce()); st.Health != spec.HealthOK || r.got() != "2" || r.state().Current == nil {
		t.Errorf("%+v, link %s", st, r.got())
	}
}

// publishConfirm signs a generation that waits for an operator.
func (r *remote) publishConfirm(generation uint64, layer, swappiness, value string) {
	r.t.Helper()
	r.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed(layer)}, Confirm: &spec.Confirm{Within: 3600}, Items: items2(swappiness, value)}, sign.Predicate{Generation: generation})
	r.machine.confirm(time.Now())
}

func (r *remote) confirmNow() error {
	r.t.Helper()
	_, err := r.do(func(n *Node) (*spec.Status, error) { return nil, n.Confirm(r.t.Context()) })
	return err
}

// expire lets the operator's time be over.
func (r *remote) expire() {
	r.t.Helper()
	s := r.state()
	s.Trial.Ends = 1
	folder, err := state.Open(r.root + paths.State)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := folder.Save(s); err != nil {
		r.t.Fatal(err)
	}
}

func TestAnOperatorConfirms(t *testing.T) {
	waits := func(t *testing.T) *remote {
		t.Helper()
		r := newRemote(t)
		r.up()
		r.publishConfirm(2, "a", "20", "1")
		for range 2 { // it stays as it is however often somebody looks and asks
			st := r.must(r.syncOnce())
			if st.Generation != 2 || st.Health != spec.HealthOK || st.Trial == nil || st.Trial.Left < 1 || st.Trial.Left > 3601 || st.Activity != spec.ActivityWaiting("confirm") || r.swappiness("") != "20" {
				t.Fatalf("%+v, %+v, swappiness %s", st, st.Trial, r.swappiness(""))
			}
			r.swappiness("77")
			if st := r.must(r.applyOnce()); st.Generation != 2 || r.swappiness("") != "20" {
				t.Fatalf("%+v, swappiness %s", st, r.swappiness(""))
			}
		}
		if s := r.state(); s.Current.Generation != 1 {
			t.Fatalf("it counts as good: %+v", s.Current)
		}
		return r
	}
	undone := func(t *testing.T, r *remote, why string) {
		t.Helper()
		for range 2 {
			st := r.must(r.applyOnce())
			if st.Generation != 1 || st.Trial == nil || !strings.Contains(st.Trial.Undone, why) || st.Health != spec.HealthDegraded || r.swappiness("") != "10" {
				t.Errorf("%+v, %+v, swappiness %s", st, st.Trial, r.swappiness(""))
			}
			r.must(r.syncOnce())
		}
	}
	t.Run("in time", func(t *testing.T) {
		r := waits(t)
		if err := r.confirmNow(); err != nil {
			t.Fatal(err)
		}
		if s := r.state(); s.Current.Generation != 2 || s.Staged != nil || s.Trial != nil {
			t.Errorf("%+v", s)
		}
		if st := r.must(r.syncOnce()); st.Generation != 2 || st.Health != spec.HealthOK || st.Trial != nil || r.swappiness("") != "20" {
			t.Errorf("%+v", st)
		}
		if err := r.confirmNow(); err == nil || err.Error() != "nothing waits to be confirmed" {
			t.Errorf("once more: %v", err)
		}
	})
	t.Run("not", func(t *testing.T) {
		r := waits(t)
		r.expire()
		undone(t, r, "nobody confirmed it within 3600 s")
		if err := r.confirmNow(); err == nil || !strings.Contains(err.Error(), "generation 2 was undone: nobody confirmed") {
			t.Errorf("afterwards: %v", err)
		}
	})
	t.Run("too late", func(t *testing.T) {
		r := waits(t)
		r.expire()
		if err := r.confirmNow(); err == nil {
			t.Error("it was confirmed")
		}
		undone(t, r, "nobody confirmed it within 3600 s")
	})
	t.Run("started over", func(t *testing.T) {
		r := waits(t)
		s := r.state()
		s.Trial.Boot = "another"
		folder, err := state.Open(r.root + paths.State)
		if err != nil {
			t.Fatal(err)
		}
		if err := folder.Save(s); err != nil {
			t.Fatal(err)
		}
		r.swappiness("60")
		r.boot() // the loader takes what was good
		undone(t, r, "the machine was started over before it was confirmed")
	})
	t.Run("tried again", func(t *testing.T) {
		r := waits(t)
		r.expire()
		undone(t, r, "nobody confirmed it")
		st, err := r.do(func(n *Node) (*spec.Status, error) { return n.Retry(t.Context()) })
		if err != nil || st.Generation != 2 || st.Trial == nil || st.Trial.Left < 1 || r.swappiness("") != "20" {
			t.Errorf("%+v, %v", st, err)
		}
		if err := r.confirmNow(); err != nil || r.state().Current.Generation != 2 {
			t.Error(err)
		}
	})
	t.Run("a newer one comes", func(t *testing.T) {
		r := waits(t)
		r.publishLink(3, "a", "30", "1")
		if st := r.must(r.syncOnce()); st.Generation != 3 || st.Trial != nil || st.Health != spec.HealthOK || r.swappiness("") != "30" {
			t.Errorf("%+v", st)
		}
	})
	t.Run("a newer one comes and waits, too", func(t *testing.T) {
		r := waits(t)
		r.publishConfirm(3, "a", "30", "1")
		if st := r.must(r.syncOnce()); st.Generation != 3 || st.Trial == nil || st.Trial.Generation != 3 || r.swappiness("") != "30" {
			t.Errorf("%+v", st)
		}
		r.expire()
		if st := r.must(r.applyOnce()); st.Generation != 1 || r.swappiness("") != "10" {
			t.Errorf("%+v, swappiness %s", st, r.swappiness(""))
		}
	})
	t.Run("the same once more", func(t *testing.T) {
		r := waits(t)
		r.publishConfirm(3, "a", "20", "1")
		if st := r.must(r.syncOnce()); st.Generation != 3 || st.Trial == nil || st.Trial.Generation != 3 || r.state().Current.Generation != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// Only the generation's changes are undone: a setting that is only reported stays as
// somebody left it.
func TestWhatWasNotChangedIsNotUndone(t *testing.T) {
	r := newRemote(t)
	if err := os.MkdirAll(r.root+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	motd := r.root + "/etc/motd"
	publish := func(generation uint64, link string) {
		t.Helper()
		i := items2("10", link)
		i.Files = []spec.File{{Path: "/etc/motd", Content: "ours"}}
		r.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Items: i,
			Agent: &spec.Agent{Enforce: []spec.Enforcement{{Item: "files", Policy: spec.PolicyReport}}}}, sign.Predicate{Generation: generation})
		r.machine.confirm(time.Now())
	}
	publish(1, "1")
	r.boot()
	r.must(r.applyOnce())
	if err := os.WriteFile(motd, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.must(r.applyOnce())
	publish(2, "0")
	if _, err := r.syncOnce(); err == nil || r.got() != "1" {
		t.Errorf("%v, link %s", err, r.got())
	}
	if got, err := os.ReadFile(motd); err != nil || string(got) != "theirs" {
		t.Errorf("%s, %v", got, err)
	}
}

// Nobody is asked where nothing changes, and where there is nothing to go back to.
func TestNobodyIsAsked(t *testing.T) {
	r := newRemote(t)
	r.publishConfirm(1, "a", "10", "1")
	r.boot()
	if st := r.must(r.applyOnce()); st.Trial != nil || r.state().Current == nil {
		t.Errorf("at first: %+v", st.Trial)
	}
	r.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Confirm: &spec.Confirm{Within: 20}, Items: items2("10", "1")}, sign.Predicate{Generation: 2})
	if st := r.must(r.syncOnce()); st.Trial != nil || st.Generation != 2 {
		t.Errorf("without a change: %+v", st)
	}
	r.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Confirm: &spec.Confirm{Within: 1}, Items: items2("20", "1")}, sign.Predicate{Generation: 3})
	if _, err := r.syncOnce(); err == nil || !strings.Contains(err.Error(), "within 10 s to 24 h, not 1 s") || r.swappiness("") != "10" {
		t.Errorf("too short: %v", err)
	}
}

// A generation of another layer waits for its operator, too, and its deadline goes on.
func TestAnOperatorConfirmsABoot(t *testing.T) {
	for name, confirmed := range map[string]bool{"in time": true, "not": false} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			r.up()
			r.publishConfirm(2, "b", "20", "1")
			r.must(r.syncOnce())
			r.boot()
			if err := os.Remove(r.root + paths.RunStatus); err != nil { // another root
				t.Fatal(err)
			}
			if err := os.WriteFile(r.root+paths.RunDeadline, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if st := r.must(r.applyOnce()); st.Generation != 2 || st.Trial == nil || st.Trial.Left < 1 || r.state().Current.Generation != 1 {
				t.Fatalf("%+v", st)
			}
			deadline := func() bool { _, err := os.Stat(r.root + paths.RunDeadline); return err == nil }
			if !deadline() {
				t.Error("nothing takes it back")
			}
			if confirmed {
				if err := r.confirmNow(); err != nil || r.state().Current.Generation != 2 || deadline() {
					t.Errorf("%v, %+v, deadline %v", err, r.state().Current, deadline())
				}
				return
			}
			r.expire()
			if st := r.must(r.applyOnce()); st.Health != spec.HealthDegraded || r.state().Current.Generation != 1 || r.state().Staged != nil || !deadline() || r.reboots != 1 {
				t.Errorf("%+v, deadline %v", st, deadline())
			}
		})
	}
}

// A change that cuts the node off while another one is judged takes that back, too, where it
// goes back to what proved itself: what is not in effect is not judged.
func TestACutEndsWhatIsJudged(t *testing.T) {
	r := newRemote(t)
	r.enrolled()
	r.up()
	r.within = time.Minute
	ready := spec.HealthCheck{Name: "ready", File: "/ready20", Timeout: 1, Interval: 1, Retries: 50}
	r.Overlay(spec.Overlay{Core: layer("a"), Items: items2("20", "1"), Gates: &spec.Gates{Checks: []spec.HealthCheck{ready}}}, sign.Predicate{Generation: 2})
	r.machine.confirm(time.Now())
	if st := r.must(r.syncOnce()); st.Generation != 2 || st.Activity != spec.ActivitySoaking {
		t.Fatalf("it is not judged: %+v", st)
	}
	r.publishLink(3, "a", "30", "0")
	if st, err := r.syncOnce(); err == nil || st.Generation != 1 || r.swappiness("") != "10" {
		t.Fatalf("%v; %+v, swappiness %s", err, st, r.swappiness(""))
	}
	r.ready("20")
	r.judge(5)
	if s := r.state(); s.Current.Generation != 1 {
		t.Errorf("generation %d proved itself with swappiness %s", s.Current.Generation, r.swappiness(""))
	}
	if st := r.must(r.applyOnce()); st.Generation != 1 || st.Activity != spec.ActivityIdle || r.swappiness("") != "10" || r.got() != "1" {
		t.Errorf("%+v, swappiness %s, link %s", st, r.swappiness(""), r.got())
	}
}

// Where the disk is full there is room to say that a change stands.
func TestConfirmOnAFullDisk(t *testing.T) {
	r := newRemote(t)
	fill := r.fullDisk()
	r.enrolled()
	r.up()
	r.publishConfirm(2, "a", "20", "1")
	if st := r.must(r.syncOnce()); st.Generation != 2 {
		t.Fatalf("%+v", st)
	}
	fill()
	if err := r.confirmNow(); err != nil || r.state().Current.Generation != 2 {
		t.Errorf("%v; generation %d", err, r.state().Current.Generation)
	}
}

// A change that waits to be confirmed has room to be noted on a disk that fills as it is made;
// what cannot be noted is undone at once, for that reason.
func TestAConfirmThatCannotBeNoted(t *testing.T) {
	for name, kept := range map[string]bool{"with room kept": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			fill := r.fullDisk()
			r.enrolled()
			r.up()
			r.publishConfirm(2, "a", "20", "1")
			o := r.options()
			o.Decided = func(_ *decide.Facts, s decide.Step) {
				if s.Act != decide.AwaitOperator {
					return
				}
				if fill(); !kept {
					if err := os.Remove(r.root + paths.State + "/reserve"); err != nil {
						t.Error(err)
					}
					fill()
				}
			}
			n, err := Open(t.Context(), o, r.bootstrap())
			if err != nil {
				t.Fatal(err)
			}
			st, err := n.cycle.Sync(t.Context())
			if kept && (err != nil || st.Trial == nil || r.swappiness("") != "20") || !kept && (err == nil || r.swappiness("") != "10") {
				t.Errorf("%v, %+v, swappiness %s", err, st, r.swappiness(""))
			}
			if s, err := n.session.Folder.Load(); !kept && (err != nil || s.Trial != nil || s.Staged == nil || s.Staged.Again == 0 || !strings.Contains(s.Staged.Failed, "it could not be kept")) {
				t.Errorf("%v, %+v, %+v", err, s.Trial, s.Staged)
			}
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A first question on a root that comes up ends as a look does: the node goes on, and its
// status says how.
func TestAFirstQuestionAfterABootThatCutsTheNodeOff(t *testing.T) {
	r := newRemote(t)
	r.up()
	r.publishLink(2, "a", "20", "0")
	r.boot()
	r.root2()
	r.set("1")
	if st := r.must(r.syncOnce()); st.Generation != 1 || r.got() != "1" {
		t.Errorf("%+v, link %s", st, r.got())
	}
}
