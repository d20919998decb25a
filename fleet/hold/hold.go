// SPDX-License-Identifier: Apache-2.0

// Package hold keeps nodes of a fleet at what they have, had before, or at another layer.
//
// A node's row says how it is held: a publish finds it there, and goes by it. [ReadyBack] prepares the
// way back of a rollout's nodes. What changes a fleet by an operator's or a rollout's order imports it.
package hold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Order says which nodes an operator holds, why and for how long.
type Order struct {
	publish.By
	Nodes []string
	All   bool      // instead of Nodes
	Until time.Time // zero is without end

	OldSecrets bool              // a rollback may bring older secrets, and some that were sealed to another recipient
	Recipients map[string]string // of nodes that have an accepted one; nil where they are not known
}

// Freeze keeps what nodes have, until [Forward].
func Freeze(ctx context.Context, p *publish.Publisher, o Order) (*publish.Result, error) {
	return o.edit(ctx, p, "freeze", nil, func(_ context.Context, e *editing, w *publish.Work) error {
		e.addHold(w, spec.HoldFreeze)
		return nil
	})
}

// Pin gives nodes another layer, keeps the rest of their overlays, and keeps both until [Forward].
// The layer is a digest or a tag.
func Pin(ctx context.Context, p *publish.Publisher, o Order, layer string) (*publish.Result, error) {
	var layers []release.Layer
	find := func(ctx context.Context, e *editing) (err error) {
		layers, err = e.Publisher.Layers(ctx, e.State.Policy, layer)
		return err
	}
	return o.edit(ctx, p, "pin", find, func(ctx context.Context, e *editing, w *publish.Work) error {
		looked, err := e.Signed(ctx, w.Name)
		if err != nil {
			return err
		}
		o := &looked.Overlay
		has, err := e.Layer(ctx, o.Layer) // two layers may have had a name one after the other, and one of them the recipe
		if o.Layer != "" && err != nil && !published.Lost(err) {
			return err
		}
		l, err := release.ForVariant(layers, digest.Hex(has.Recipe), o.Variant)
		if err != nil {
			return err
		}
		o.Layer, o.Variant = l.Digest, l.Variant
		e.addHold(w, spec.HoldPin)
		return e.sign(ctx, w, o, nil)
	})
}

// Rollback gives nodes what they had in a generation, or when it is "" what each had
// before the present, and keeps it until [Forward]. A node stays bound to the machine that it is
// bound to now.
func Rollback(ctx context.Context, p *publish.Publisher, o Order, to string) (*publish.Result, error) {
	var past *published.Past
	find := func(ctx context.Context, e *editing) error {
		e.Result.Stay = map[string]string{}
		if to == "" {
			return nil
		}
		g, err := e.Find(ctx, to)
		if err == nil && e.Foreign(g) {
			return cli.Hint("go back to an earlier one", "generation %s was not given out by who revoked a key since: nodes do not go back to it", g)
		}
		if err == nil {
			past, err = e.Past(ctx, g)
		}
		return err
	}
	return o.edit(ctx, p, "rollback", find, func(ctx context.Context, e *editing, w *publish.Work) error {
		err := e.goBack(ctx, past, w)
		if !o.All || !published.Lost(err) {
			return err
		}
		e.Say("node %s stays as it is: %v", w.Name, err)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.Result.Stay[w.Name] = err.Error()
		return nil
	})
}

// goBack gives a node what it had in a past state, or before the present one.
func (e *editing) goBack(ctx context.Context, past *published.Past, w *publish.Work) error {
	had, why, err := contentBefore(ctx, past, w)
	switch {
	case err != nil:
		return err
	case had == nil && e.order.All:
		e.Say("node %s stays as it is: %s", w.Name, why)
		return nil
	case had == nil:
		return cli.Hint("'caisson history --node' says what it had", "%s", why)
	}
	if had.Overlay == w.Was.Overlay {
		e.addHold(w, spec.HoldRollback)
		return nil
	}
	o, err := e.contentOf(ctx, w, had)
	if err != nil {
		return err
	}
	if err := e.noteSecrets(ctx, w, o); err != nil {
		return err
	}
	e.addHold(w, spec.HoldRollback)
	return e.sign(ctx, w, o, had)
}

// contentOf reads what a node had, for the machine that it is bound to now. It wants the layer of
// that in the registry, released, and neither on the reject list.
func (e *editing) contentOf(ctx context.Context, w *publish.Work, had *spec.Content) (*spec.Overlay, error) {
	err := e.Allowed(had.Layer, had.Overlay)
	if err == nil {
		err = e.CheckReleased(ctx, had.Layer)
	}
	if err != nil {
		return nil, err
	}
	o, err := e.Content(ctx, w.Name, *had)
	if err == nil {
		o.Match = w.Was.Match
	}
	return o, errors.Unwrap(err) // who does this says of which node it is
}

