// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Nodes returns all nodes by name, as they are now. The slice is the hub's: it is only read.
func (h *Hub) Nodes() []view.Judged {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.o.Now()
	if h.kept == nil {
		nodes := make([]*view.Node, 0, len(h.nodes))
		for _, n := range h.nodes {
			nodes = append(nodes, h.viewNode(n))
		}
		h.kept = view.NewKept(nodes, now)
	}
	return h.kept.All(now)
}

// keep has a list show a node as it is by now; mu is held.
func (h *Hub) keep(n *node) {
	if h.kept != nil && !h.kept.Put(h.viewNode(n)) {
		h.kept = nil
	}
}

// Since returns the nodes whose rows changed since an answer that ended with a cursor, by name, and
// the cursor of this answer: all of them for "", and for a cursor that is of no such answer. It
// counts by the revisions of the database, so another instance at the same one goes on with it.
func (h *Hub) Since(cursor string) (nodes []*view.Node, next string) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var rev, heard int64
	listens := h.listens.UnixNano()
	if _, err := fmt.Sscanf(cursor, "%d.%d", &rev, &heard); err != nil || rev > h.rev {
		rev, heard = -1, listens
	}
	for _, n := range h.nodes {
		// Where instances began to listen at other times, they say so of nodes that were not heard since.
		if n.rev > rev || heard != listens && n.view.Received.UnixNano() < max(heard, listens) {
			nodes = append(nodes, h.viewNode(n))
		}
	}
	slices.SortFunc(nodes, func(a, b *view.Node) int { return plain.Natural(a.Name, b.Name) })
	return nodes, fmt.Sprintf("%d.%d", h.rev, listens)
}

// Owner returns the node whose key has an id, "" for none.
func (h *Hub) Owner(key string) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.keys[key]
}

// Now is the time that conditions are judged by.
func (h *Hub) Now() time.Time { return h.o.Now() }

// Fleet says what is known of the fleet as a whole.
type Fleet struct {
	Name         string    `json:"fleet"`
	Epoch        uint64    `json:"epoch"`
	Generation   uint64    `json:"generation"`
	SignedBy     []string  `json:"signedBy,omitempty"`     // names of the keys that signed that, ids where they have none
	Indexed      time.Time `json:"indexed,omitzero"`       // when what is published was last read
	IndexTrouble string    `json:"indexTrouble,omitempty"` // why it could not be read since
	// who is publishing, or that a publish was cut: what is shown is the state before
	// it
	Unfinished string `json:"unfinished,omitempty"`
	Writes     bool   `json:"writes"` // this instance takes reports

	DatabaseTrouble string `json:"databaseTrouble,omitempty"` // why no instance takes any now
}

// Fleet returns what is known of the fleet as a whole.
func (h *Hub) Fleet() Fleet {
	h.mu.RLock()
	defer h.mu.RUnlock()
	f := Fleet{Name: h.fleet.Fleet, Epoch: h.fleet.Floor.Epoch, Generation: h.fleet.Floor.Generation,
		SignedBy: h.fleet.SignedBy, Indexed: h.indexed, Unfinished: h.fleet.Unfinished, Writes: h.Writes()}
	if h.indexErr != nil {
		f.IndexTrouble = h.indexErr.Error()
	}
	if h.away != nil {
		f.DatabaseTrouble = h.away.Error()
	}
	return f
}

// Rollouts returns the rollouts that the index knows, the newest first.
func (h *Hub) Rollouts() []rollout.State {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return append([]rollout.State{}, h.fleet.Rollouts...)
}

// Detail is one node in full.
type Detail struct {
	view.Line
	Published *spec.Published `json:"published,omitempty"` // should be
	Report    *spec.Report    `json:"report,omitempty"`    // is
	Key       string          `json:"key,omitempty"`
	Grade     spec.KeyGrade   `json:"grade,omitempty"`
	KeySince  time.Time       `json:"keySince,omitzero"`
	Offered   *offer          `json:"offered,omitempty"` // by a key that does not count yet
	History   []store.Event   `json:"history"`           // the newest first
	Slots     []Held          `json:"slots,omitempty"`
	Machine   *Machine        `json:"tpmOffered,omitempty"` // what its TPM showed last, where nobody has accepted that
}

