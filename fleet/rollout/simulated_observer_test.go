// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
)

// observer counts for itself who is unavailable, by what nodes' tags lead to, by what nodes said,
// and by who holds a slot. It does not read the driver's books.
//
// What moves a node or gives it a slot makes an available node unavailable only where the budget
// has room for it. What fails by itself may use up more than that; what was made unavailable never
// does.
type observer struct {
	w  *world
	mu sync.Mutex

	nodes map[string]*watched
	undo  bool              // an operator takes back at once what the index calls not proved
	was   map[string]string // who was unavailable when it was counted last → why
	wrong []string
}

// watched is a node as it is observed.
type watched struct {
	rack    string
	overlay string    // that its tag leads to
	since   time.Time // when that changed, until it is proved; else zero
	forward bool
	slot    bool
	called  time.Time // when it last had a way to the service
	said    said      // in the last report that was taken
	itself  bool      // it is unavailable by itself
}

// said is what a report says.
type said struct {
	at      time.Time
	overlay string
	trouble bool
	judges  bool
	well    time.Time
}

func newObserver(w *world) *observer {
	o := &observer{w: w, nodes: map[string]*watched{}, was: map[string]string{}}
	for name, rack := range w.budget.Nodes {
		overlay := w.had[name]
		o.nodes[name] = &watched{rack: rack, overlay: overlay, called: begins, said: said{at: begins, overlay: overlay, well: begins}}
	}
	return o
}

// why says why a node is unavailable, "" where it is not.
func (n *watched) why(o *observer, now time.Time) string {
	rule := o.w.rule
	silence := max(time.Duration(rule.Silence)*time.Second, view.Patience(reportsEvery))
	arrived := n.said.overlay == n.overlay && (!n.forward || !n.said.at.Before(n.since)) // what never left is back
	switch {
	case n.slot:
		return "slot"
	case now.Sub(n.called) > silence:
		return "silent"
	case n.said.trouble:
		return "trouble"
	case n.said.judges:
		return "not proved"
	case n.since.IsZero() && n.said.overlay != n.overlay:
		return "it runs something else"
	case n.since.IsZero():
		return ""
	case !n.forward && arrived:
	case arrived && n.said.at.Sub(later(n.said.well, n.since)) >= time.Duration(rule.Soak)*time.Second:
	case arrived && now.Sub(n.since) >= time.Duration(rule.Deadline)*time.Second: // it failed, and what it says counts
	default:
		return "not proved"
	}
	n.since = time.Time{}
	return ""
}

// count returns who is unavailable.
func (o *observer) count() map[string]string {
	now, all := o.w.now(), map[string]string{}
	for name, n := range o.nodes {
		if why := n.why(o, now); why != "" {
			all[name] = why
		} else {
			n.itself = false
		}
	}
	return all
}

// touched looks again where something was done to a node that was available, or not.
func (o *observer) touched(name, what string) {
	_, was := o.was[name]
	all := o.look(name)
	n := o.nodes[name]
	if _, is := all[name]; is && !was && o.undo && what == "a move" {
		n.itself = true
	} else if is && !was {
		n.itself = false
		if over := o.over(all, func(*watched) bool { return true }, n.rack); over != "" {
			o.complain("%s at %s: %s; %v", name, what, over, all)
		}
	}
	if over := o.over(all, func(n *watched) bool { return !n.itself }, n.rack); over != "" {
		o.complain("%s at %s: made unavailable: %s; %v", name, what, over, all)
	}
}

// look counts again: who is unavailable now and was not is so by itself, but for the one that something was done to.
func (o *observer) look(but string) map[string]string {
	all := o.count()
	for name := range all {
		if _, was := o.was[name]; !was && name != but {
			o.nodes[name].itself = true
		}
	}
	o.was = all
	return all
}

// over says in what more nodes of some are unavailable than may be.
func (o *observer) over(all map[string]string, of func(*watched) bool, rack string) string {
	b, inRack, overall := o.w.budget, 0, 0
	for name := range all {
		if n := o.nodes[name]; of(n) {
			overall++
			if n.rack == rack {
				inRack++
			}
		}
	}
	switch {
	case b.Each > 0 && inRack > b.Each:
		return fmt.Sprintf("%d of rack %s unavailable, %d may be", inRack, rack, b.Each)
	case b.Overall > 0 && overall > b.Overall:
		return fmt.Sprintf("%d of all unavailable, %d may be", overall, b.Overall)
	}
	return ""
}

func (o *observer) complain(format string, args ...any) {
	if len(o.wrong) < 3 {
		o.wrong = append(o.wrong, fmt.Sprintf("after %s, request %d: ", o.w.now().Sub(begins), o.w.requests.Load())+fmt.Sprintf(format, args...))
	}
}

// moved notes that a node's tag leads to another overlay.
func (o *observer) moved(name, overlay string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.nodes[name]
	n.overlay, n.since, n.forward = overlay, o.w.now(), overlay != o.w.had[name]
	o.touched(name, "a move")
}

// slot notes that a node took a slot, or gave it back. Where no rollout is under way no budget
// bounds that.
func (o *observer) slot(name string, takes, bounded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes[name].slot = takes
	if bounded {
		o.touched(name, "a slot")
	} else {
		o.was = o.count()
	}
}

func (o *observer) undoes(undo bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.undo = undo
}

// called notes that a node could have been heard.
func (o *observer) called(name string, at time.Time) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes[name].called = at
}

func (o *observer) heard(name string, what said) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes[name].said = what
}

// tick counts again when time has passed.
func (o *observer) tick() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look("")
}
