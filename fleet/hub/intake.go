// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// letter is a report on its way to the disk.
type letter struct {
	report *spec.Report
	raw    []byte     // it, as it was signed
	place  string     // that it came from
	done   chan error // what became of it; nil once it is on the disk
}

// RefusedError says why a report is not taken, and never will be.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// Open verifies a report that was sent. Who may send how many is decided by what it
// returns, and not by what a report claims before.
func (h *Hub) Open(raw []byte) (*spec.Report, error) { return h.open("", raw) }

func (h *Hub) open(node string, raw []byte) (*spec.Report, error) {
	if err := h.WriteError(); err != nil {
		return nil, err
	}
	r, err := report.Open(node, raw, h.o.Now())
	if err != nil {
		h.stats.Refused.Add(1)
		return nil, &RefusedError{err.Error()}
	}
	return r, nil
}

// Take takes a report that was opened, with its signed form and the place that it came from, and returns when
// it is on the disk. A [RefusedError] is about the report; any other error is this
// service's, and the node should try again.
func (h *Hub) Take(ctx context.Context, r *spec.Report, raw []byte, place string) error {
	return h.deliver(ctx, &letter{report: r, raw: raw, place: place, done: make(chan error, 1)})
}

// inRegistry is the place of all reports that a registry has.
const inRegistry = "registry"

// Stored opens and takes what a registry has under the name of a node. One that was taken
// before is nothing new. It counts from the time that it names on, and from now at most.
func (h *Hub) Stored(ctx context.Context, node string, raw []byte) error {
	r, err := h.open(node, raw)
	if err != nil || h.isKnown(r) {
		return err
	}
	return h.deliver(ctx, &letter{report: r, raw: raw, place: inRegistry, done: make(chan error, 1)})
}

// deliver brings a report to the one who writes.
func (h *Hub) deliver(ctx context.Context, l *letter) error {
	select {
	case h.intake <- l:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-l.done:
		return err
	case <-ctx.Done(): // it may be written all the same; the node sends it again, and it is known then
		return ctx.Err()
	}
}

// isKnown reports whether a report is the last one that was accepted or offered.
func (h *Hub) isKnown(r *spec.Report) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	n := h.nodes[r.Node]
	if n == nil {
		return false
	}
	o := n.view.Offered
	return n.known.Key == r.Key && n.known.Seq == r.Seq || o != nil && o.Key == r.Key && o.Seq == r.Seq
}

const (
	maxBatch  = 512
	batchTime = 10 * time.Second // that a transaction may take
)

// writeBatch writes a report, and all that wait beside it, in one transaction.
func (h *Hub) writeBatch(first *letter) error {
	batch := []*letter{first}
	for len(batch) < maxBatch {
		select {
		case l := <-h.intake:
			batch = append(batch, l)
			continue
		default:
		}
		break
	}
	verdicts, err := h.decide(batch)
	for i, l := range batch {
		if err != nil && verdicts[i] == nil {
			verdicts[i] = ErrAway
		}
		l.done <- verdicts[i]
	}
	return err
}

// decide judges reports and writes those that count.
func (h *Hub) decide(batch []*letter) (verdicts []error, err error) {
	end, no := h.lockChange()
	if no != nil {
		return slices.Repeat([]error{no}, len(batch)), nil
	}
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), batchTime) // an end of the service does not cut a transaction
	defer cancel()
	w := h.newWork()
	for _, l := range batch {
		verdicts = append(verdicts, w.judgeReport(ctx, l))
	}
	h.stats.Batches.Add(1)
	return verdicts, w.write(ctx)
}

// drain ends what still waits: it was not acknowledged.
func (h *Hub) drain() {
	for {
		select {
		case l := <-h.intake:
			l.done <- fmt.Errorf("the service ends")
		default:
			return
		}
	}
}

// work is a change in the making: nodes as they will be once it is on the disk.
type work struct {
	h      *Hub
	nodes  map[string]*node
	texts  map[string]store.Node // by node: what is written of it, and not kept in memory
	keys   map[string]store.Key  // that count by now, or did until now
	change store.Change
}

func (h *Hub) newWork() *work {
	return &work{h: h, nodes: map[string]*node{}, texts: map[string]store.Node{}, keys: map[string]store.Key{}}
}

// node returns a node as this work leaves it.
func (w *work) node(name string) *node {
	if n := w.nodes[name]; n != nil {
		return n
	}
	w.h.mu.RLock()
	defer w.h.mu.RUnlock()
	return w.h.nodes[name]
}

// key returns what is known of a key: whose it is or was.
func (w *work) key(ctx context.Context, id string) (store.Key, error) {
	if k, ok := w.keys[id]; ok {
		return k, nil
	}
	w.h.mu.RLock()
	of, ok := w.h.keys[id]
	w.h.mu.RUnlock()
	if ok {
		return store.Key{ID: id, Node: of}, nil
	}
	return w.h.o.Store.Key(ctx, id)
}