// Machine is the machine of a node's last quote, which an operator may accept.
type Machine struct {
	Key string `json:"key"`          // digest of the TPM's key, as 'caisson-agent quote' prints it
	EK  string `json:"ek,omitempty"` // digest of the endorsement key of the TPM that has it; "" where that is not known
	ID  string `json:"id"`           // names the keys, the code before the loader, and the loader
}

// ErrNoNode is returned for a node that the fleet has not.
var ErrNoNode = cli.WithHint(fmt.Errorf("the fleet has no such node"), "'caisson fleet status' lists them")

// Node returns one node in full.
func (h *Hub) Node(ctx context.Context, name string) (*Detail, error) {
	h.mu.RLock()
	n := h.nodes[name]
	if n == nil {
		h.mu.RUnlock()
		return nil, ErrNoNode
	}
	shown := h.viewNode(n)
	h.mu.RUnlock()
	if h.awayError() != nil {
		return nil, ErrAway
	}
	d := &Detail{Line: shown.Line(h.o.Now()), Published: n.view.Published, Key: n.known.Key, Grade: n.known.Grade,
		KeySince: n.known.Since, History: []store.Event{}}
	if m := shown.Offers(); m != nil {
		d.Machine = &Machine{Key: m.Key, ID: m.ID()}
		if len(m.EK) > 0 {
			d.Machine.EK = digest.Of(m.EK)
		}
	}
	last, offered, err := h.o.Store.Reports(ctx, name)
	if err != nil {
		return nil, err
	}
	if last != "" && n.view.Lost == "" { // what is lost is said by the condition
		if d.Report, err = report.Read([]byte(last), n.view.Received); err != nil {
			return nil, err
		}
	}
	if offered != "" && n.view.Offered != nil {
		if d.Offered, err = readOffer(offered); err != nil {
			return nil, err
		}
		d.Offered.Signed = nil // it is for who accepts it
	}
	events, err := h.o.Store.Events(ctx, name, 50)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		e.At = shownTime(e.At)
		d.History = append(d.History, e)
	}
	for _, l := range h.Slots() {
		for _, held := range l.Held {
			if held.Node == name {
				d.Slots = append(d.Slots, held)
			}
		}
	}
	return d, nil
}

// Signed returns the last reports of nodes as they were signed, by node.
func (h *Hub) Signed(ctx context.Context, nodes []string) (map[string]string, error) {
	if h.awayError() != nil {
		return nil, ErrAway
	}
	return h.o.Store.Signed(ctx, nodes)
}

// Accept makes a key the one that counts for a node, whatever other keys it has or had:
// with the report that is offered, or with the next one of that key. It is named, since
// anybody may have offered another one since somebody looked.
func (h *Hub) Accept(ctx context.Context, name, key, by string) error {
	end, err := h.lockChange()
	if err != nil {
		return err
	}
	defer end()
	w := h.newWork()
	old := w.node(name)
	switch {
	case old == nil:
		return ErrNoNode
	case !sign.IsID(key):
		return &RefusedError{fmt.Sprintf("%.60q is not the id of a key, as caisson-agent report prints it", key)}
	}
	last, offered, err := h.o.Store.Reports(ctx, name)
	if err != nil {
		return err
	}
	now := h.o.Now().UTC()
	w.change.Acts = []audit.Row{audit.New(now, by, audit.Accept, name, key)}
	if key == old.known.Key {
		return w.acceptKey(ctx, old, last, by, now)
	}
	of, err := w.key(ctx, key)
	switch {
	case err != nil:
		return err
	case of.Node != "" && of.Node != name:
		return &RefusedError{fmt.Sprintf("that key belongs to %s", of.Node)}
	}
	if o, err := readOffer(offered); err == nil && o.Report.Key == key {
		if err := w.countReport(old, report.Key{Node: of.Node, Accepted: true}, &letter{report: &o.Report, raw: o.Signed},
			by+" accepted another key", now); err != nil {
			return err
		}
		return w.write(ctx)
	}
	n := *old
	n.accepted = key
	w.nodes[name] = &n
	w.addEvent(now, name, by+" accepted the key "+key+": it counts from its next report on")
	return w.write(ctx)
}

