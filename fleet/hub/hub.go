// SPDX-License-Identifier: Apache-2.0

// Package hub is the fleet's service without its network: it holds what is published
// and what is reported, takes reports, gives out slots, and tells watchers that
// something has changed.
//
// All nodes are in memory, so that a page over a hundred thousand of them is a loop; the
// database outlives it. One hub writes. Another one at the same database reads
// what the first wrote, and takes over when that is gone. It decides nothing about
// nodes: it shows. fleet/server and cmd/caisson import it.
package hub

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Published holds what a registry says of a fleet.
type Published struct {
	Fleet string
	Floor spec.Floor // epoch and generation that were given out last
	Root  string     // digest of the index: the same one has the same rows
	Rows  index.Rows // nil where Root is the one that was known

	Rollouts []rollout.State // the newest first

	SignedBy   []string // names of the keys that signed the index, ids where they have none
	Unfinished string   // see [Fleet]
}

// Index reads what is published; it leaves out the rows where known is the root still.
type Index func(ctx context.Context, known string) (Published, error)

// Options say what a hub works with.
type Options struct {
	Store  *store.Store
	Index  Index
	Groups map[string]int  // slots by name: how many nodes may hold one at a time
	Drains map[string]bool // groups whose nodes somebody drains before they act
	Hears  bool            // nodes send it reports: that nobody could hear them before it began is not silence of theirs
	Say    func(format string, args ...any)
	Now    func() time.Time // nil is time.Now
}

// Hub is the state of a fleet. mu guards what changes, unless a comment names another lock.
type Hub struct {
	o        Options
	intake   chan *letter
	stats    Stats
	watchers map[chan struct{}]bool

	mu    sync.RWMutex
	nodes map[string]*node
	kept  *view.Kept        // nil when it is to be made again
	keys  map[string]string // node by id of its key

	published
	database
	slotBook
	hintBook
}

// published is what was read of the index.
type published struct {
	fleet    Published
	indexed  time.Time // when it was last read
	indexErr error
	reading  sync.Mutex // held while it is read
}

// database says how far the database is known, and whether it is written.
type database struct {
	writes   atomic.Bool
	away     error // why it cannot be used; nil where it can
	rev      int64
	listens  time.Time            // since when nodes are heard; zero where they do not send
	changing sync.Mutex           // held while it is written
	recorded map[string]time.Time // by node, see mayRecord; changing guards it
}

// slotBook says who holds slots, and who may take one.
type slotBook struct {
	slots      []store.Slot
	asking     *store.Slot          // that is noted before the budgets of rollouts are read; nil is none
	room       *rollout.Room        // that rollouts leave; nil when it is to be counted anew
	proofs     map[string]time.Time // by node: of the last request for a slot
	proofRules check.List[ask]
	giving     sync.Mutex // held while a slot is given
}

// hintBook has the hints of this instance, with which they end.
type hintBook struct {
	hints    map[string]view.Hint // by node
	hardware map[string]string    // node by what is published of its hardware; nil until a hint wants it
}

// node is what is shown of a node and what judging its next report takes. It is replaced, not changed.
type node struct {
	view     view.Node
	known    report.Reporter
	rev      int64     // of its row in the database; 0 where it has none
	place    string    // that its last report came from
	accepted string    // id of a key that an operator named and that has not reported yet
	other    time.Time // when its history was told of another key
}

// Stats count since this instance started.
type Stats struct{ Taken, Refused, Offered, Batches atomic.Int64 }

// ErrReadOnly is returned where another instance writes.
var ErrReadOnly = errors.New("another instance of this service writes; this one is read-only")

// Open reads the database and the index.
func Open(ctx context.Context, o Options) (*Hub, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hub{o: o, intake: make(chan *letter, 4*maxBatch), nodes: map[string]*node{}, keys: map[string]string{},
		database: database{listens: o.startTime(), recorded: map[string]time.Time{}}, hintBook: hintBook{hints: map[string]view.Hint{}},
		slotBook: slotBook{proofRules: proofRules, proofs: map[string]time.Time{}}, watchers: map[chan struct{}]bool{}}
	err := o.Store.Write(ctx)
	if err != nil && !errors.Is(err, store.ErrTaken) {
		return nil, err
	}
	h.writes.Store(err == nil)
	if err := h.refresh(ctx); err != nil && h.Writes() {
		return nil, err
	}
	h.readIndex(ctx)
	err = h.forgetRetired(ctx)
	h.Nodes() // the first page finds them judged
	return h, err
}

// startTime returns when an instance begins to hear nodes that send it reports.
func (o *Options) startTime() time.Time {
	if !o.Hears {
		return time.Time{}
	}
	return o.Now()
}