// addKey notes what is known of a key.
func (w *work) addKey(k store.Key) {
	w.keys[k.ID] = k
	w.change.Keys = append(w.change.Keys, k)
}

// judgeReport decides on a report and notes what is to be written.
func (w *work) judgeReport(ctx context.Context, l *letter) error {
	r := l.report
	refuse := func(format string, args ...any) error {
		w.h.stats.Refused.Add(1)
		return &RefusedError{fmt.Sprintf(format, args...)}
	}
	w.h.mu.RLock()
	fleet, listens := w.h.fleet.Fleet, w.h.listens
	w.h.mu.RUnlock()
	old := w.node(r.Node)
	switch {
	case fleet == "":
		return fmt.Errorf("what is published could not be read yet")
	case r.Fleet != fleet:
		return refuse("report for fleet %q, this service serves %q", r.Fleet, fleet)
	case old == nil:
		return refuse("fleet %q has no node %q", fleet, r.Node)
	case old.view.Published == nil:
		return refuse("node %s was retired, or left the site: nothing is published for it", r.Node)
	}
	now := w.h.o.Now().UTC()
	kept, err := w.key(ctx, r.Key)
	if err != nil {
		return err
	}
	if of := w.node(kept.Node); of != nil && of.view.Published == nil {
		return refuse("key belongs to retired node %s, whose keys are still kept", kept.Node)
	}
	known := old.known
	known.Silent = known.Heard.IsZero() || old.isSilent(listens, now)
	key := report.Key{Node: kept.Node, Seq: kept.Seq, Counted: kept.Counted, GivenUp: kept.GivenUp, Accepted: old.accepted == r.Key,
		Awaited: old.accepted != "" && old.accepted != r.Key}
	if o := old.view.Offered; o != nil && o.Key == r.Key {
		key.Seq = max(key.Seq, o.Seq)
	}
	key.Rivalled = l.place != old.place && old.view.Offered.Rivals(r.Key, now)
	verdict, why := report.Judge(known, key, r, now)
	switch verdict {
	case report.Counts:
		why = "the key of a new boot reports"
		switch {
		case key.Accepted:
			why = "an accepted key reports"
		case key.Node != "":
			why = "an earlier key reports again, and counts"
		}
		return w.countReport(old, key, l, why, now)
	case report.Offered:
		return w.offerReport(old, key, l, why, now)
	}
	return refuse("%s", why)
}

// offerKept is how long a key is shown that does not count and reports no more.
const offerKept = 24 * time.Hour

// countReport makes a report the last one of its node. why says how its key came to count,
// where it is another one than before.
func (w *work) countReport(old *node, key report.Key, l *letter, why string, now time.Time) error {
	r := l.report
	text, err := spec.Encode(r)
	if err != nil {
		return err
	}
	n := *old
	was := old.known
	n.known.Grade = report.Grade(was, key, r)
	if r.Key != was.Key {
		n.known.Key, n.known.Since = r.Key, now.Add(-key.Counted)
		if was.Key != "" {
			w.addKey(store.Key{ID: was.Key, Node: r.Node, Seq: was.Seq, Counted: was.Counted()})
			w.addEvent(now, r.Node, why)
		}
		w.addKey(store.Key{ID: r.Key, Node: r.Node, Seq: r.Seq})
		if key.Accepted {
			w.change.Ended = append(w.change.Ended, store.Key{ID: r.Key, Node: r.Node})
		}
	}
	n.known.Seq, n.known.Boot, n.known.Heard = r.Seq, r.BootID, r.Time
	if n.place = l.place; key.Accepted {
		n.accepted = ""
	}
	brief := view.NewBrief(r)
	for _, what := range listChanges(old.view.Report, brief) {
		if w.h.mayRecord(r.Node, now) {
			w.addEvent(now, r.Node, what)
		}
	}
	n.view.Lost = ""
	n.view.Report, n.view.Received, n.view.Grade = brief, r.Time, n.known.Grade
	if o := n.view.Offered; o != nil && (o.Key == r.Key || now.Sub(o.At) > offerKept) {
		n.view.Offered = nil
	}
	t := w.texts[r.Node]
	t.Report, t.Signed = string(text), string(l.raw)
	w.nodes[r.Node], w.texts[r.Node] = &n, t
	w.h.stats.Taken.Add(1)
	return nil
}

// otherKeys is how often a node's history tells of other keys: anybody can make one for
// each report.
const otherKeys = time.Hour

