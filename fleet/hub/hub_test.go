// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/storetest"
)

// rig is a hub over a database, and the nodes that report to it.
type rig struct {
	*testing.T
	db     string
	hub    *Hub
	stop   func()
	clock  time.Time
	hears  bool
	drains map[string]bool
	mu     sync.Mutex
	what   Published
	keys   map[string]*ecdsa.PrivateKey
	lines  []string // that its hubs said
}

// numbered is a digest.
func numbered(n uint64) string { return fmt.Sprintf("sha256:%064d", n) }

func newRig(t *testing.T, nodes ...string) *rig {
	return newRigAt(t, "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"), nodes...)
}

func newRigAt(t *testing.T, db string, nodes ...string) *rig {
	r := &rig{T: t, db: db, clock: time.Now().UTC(), keys: map[string]*ecdsa.PrivateKey{}}
	r.publish("1", 1, nodes...)
	r.start()
	return r
}

func (r *rig) publish(root string, generation uint64, nodes ...string) {
	rows := index.Rows{}
	for _, name := range nodes {
		rows[name] = spec.Published{Overlay: numbered(generation), Layer: numbered(0), Generation: generation}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.what = Published{Fleet: "f", Floor: spec.Floor{Generation: generation}, Root: root, Rows: rows}
}

func (r *rig) options(s *store.Store) Options {
	return Options{Store: s, Groups: map[string]int{"default": 1}, Drains: r.drains, Hears: r.hears, Say: r.say,
		Now: func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.clock },
		Index: func(_ context.Context, known string) (Published, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			p := r.what
			if known == p.Root {
				p.Rows = nil
			}
			return p, nil
		}}
}

func (r *rig) say(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *rig) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

func (r *rig) open() (*Hub, func()) {
	r.Helper()
	s, err := store.Open(r.Context(), r.db)
	if err != nil {
		r.Fatal(err)
	}
	h, err := Open(r.Context(), r.options(s))
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return h, stop
}

func (r *rig) start() {
	r.Helper()
	r.hub, r.stop = r.open()
}

func (r *rig) restart() {
	r.Helper()
	r.stop()
	r.start()
}

func (r *rig) later(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = r.clock.Add(d)
}

// key is a key by a name of the test's.
func (r *rig) key(name string) *ecdsa.PrivateKey {
	if r.keys[name] == nil {
		k, err := sign.Generate()
		if err != nil {
			r.Fatal(err)
		}
		r.keys[name] = k
	}
	return r.keys[name]
}

func (r *rig) sealed(key, node string, seq uint64, change func(*spec.Report)) []byte {
	r.Helper()
	one := spec.NewReport(&spec.Status{Fleet: "f", Node: node, BootID: "b1", Health: spec.HealthOK, Sync: spec.SyncCurrent, Tracking: spec.Following, Generation: 1, Overlay: numbered(1), Layer: numbered(0)})
	one.Key, one.Grade, one.Seq, one.Interval = sign.VerifierOf(r.key(key)).ID(), spec.KeyPinned, seq, 300
	if change != nil {
		change(one)
	}
	data, err := one.Encode()
	if err != nil {
		r.Fatal(err)
	}
	raw, err := sign.SignReport(r.key(key), data)
	if err != nil {
		r.Fatal(err)
	}
	return raw
}

// Report takes a report as the service does.
func (h *Hub) Report(ctx context.Context, raw []byte) error { return h.reportFrom(ctx, raw, "") }

func (h *Hub) reportFrom(ctx context.Context, raw []byte, place string) error {
	one, err := h.Open(raw)
	if err != nil {
		return err
	}
	return h.Take(ctx, one, raw, place)
}

func (r *rig) report(key, node string, seq uint64, change func(*spec.Report)) error {
	r.Helper()
	return r.hub.Report(r.Context(), r.sealed(key, node, seq, change))
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) refused(what string, err error) {
	r.Helper()
	var e *RefusedError
	if !errors.As(err, &e) {
		r.Errorf("%s: %v", what, err)
	}
}