// Writes reports whether this instance takes reports.
func (h *Hub) Writes() bool { return h.writes.Load() }

// Times between two looks.
const (
	indexEvery  = 20 * time.Second
	refreshFor  = time.Second // of a hub that only reads
	pruneEvery  = time.Hour
	historyKept = 90 * 24 * time.Hour
)

// Run works until ctx ends. An error is one of the database that no waiting mends.
func (h *Hub) Run(ctx context.Context) error {
	looks := time.NewTicker(indexEvery)
	defer looks.Stop()
	reads, tries, prunes := time.NewTicker(refreshFor), time.NewTicker(lookEvery), time.NewTicker(pruneEvery)
	defer reads.Stop()
	defer tries.Stop()
	defer prunes.Stop()
	if !h.Writes() {
		h.o.Say("another instance writes to %s: this one is read-only, and takes over when that one ends", h.o.Store.Place())
	}
	indexing := make(chan struct{}, 1)
	for {
		var err error
		select {
		case <-ctx.Done():
			h.drain()
			return nil
		case first := <-h.intake:
			err = h.writeBatch(first)
		case <-looks.C:
			select {
			case indexing <- struct{}{}: // a registry that is slow keeps no report waiting
				go func() { h.readIndex(ctx); <-indexing }()
			default:
			}
		case <-reads.C:
			if !h.Writes() && h.awayError() == nil {
				err = h.refresh(ctx)
			}
		case <-tries.C:
			err = h.checkStore(ctx)
		case <-prunes.C:
			if h.awayError() == nil {
				err = errors.Join(h.prune(ctx), h.forgetRetired(ctx))
			}
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case store.Lasts(err):
			return err
		default:
			h.noteAway(err)
		}
	}
}

func (h *Hub) prune(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h.changing.Lock()
	defer h.changing.Unlock()
	full := h.o.Now().Add(-eventsAtOnce * eventEach)
	maps.DeleteFunc(h.recorded, func(_ string, at time.Time) bool { return at.Before(full) })
	return h.o.Store.Prune(ctx, h.o.Now().Add(-historyKept).Unix())
}

// refresh reads what the database has that this hub does not know.
func (h *Hub) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h.changing.Lock()
	defer h.changing.Unlock()
	return h.readNodes(ctx)
}