// contentBefore returns what a node had in a past state, or before the present one; nil and why
// where that is nothing.
func contentBefore(ctx context.Context, past *published.Past, w *publish.Work) (was *spec.Content, why string, err error) {
	if past == nil {
		if published.HoldOf(w.Was.Holds, spec.HoldRollback) != nil {
			return nil, "", cli.Hint("--to GEN goes further back; 'caisson history' lists the generations", "it was rolled back already")
		}
		return w.Was.Before, "it had nothing else before", nil
	}
	row, ok, err := past.Row(ctx, w.Name)
	if err != nil || !ok {
		return nil, fmt.Sprintf("it was not published in generation %s", past.Generation), err
	}
	return row.Content(), "", nil
}

// Pause keeps what nodes have and makes them stop enforcing it, until [Resume]. They go on looking
// and reporting.
func Pause(ctx context.Context, p *publish.Publisher, o Order) (*publish.Result, error) {
	return o.edit(ctx, p, "pause", nil, func(ctx context.Context, e *editing, w *publish.Work) error {
		e.addHold(w, spec.HoldPause)
		return e.signAside(ctx, w)
	})
}

// Resume ends the pause of nodes: they enforce again what they have.
func Resume(ctx context.Context, p *publish.Publisher, o Order) (*publish.Result, error) {
	return o.edit(ctx, p, "resume", nil, func(ctx context.Context, e *editing, w *publish.Work) error {
		if !e.endHold(w, true) {
			return nil
		}
		return e.signAside(ctx, w)
	})
}

// Forward ends pins, freezes and rollbacks: the next publish gives the nodes what
// the site says. A freeze that a rollback came over goes on.
func Forward(ctx context.Context, p *publish.Publisher, o Order) (*publish.Result, error) {
	return o.edit(ctx, p, "forward", nil, func(_ context.Context, e *editing, w *publish.Work) error {
		e.endHold(w, false)
		return nil
	})
}

// editing is a run over chosen nodes. Their work is prepared several at a time.
type editing struct {
	*publish.Run
	order Order
	mu    sync.Mutex        // of what the work on several nodes notes, here and in the result
	older map[aged][]string // secrets that would become older → nodes
}

// edit lets f change what nodes have and how they are held, after find has found what
// they all need. A node whose work has no document keeps its overlay and gets its new
// holds only.
func (o Order) edit(ctx context.Context, p *publish.Publisher, verb string, find func(context.Context, *editing) error,
	f func(context.Context, *editing, *publish.Work) error) (*publish.Result, error) {
	return p.Change(ctx, verb, o.By, func(ctx context.Context, r *publish.Run) error {
		if !o.Until.IsZero() && !o.Until.After(r.Publisher.Now) {
			return cli.Hint("give a later one", "it is %s by now, and the end of the hold is over", r.Publisher.Now.Format(time.RFC3339))
		}
		todo, err := o.selectNodes(ctx, r.State)
		if err != nil {
			return err
		}
		c, e := r.Plan, &editing{Run: r, order: o}
		if err := e.sayUnderWay(ctx, todo); err != nil {
			return err
		}
		if find != nil {
			if err := find(ctx, e); err != nil {
				return err
			}
		}
		if err := publish.ForEach(ctx, todo, func(ctx context.Context, w *publish.Work) error {
			w.Generation, w.Holds = c.Index.Root.Generation, w.Was.Holds
			return f(ctx, e, w)
		}); err != nil {
			return err
		}
		find, f = nil, nil // a past generation that they have read is as large as the present one
		if err := olderSecrets(e.older); err != nil {
			return err
		}
		if len(todo) > 0 && len(e.Result.Stay) == len(todo) {
			return cli.Hint("'caisson history' lists the generations, --to names one", "none of %s goes back: node %s: %s",
				plain.Count(len(todo), "node"), todo[0].Name, e.Result.Stay[todo[0].Name])
		}
		c.Todo = slices.DeleteFunc(todo, func(w publish.Work) bool {
			if w.Overlay == "" && !slices.Equal(w.Holds, w.Was.Holds) {
				row := *w.Was
				row.Holds = w.Holds
				c.Index.Set(w.Name, row)
				c.Rows = true
			}
			return w.Overlay == ""
		})
		return nil
	})
}