func (r *rig) is(node string, want view.Condition) {
	r.Helper()
	d, err := r.hub.Node(r.Context(), node)
	if err != nil || d.Condition != want {
		r.Errorf("%s is %v (%v), want %s", node, d, err, want)
	}
}

// TestWhatNobodyCouldHear: after an hour without the service its nodes are as they were,
// until they report or have had the time to.
func TestWhatNobodyCouldHear(t *testing.T) {
	r := newRig(t, "n1", "n2", "n3")
	r.must(r.report("1", "n1", 1, nil))
	r.must(r.report("2", "n2", 1, func(one *spec.Report) { one.Axes.Health.State = "degraded" }))
	r.later(time.Hour)
	r.restart()
	r.is("n1", view.Silent) // nobody sends to it: what it reads is as old as it is
	r.hears = true
	r.restart()
	r.is("n1", view.Fine)
	r.is("n2", view.Degraded)
	r.is("n3", view.Never)
	if s := view.Summarise(r.hub.Nodes()); s.Unheard != 2 {
		t.Errorf("%d nodes are as they were", s.Unheard)
	}
	r.later(10 * time.Minute) // three intervals and a minute are 16
	r.must(r.report("1", "n1", 2, nil))
	r.later(7 * time.Minute)
	r.is("n1", view.Fine)
	r.is("n2", view.Silent)
	if s := view.Summarise(r.hub.Nodes()); s.Unheard != 0 {
		t.Errorf("%d nodes are as they were", s.Unheard)
	}
	r.later(17 * time.Minute)
	r.is("n1", view.Silent)
}

// TestReportsCount: what is acknowledged is what the hub shows, also after a restart.
func TestReportsCount(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.is("n1", view.Never)
	r.must(r.report("k1", "n1", 10, nil))
	r.is("n1", view.Fine)
	r.must(r.report("k1", "n1", 11, func(o *spec.Report) { o.Axes.Health = spec.Axis{State: "degraded", Detail: "a fan"} }))
	r.is("n1", view.Degraded)
	r.restart()
	r.is("n1", view.Degraded)
	d, err := r.hub.Node(t.Context(), "n1")
	r.must(err)
	if d.Report.Seq != 11 || d.Why != "a fan" || len(d.History) != 2 || !strings.Contains(d.History[0].What, "health degraded, was ok: a fan") {
		t.Errorf("%+v", d)
	}
	r.later(17 * time.Minute)
	r.is("n1", view.Silent)
	if s := view.Summarise(r.hub.Nodes()); s.Nodes != 2 || s.Conditions[view.Never] != 1 || s.Trouble != 1 {
		t.Errorf("%+v", s)
	}
	// A new generation.
	r.must(r.report("k1", "n1", 12, nil))
	r.publish("2", 2, "n1")
	r.hub.readIndex(t.Context())
	r.is("n1", view.Behind)
	if _, err := r.hub.Node(t.Context(), "n2"); !errors.Is(err, ErrNoNode) {
		t.Errorf("a node that was retired and never reported: %v", err)
	}
	r.publish("3", 3)
	r.hub.readIndex(t.Context())
	r.is("n1", view.Retired)
}