// readNodes is refresh where changing is held.
func (h *Hub) readNodes(ctx context.Context) error {
	var changed []*node
	if err := h.o.Store.Since(ctx, h.rev, func(row store.Node) { changed = append(changed, h.fromRow(row)) }); err != nil {
		return err
	}
	slots, err := h.o.Store.Slots(ctx)
	if err != nil {
		return err
	}
	for i := range slots {
		slots[i].Since = shownTime(slots[i].Since)
	}
	proofs, err := h.o.Store.Proofs(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	changedSlots := !slices.Equal(slots, h.slots)
	h.slots = slots
	for _, p := range proofs {
		h.proofs[p.Node] = p.At
	}
	h.mu.Unlock()
	if len(changed) > 0 || changedSlots {
		h.setNodes(changed)
	}
	return nil
}

// fromRow makes a node of its row. What cannot be read of it is left out, and said: it
// is of another writer of the database, and ends with the node's next report.
func (h *Hub) fromRow(row store.Node) *node {
	row.Received, row.KeySince = shownTime(row.Received), shownTime(row.KeySince)
	if row.Key == "" { // an operator named one before it reported
		row.Received, row.KeySince = time.Time{}, time.Time{}
	}
	n := &node{rev: row.Rev, place: row.Place, accepted: row.Accepted, known: report.Reporter{Key: row.Key, Grade: row.Grade,
		Since: row.KeySince, Heard: row.Received, Seq: row.Seq, Boot: row.Boot}}
	n.view = view.Node{Name: row.Name, Received: row.Received, Grade: row.Grade}
	if row.Report != "" {
		r, err := report.Read([]byte(row.Report), row.Received)
		if err != nil {
			n.view.Lost = plain.Line(err.Error())
			h.o.Say("node %s: its last report in the database cannot be read: %v", row.Name, err)
		} else {
			n.view.Report = view.NewBrief(r)
		}
	}
	if row.Offered != "" {
		o, err := readOffer(row.Offered)
		if err != nil {
			h.o.Say("node %s: the report by another key in the database cannot be read: %v", row.Name, err)
		} else {
			n.view.Offered = o.brief()
		}
	}
	n.view.Quote = readQuote(row.Quote)
	return n
}

// shownTime is a time of a database as it can be shown.
func shownTime(t time.Time) time.Time {
	if t.Before(report.Earliest) || t.Year() > 9999 {
		return report.Earliest
	}
	return t
}

// offer is a report whose key does not count yet, as the database has it.
type offer struct {
	Report spec.Report `json:"report"`
	Signed []byte      `json:"signed,omitempty"` // as it came
	Since  time.Time   `json:"since,omitzero"`   // since when other keys report for the node
	Rival  time.Time   `json:"rival,omitzero"`   // when another one than this was offered
	At     time.Time   `json:"at"`
	Why    string      `json:"why"`
}

func (o *offer) brief() *view.Offer {
	return &view.Offer{Key: o.Report.Key, Seq: o.Report.Seq,
		Interval: time.Duration(o.Report.Interval) * time.Second, Since: o.Since, Rival: o.Rival, At: o.At, Why: o.Why}
}

// readOffer reads an offer as any release has written it.
func readOffer(kept string) (*offer, error) {
	var o offer
	if err := json.Unmarshal([]byte(kept), &o); err != nil {
		return nil, err
	}
	o.At = shownTime(o.At)
	if o.Since = shownTime(o.Since); o.Since.Equal(report.Earliest) || o.Since.After(o.At) {
		o.Since = o.At
	}
	if o.Rival.After(o.At) || o.Rival.Before(report.Earliest) {
		o.Rival = time.Time{}
	}
	o.Why = plain.Line(o.Why)
	report.Bound(&o.Report, o.At)
	return &o, nil
}

// setNodes takes nodes into memory and tells the watchers.
func (h *Hub) setNodes(changed []*node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range changed {
		old := h.nodes[n.view.Name]
		if old != nil {
			n.view.Published = old.view.Published
			delete(h.keys, old.known.Key)
		}
		h.nodes[n.view.Name] = n
		if n.known.Key != "" {
			h.keys[n.known.Key] = n.view.Name
		}
		h.rev = max(h.rev, n.rev)
		if h.room != nil {
			h.room.Tell(&n.view)
		}
		h.keep(n)
	}
	h.notifyWatchers()
}

// notifyWatchers tells the watchers; mu is held.
func (h *Hub) notifyWatchers() {
	for w := range h.watchers {
		select {
		case w <- struct{}{}:
		default: // it was told already
		}
	}
}

// Watch returns a channel that has a value after a change, until stop is called.
func (h *Hub) Watch() (changes <-chan struct{}, stop func()) {
	w := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[w] = true
	return w, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, w)
	}
}

// readIndex reads what is published. Where that fails, what was read before stays.
func (h *Hub) readIndex(ctx context.Context) {
	h.reading.Lock()
	defer h.reading.Unlock()
	h.mu.RLock()
	known := h.fleet.Root
	h.mu.RUnlock()
	p, err := h.o.Index(ctx, known)
	changed := h.changedRows(p.Rows)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if h.indexErr == nil && ctx.Err() == nil {
			h.o.Say("read what is published: %v", err)
		}
		h.indexErr = err
		return
	}
	h.indexErr, h.indexed = nil, h.o.Now()
	if p.Root == known {
		h.fleet.Unfinished = p.Unfinished
		return
	}
	if h.fleet.Fleet == "" { // no report could be taken before
		h.listens = h.o.startTime()
	}
	h.fleet, h.fleet.Rows = p, nil // nodes have them
	for name, row := range changed {
		n := &node{view: view.Node{Name: name}}
		if old := h.nodes[name]; old != nil {
			*n = *old
		}
		n.view.Published = row
		h.nodes[name] = n
		h.keep(n)
	}
	for name, old := range h.nodes {
		if _, still := p.Rows[name]; still || old.view.Published == nil {
			continue
		}
		if old.rev == 0 { // it never reported
			delete(h.nodes, name)
			h.kept = nil
			continue
		}
		n := *old
		n.view.Published = nil
		h.nodes[name] = &n
		h.keep(&n)
	}
	maps.DeleteFunc(h.hints, func(name string, _ view.Hint) bool { return h.nodes[name] == nil }) // so there are no more hints than nodes
	h.hardware, h.room = nil, nil
	h.notifyWatchers()
}

// changedRows returns the rows that are not as nodes have them: one of many that changes keeps nobody waiting.
func (h *Hub) changedRows(rows index.Rows) map[string]*spec.Published {
	changed := map[string]*spec.Published{}
	for name, row := range rows {
		h.mu.RLock()
		n := h.nodes[name]
		h.mu.RUnlock()
		if n == nil || n.view.Published == nil || !reflect.DeepEqual(*n.view.Published, row) {
			changed[name] = &row
		}
	}
	return changed
}