// acceptKey makes the key that counts already the one that an operator accepted: of the
// grade that it says to be of, and before which no earlier one comes back.
func (w *work) acceptKey(ctx context.Context, old *node, last, by string, now time.Time) error {
	r, err := report.Read([]byte(last), old.view.Received)
	if err != nil {
		return &RefusedError{"what it reported last cannot be read: accept it after its next report"}
	}
	if old.known.Grade == spec.KeyPinned {
		return &RefusedError{"it is the key that counts for " + r.Node + " already"}
	}
	n := *old
	n.known.Grade, n.view.Grade = r.Grade, r.Grade
	w.nodes[r.Node] = &n
	w.change.Ended = append(w.change.Ended, store.Key{ID: r.Key, Node: r.Node})
	w.addEvent(now, r.Node, by+" accepted the key that counts")
	return w.write(ctx)
}

// Stats returns what the metrics count.
func (h *Hub) Stats() *Stats { return &h.stats }

// Act writes that a person did something which changes no node.
func (h *Hub) Act(ctx context.Context, who string, act audit.Act, about, said string) error {
	end, err := h.lockChange()
	if err != nil {
		return err
	}
	defer end()
	return h.o.Store.Apply(ctx, store.Change{Acts: []audit.Row{audit.New(h.o.Now(), who, act, about, said)}})
}

// Log returns the audit log.
func (h *Hub) Log() audit.Log { return h.o.Store }

// Hint keeps an unproven statement about a node from an address, in place of the one
// before. It is shown, and neither stored nor counted.
func (h *Hub) Hint(said spec.Hint, from string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if said.Fleet != h.fleet.Fleet {
		return &RefusedError{fmt.Sprintf("hint for fleet %.60q, this service serves %q", said.Fleet, h.fleet.Fleet)}
	}
	name := h.nameMachine(said)
	if name == "" {
		return &RefusedError{"nothing is published for that machine"}
	}
	h.hints[name] = view.Hint{Node: name, At: h.o.Now().UTC(), From: from, Why: plain.Line(said.Why), Code: said.Code}
	h.keep(h.nodes[name])
	h.notifyWatchers()
	return nil
}

// nameMachine returns the published node that a machine claims to be, "" for none: by its
// hardware first, as the name may be DHCP's. mu is held.
func (h *Hub) nameMachine(said spec.Hint) string {
	if h.hardware == nil { // who sends hints without end must not have all nodes compared each time
		h.hardware = map[string]string{}
		for name, n := range h.nodes {
			if p := n.view.Published; p != nil {
				for _, id := range slices.Concat(p.Match.MACs, p.Match.UUIDs) {
					h.hardware[id] = name
				}
			}
		}
	}
	for _, id := range slices.Concat(said.Match.MACs, said.Match.UUIDs) {
		if name := h.hardware[id]; name != "" {
			return name
		}
	}
	if n := h.nodes[said.Node]; n != nil && n.view.Published != nil {
		return said.Node
	}
	return ""
}

// viewNode is a node with the hint about it; mu is held.
func (h *Hub) viewNode(n *node) *view.Node {
	hint, hinted := h.hints[n.view.Name]
	before := n.view.Received.Before(h.listens)
	if !hinted && !before {
		return &n.view
	}
	v := n.view
	if hinted {
		v.Hint = &hint
	}
	if before {
		v.Listens = h.listens
	}
	return &v
}