// TestAttacks: what does not count changes nothing of what a node is shown to be.
func TestAttacks(t *testing.T) {
	r := newRig(t, "n1", "n2")
	first := r.sealed("k1", "n1", 10, nil)
	r.must(r.hub.Report(t.Context(), first))
	r.must(r.report("k2", "n2", 10, nil))
	broken := func(o *spec.Report) { o.Axes.Health.State = "broken" }
	r.refused("played back", r.hub.Report(t.Context(), first))
	r.refused("an older number", r.report("k1", "n1", 9, broken))
	r.refused("a forged signature", r.hub.Report(t.Context(), []byte(strings.Replace(string(first), `"payload":"e`, `"payload":"f`, 1))))
	r.refused("another node's name", r.report("k2", "n1", 99, broken))
	r.refused("a node there is not", r.report("k3", "n3", 1, nil))
	r.refused("another fleet", r.report("k1", "n1", 99, func(o *spec.Report) { o.Fleet = "g" }))
	r.refused("another key's name", r.report("k3", "n1", 99, func(o *spec.Report) { o.Key = sign.VerifierOf(r.key("k1")).ID() }))
	r.refused("large", r.hub.Report(t.Context(), make([]byte, sign.MaxReport+1)))
	r.is("n1", view.Fine)
	// Another key is shown, and is not counted: not now, not with another boot, not
	// ten hours later.
	for seq := range uint64(3) {
		r.must(r.report("thief", "n1", 50+seq, func(o *spec.Report) { broken(o); o.BootID = fmt.Sprint("x", seq) }))
		r.is("n1", view.OtherKey)
		r.later(time.Minute)
	}
	d, err := r.hub.Node(t.Context(), "n1")
	r.must(err)
	if d.Report.Axes.Health.State != "ok" || d.Offered == nil || d.Offered.Report.Axes.Health.State != "broken" {
		t.Errorf("%+v", d)
	}
	r.must(r.report("k1", "n1", 11, nil)) // the node's own key still counts, and the other is still shown
	r.is("n1", view.OtherKey)
	r.restart()
	r.is("n1", view.OtherKey)
	r.refused("another key than the operator saw", r.hub.Accept(t.Context(), "n1", sign.VerifierOf(r.key("k1")).ID(), "eve"))
	r.refused("no key", r.hub.Accept(t.Context(), "n1", "", "eve"))
	r.is("n1", view.OtherKey)
	r.must(r.hub.Accept(t.Context(), "n1", sign.VerifierOf(r.key("thief")).ID(), "eve"))
	r.is("n1", view.Broken)
	r.must(r.report("k1", "n1", 99, nil)) // the key before it: an operator may have been wrong
	r.is("n1", view.Broken)
	r.refused("nothing to accept", r.hub.Accept(t.Context(), "n1", sign.VerifierOf(r.key("thief")).ID(), "eve"))
	d, err = r.hub.Node(t.Context(), "n1")
	r.must(err)
	if !slices.ContainsFunc(d.History, func(e store.Event) bool { return e.What == "eve accepted another key" }) {
		t.Errorf("%+v", d.History)
	}
}

// TestManyOtherKeys: a key for each report does not fill the history of a node, or hide
// what is in it.
func TestManyOtherKeys(t *testing.T) {
	r := newRig(t, "n1")
	r.must(r.report("k1", "n1", 1, nil))
	for i := range 60 {
		r.must(r.report(fmt.Sprint("thief", i%3), "n1", uint64(i+1), nil))
		r.later(time.Minute)
	}
	r.must(r.report("thief1", "n1", 100, nil))
	d, err := r.hub.Node(t.Context(), "n1")
	r.must(err)
	if len(d.History) != 3 || d.Offered.Report.Key != sign.VerifierOf(r.key("thief1")).ID() {
		t.Errorf("%d events: %+v", len(d.History), d.History)
	}
}

// TestANodeThatGoesToAndFro, or who has its key, fills no database, and has a history
// afterwards.
func TestANodeThatGoesToAndFro(t *testing.T) {
	r := newRig(t, "n1", "n2")
	sick := func(o *spec.Report) {
		o.Axes.Health = spec.Axis{State: []string{"degraded", "ok"}[o.Seq%2], Detail: strings.Repeat("x", 4000)}
	}
	for i := range uint64(200) {
		r.must(r.report("k1", "n1", i+1, sick))
		r.later(time.Second)
	}
	size := 0
	events, err := r.hub.o.Store.Events(t.Context(), "n1", 1000)
	r.must(err)
	for _, e := range events {
		size += len(e.What)
	}
	if len(events) > eventsAtOnce+5 || size > 400*len(events) || !strings.Contains(events[0].What, "health ok, was degraded: xxx") && !strings.Contains(events[0].What, "health degraded, was ok: xxx") {
		t.Errorf("%d events of %d bytes, the last %q", len(events), size, events[0].What)
	}
	for range 2 {
		r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1")))
		r.later(time.Second)
		r.must(r.hub.FreeSlot(t.Context(), "default", "n1", r.proof("k1")))
		r.later(time.Second)
	}
	r.must(r.report("k2", "n2", 1, nil))
	r.later(time.Hour)
	r.must(r.report("k1", "n1", 1001, func(o *spec.Report) { o.Axes.Health.State = "broken" }))
	for node, want := range map[string]int{"n1": len(events) + 1, "n2": 1} {
		all, err := r.hub.o.Store.Events(t.Context(), node, 1000)
		if err != nil || len(all) != want {
			t.Errorf("%s: %d events, want %d, %v", node, len(all), want, err)
		}
	}
}