// offerReport keeps a report by a key that does not count yet, beside the node's own word.
func (w *work) offerReport(old *node, key report.Key, l *letter, why string, now time.Time) error {
	r := l.report
	o := offer{Report: *r, Signed: l.raw, Since: now, At: now, Why: why}
	was := old.view.Offered
	if was.Reports(now) { // whether it is this one, or who makes a key for each report
		o.Since = was.Since
	}
	if was != nil {
		if o.Rival = was.Rival; was.Key != r.Key {
			o.Rival = was.At
		}
	}
	text, err := spec.Encode(o)
	if err != nil {
		return err
	}
	n := *old
	if (was == nil || was.Key != r.Key) && now.Sub(old.other) >= otherKeys {
		w.addEvent(now, r.Node, "another key reports for this node: "+why)
		n.other = now
	}
	if key.Node != "" { // it counted once: what it says now is not played back later
		w.addKey(store.Key{ID: r.Key, Node: r.Node, Seq: r.Seq, Counted: key.Counted, GivenUp: key.GivenUp})
	}
	n.view.Offered = o.brief()
	t := w.texts[r.Node]
	t.Offered = string(text)
	w.nodes[r.Node], w.texts[r.Node] = &n, t
	w.h.stats.Offered.Add(1)
	return nil
}

// isSilent reports whether a node has sent nothing for longer than its interval permits,
// while this service was able to receive it.
func (n *node) isSilent(listens, now time.Time) bool {
	v := n.view
	if v.Listens = listens; v.Report == nil { // what it said last cannot be read
		v.Report = &view.Brief{}
	}
	return v.Silent(now)
}

// A node's history has so many events at once, and then one each few minutes: a node that
// goes to and fro, or a thief of its key, must not fill the database for all.
const (
	eventsAtOnce = 100
	eventEach    = 5 * time.Minute
	maxEvent     = 300 // bytes
)

// mayRecord reports whether a node's history has room for what the node does. changing is held.
func (h *Hub) mayRecord(node string, now time.Time) bool {
	from := now.Add(-eventsAtOnce * eventEach)
	if at := h.recorded[node]; at.After(from) && !at.After(now) { // after now: the clock was set
		from = at
	}
	if from = from.Add(eventEach); from.After(now) {
		return false
	}
	h.recorded[node] = from
	return true
}

func (w *work) addEvent(at time.Time, node, what string) {
	what = plain.Cut(plain.Line(what), maxEvent) // PostgreSQL has no text with a zero
	w.change.Events = append(w.change.Events, store.Event{At: at, Node: node, What: what})
}

// write puts the work on the disk and into memory.
func (w *work) write(ctx context.Context) error {
	if len(w.nodes) == 0 {
		return nil
	}
	var changed []*node
	for name, n := range w.nodes {
		row := w.texts[name]
		k := n.known
		row.Name, row.Key, row.Grade, row.KeySince, row.Seq, row.Boot = name, k.Key, k.Grade, k.Since, k.Seq, k.Boot
		row.Received, row.Place, row.Accepted = k.Heard, n.place, n.accepted
		// What this work does not bring stays as it is stored.
		if row.Report == "" && n.view.Report != nil || row.Offered == "" && n.view.Offered != nil {
			report, offered, err := w.h.o.Store.Reports(ctx, row.Name)
			if err != nil {
				return err
			}
			row.Report = cmp.Or(row.Report, report)
			row.Offered = cmp.Or(row.Offered, offered)
		}
		if n.view.Offered == nil {
			row.Offered = ""
		}
		w.change.Nodes = append(w.change.Nodes, row)
		changed = append(changed, n)
	}
	if err := w.h.o.Store.Apply(ctx, w.change); err != nil {
		return err
	}
	for i, n := range changed {
		n.rev = w.change.Nodes[i].Rev
	}
	w.h.setNodes(changed)
	return nil
}

// listChanges says what a node's history tells of a report after another.
func listChanges(before, after *view.Brief) (list []string) {
	if before == nil {
		return []string{fmt.Sprintf("its first report: generation %d, health %s, sync %s", after.Generation,
			after.Axes.Health.State, after.Axes.Sync.State)}
	}
	if before.BootID != after.BootID {
		list = append(list, "it booted")
	}
	if before.Generation != after.Generation || before.Overlay != after.Overlay {
		list = append(list, fmt.Sprintf("generation %d in place of %d", after.Generation, before.Generation))
	}
	if before.Layer != after.Layer {
		list = append(list, fmt.Sprintf("layer %s in place of %s", shortDigest(after.Layer), shortDigest(before.Layer)))
	}
	for _, axis := range []struct {
		name     string
		from, to spec.Axis
	}{{"health", before.Axes.Health, after.Axes.Health}, {"sync", before.Axes.Sync, after.Axes.Sync},
		{"tracking", before.Axes.Tracking, after.Axes.Tracking}} {
		if axis.from.State != axis.to.State {
			list = append(list, plain.With(axis.name+" "+axis.to.State+", was "+axis.from.State, ": ", axis.to.Detail))
		}
	}
	return list
}

func shortDigest(digest string) string { return digest[:min(len(digest), 19)] }