// sayUnderWay names the rollouts that the nodes of a hold belong to: what is held is left
// out of their waves, and neither ends them nor is ended by them.
func (e *editing) sayUnderWay(ctx context.Context, todo []publish.Work) error {
	under, err := e.UnderWay(ctx)
	if err != nil {
		return err
	}
	nodes := map[string]int{}
	for _, w := range todo {
		if r := under[w.Name]; r != "" {
			nodes[r]++
		}
	}
	for _, r := range slices.Sorted(maps.Keys(nodes)) {
		e.Say("rollout %s is %s, and has %d of these nodes: it goes on without those that are held; 'caisson rollout "+
			"pause', 'undo' or 'abort' is about all of it",
			r, e.State.Index.Root.Rollouts[r].Phase, nodes[r])
	}
	return nil
}

// selectNodes returns the nodes that an order is about, each with its row.
func (o Order) selectNodes(ctx context.Context, v *published.State) ([]publish.Work, error) {
	names := slices.Compact(slices.Sorted(slices.Values(o.Nodes)))
	if o.All {
		rows, err := v.Index.All(ctx)
		if err != nil {
			return nil, err
		}
		names = slices.Sorted(maps.Keys(rows))
	}
	todo := make([]publish.Work, len(names))
	for i, name := range names {
		row, ok, err := v.Index.Row(ctx, name)
		if err != nil {
			return nil, err
		}
		if !ok {
			rows, err := v.Index.All(ctx)
			if err != nil {
				return nil, err
			}
			return nil, cli.Hint(strings.TrimSpace(plain.DidYouMean(name, maps.Keys(rows))+" 'caisson verify' lists the nodes"),
				"node %q is not published", name)
		}
		todo[i] = publish.Work{Node: publish.Node{Name: name}, Was: &row}
	}
	return todo, nil
}

// addHold adds a hold to a node's.
func (e *editing) addHold(w *publish.Work, kind string) {
	one := spec.Hold{Kind: kind, Reason: e.order.Reason, Author: e.order.Author, Since: e.Publisher.Now.Unix()}
	if !e.order.Until.IsZero() {
		one.Until = e.order.Until.Unix()
	}
	last, _ := published.SplitHolds(w.Was.Holds, e.Publisher.Now)
	var ended []spec.Hold
	w.Holds, ended = putHold(last, one)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(ended) > 0 {
		e.Result.Ended = append(e.Result.Ended, publish.HoldLine{Node: w.Name, Holds: ended})
	}
	e.Result.Held = append(e.Result.Held, publish.HoldLine{Node: w.Name, Holds: w.Holds})
}

// endHold ends the pause of a node, or what else holds it, and reports whether there
// was such a hold.
func (e *editing) endHold(w *publish.Work, pause bool) bool {
	stay, ended := endHolds(w.Was.Holds, pause)
	if len(ended) == 0 {
		return false
	}
	w.Holds = stay
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Result.Ended = append(e.Result.Ended, publish.HoldLine{Node: w.Name, Holds: ended})
	return true
}

// signAside gives a node what it has, paused as its holds say.
func (e *editing) signAside(ctx context.Context, w *publish.Work) error {
	looked, err := e.Signed(ctx, w.Name)
	if err != nil {
		return err
	}
	w.Aside = true
	return e.sign(ctx, w, &looked.Overlay, nil)
}

// sign gives a node an overlay, paused as its holds say. What a directory has of it, had, is read again
// in less time than it takes to hold it compressed; nil is nothing.
func (e *editing) sign(ctx context.Context, w *publish.Work, o *spec.Overlay, had *spec.Content) error {
	o.Pause = nil
	if h := published.HoldOf(w.Holds, spec.HoldPause); h != nil {
		o.Pause = &spec.Pause{Reason: h.Reason, Until: h.Until}
	}
	o.SetNeeds()
	w.Match, w.Layer = o.Match, o.Layer
	if w.Layer != "" {
		l, err := e.Layer(ctx, w.Layer)
		if err != nil {
			return err
		}
		w.Knows = l.Features
	}
	doc, err := spec.Encode(o)
	if err != nil {
		return err
	}
	if had == nil || !e.Publisher.Registry.Ref().IsLayout() || oci.Digest(doc) != had.Overlay {
		return w.SetKept(doc)
	}
	w.Overlay, w.Size = had.Overlay, had.Size
	ctx = context.WithoutCancel(ctx) // it ends with the preparation of all
	w.Doc = func() ([]byte, error) { return e.Stored(ctx, *had) }
	return nil
}