// TestAClockThatWasWrong: a report that was taken by it keeps no node from being silent.
func TestAClockThatWasWrong(t *testing.T) {
	r := newRig(t, "n1")
	r.later(60 * 365 * 24 * time.Hour)
	r.must(r.report("k1", "n1", 1, nil))
	r.is("n1", view.Fine)
	r.later(-60 * 365 * 24 * time.Hour)
	r.is("n1", view.Silent)
	r.must(r.report("k1", "n1", 2, nil))
	r.is("n1", view.Fine)
}

// id is the id of a key by its name.
func (r *rig) id(key string) string { return sign.VerifierOf(r.key(key)).ID() }

// proof is what a node proves with the key of a name, in the boot of its reports.
func (r *rig) proof(key string) Proof { return r.proofOf(key, "b1", "") }

func (r *rig) proofOf(key, boot, place string) Proof {
	r.Helper()
	r.later(time.Millisecond)
	return Proof{Key: r.id(key), Boot: boot, At: r.options(nil).Now(), Place: place}
}

// TestSlots: one of two nodes gets the one slot, and only it gives it back.
func TestSlots(t *testing.T) {
	r := newRig(t, "n1", "n2")
	ctx := t.Context()
	no := func(kind string, err error) {
		t.Helper()
		var e *SlotError
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%v, want %s", err, kind)
		}
	}
	no(Unproven, r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	r.must(r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	r.must(r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	no("all_slots_full", r.hub.TakeSlot(ctx, "default", "n2", r.proof("k2")))
	no("unknown_group", r.hub.TakeSlot(ctx, "other", "n2", r.proof("k2")))
	no("unknown_node", r.hub.TakeSlot(ctx, "default", "n3", r.proof("k2")))
	r.must(r.hub.FreeSlot(ctx, "default", "n2", r.proof("k2"))) // it has none: that is not an error
	r.restart()
	no("all_slots_full", r.hub.TakeSlot(ctx, "default", "n2", r.proof("k2")))
	free := r.proof("k1")
	r.must(r.hub.FreeSlot(ctx, "default", "n1", free))
	r.must(r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	r.restart()
	no(Unproven, r.hub.FreeSlot(ctx, "default", "n1", free)) // also after a restart
	r.must(r.hub.FreeSlot(ctx, "default", "n1", r.proof("k1")))
	r.must(r.hub.TakeSlot(ctx, "default", "n2", r.proof("k2")))
	r.must(r.hub.ReleaseSlot(ctx, "default", "n2", "eve", "it burnt"))
	no("not_held", r.hub.ReleaseSlot(ctx, "default", "n2", "eve", "it burnt"))
}

// TestDrains: in a group whose nodes are drained a node has its slot, and no leave to use it,
// until it is said to be drained; a restart of the service forgets nothing of that.
func TestDrains(t *testing.T) {
	r := newRig(t, "n1", "n2")
	r.drains = map[string]bool{"default": true}
	r.restart()
	ctx := t.Context()
	no := func(kind string, err error) {
		t.Helper()
		var e *SlotError
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%v, want %s", err, kind)
		}
	}
	r.must(r.report("k1", "n1", 1, nil))
	r.must(r.report("k2", "n2", 1, nil))
	no(Unproven, r.hub.TakeSlot(ctx, "default", "n1", Proof{})) // a pod that asks in a node's name
	no("not_held", r.hub.Drained(ctx, "default", "n1", "bridge", "nothing"))
	no(Draining, r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	no("all_slots_full", r.hub.TakeSlot(ctx, "default", "n2", r.proof("k2")))
	r.restart()
	no(Draining, r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	if held := r.hub.Slots()[0].Held; len(held) != 1 || !held[0].Draining {
		t.Errorf("slots: %+v", held)
	}
	r.must(r.hub.Drained(ctx, "default", "n1", "bridge", "3 pods were evicted"))
	r.must(r.hub.Drained(ctx, "default", "n1", "bridge", "again"))
	r.must(r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	r.restart()
	r.must(r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1")))
	r.must(r.hub.FreeSlot(ctx, "default", "n1", r.proof("k1")))
	no(Draining, r.hub.TakeSlot(ctx, "default", "n1", r.proof("k1"))) // the next time it is drained again
	r.must(r.hub.ReleaseSlot(ctx, "default", "n1", "eve", "its window closed"))
}

// TestASlotOutlivesAKey: a diskless node reboots with a slot, and gives it back with the
// key of its new boot.
func TestASlotOutlivesAKey(t *testing.T) {
	r := newRig(t, "n1")
	of := func(boot string) func(*spec.Report) {
		return func(o *spec.Report) { o.Grade, o.BootID = spec.KeyBoot, boot }
	}
	r.must(r.report("k1", "n1", 1, of("b1")))
	r.must(r.hub.TakeSlot(t.Context(), "default", "n1", r.proof("k1")))
	r.later(time.Hour)
	r.must(r.report("k2", "n1", 1, of("b2")))
	p := r.proof("k2")
	p.Boot = "b2"
	r.must(r.hub.FreeSlot(t.Context(), "default", "n1", p))
	if held := r.hub.Slots()[0].Held; len(held) != 0 {
		t.Errorf("%+v", held)
	}
}

// TestASecondInstance shows what the first writes, says so, and takes over.
func TestASecondInstance(t *testing.T) {
	require.Slow(t)
	storetest.Each(t, aSecondInstance)
}

func aSecondInstance(t *testing.T, db string) {
	r := newRigAt(t, db, "n1")
	second, _ := r.open()
	if second.Writes() || !r.hub.Writes() {
		t.Fatal("two instances write")
	}
	r.must(r.report("k1", "n1", 1, nil))
	wait := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	wait("the second does not show it", func() bool {
		c, _ := second.Nodes()[0].Condition(r.clock)
		return c == view.Fine
	})
	if err := second.Report(t.Context(), r.sealed("k1", "n1", 2, nil)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("%v", err)
	}
	r.stop()
	wait("the second does not take over", second.Writes)
	if err := second.Report(t.Context(), r.sealed("k1", "n1", 2, nil)); err != nil {
		t.Error(err)
	}
	if err := second.Report(t.Context(), r.sealed("k1", "n1", 2, nil)); err == nil {
		t.Error("a number was taken twice")
	}
}

// TestManyAtOnce: reports of one node that come at once are judged one after another.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, "n1")
	raw := r.sealed("k1", "n1", 5, nil)
	var all sync.WaitGroup
	taken := make(chan bool, 50)
	for range 50 {
		all.Go(func() {
			if r.hub.Report(t.Context(), raw) == nil {
				taken <- true
			}
		})
	}
	all.Wait()
	if len(taken) != 1 {
		t.Errorf("one report was taken %d times", len(taken))
	}
}

// TestWatch tells of a change.
func TestWatch(t *testing.T) {
	r := newRig(t, "n1")
	changes, stop := r.hub.Watch()
	defer stop()
	r.must(r.report("k1", "n1", 1, nil))
	select {
	case <-changes:
	case <-time.After(5 * time.Minute):
		t.Error("nobody was told")
	}
}
