// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// judged holds what the nodes of a wave are now.
type judged struct {
	Verdict
	good             int
	pending, soaking []string // who may still become well

	well map[string]time.Time // since when nodes are that soak, or did

	// Of a plan with a budget, and of a wave that has not begun: who does not have what the wave brings,
	// and may get it; who is silent; and of whom that is not known yet.
	waiting []string
	silent  map[string]string
	unheard []string
}

// join adds what is said of the nodes of another wave, but for its verdict.
func (j *judged) join(other judged) {
	j.good += other.good
	j.pending, j.soaking = append(j.pending, other.pending...), append(j.soaking, other.soaking...)
	j.waiting, j.unheard = append(j.waiting, other.waiting...), append(j.unheard, other.unheard...)
	maps.Copy(j.silent, other.silent)
}

// judge looks at the nodes of a wave that began. Those of one that is done were well, and
// have to be until the rollout ends. With a budget each node has a time of its own.
func (l *look) judge(i int) judged {
	w := l.row.Waves[i]
	j := judged{Verdict: Verdict{LeftOut: map[string]string{}, Failed: map[string]string{}}, silent: map[string]string{},
		well: map[string]time.Time{}}
	maps.Copy(j.LeftOut, w.LeftOut)
	for _, name := range plain.Names(maps.Keys(l.plan.Waves[i].Nodes)) {
		t := trial{name: name, given: l.plan.Waves[i].Nodes[name], begun: time.Unix(w.Begun, 0), deadline: l.deadline, done: w.Done != 0}
		since, moving := w.Moving[name]
		if l.plan.Budget != nil {
			at := l.now // should it have to prove itself again
			if t.done = !moving; moving {
				t.begun = time.Unix(since, 0)
				at = later(t.begun, l.listens)
			}
			t.deadline = at.Add(time.Duration(l.plan.Rule.Deadline) * time.Second)
			if !(t.done && w.Failed[name] != "") && l.place(&j, i, name) {
				continue
			}
		}
		if w.LeftOut[name] != "" {
			continue
		}
		if t.done && w.Failed[name] != "" {
			j.Failed[name] = w.Failed[name]
			continue
		}
		if row := l.known.Rows[name]; t.done && row.Overlay == t.given && held(row, l.now) != "" {
			continue // it has what the wave brought, and keeps it
		}
		if why := l.aside(name, t.given); why != "" {
			j.LeftOut[name] = why
			continue
		}
		unproved := len(j.pending) + len(j.soaking)
		l.try(&j, t)
		if l.plan.Budget != nil && len(j.pending)+len(j.soaking) > unproved {
			if !moving {
				since = l.now.Unix() // it was proved, and is not any more
			}
			if j.Moving == nil {
				j.Moving = map[string]int64{}
			}
			j.Moving[name] = since
		}
	}
	return j
}

// trial is a node that was given something, and has to become well with it.
type trial struct {
	name, given     string // the node, and the digest of its overlay
	begun, deadline time.Time
	done            bool // it was well
}

// try judges one node by its report.
func (l *look) try(j *judged, t trial) {
	past := func(while time.Duration) bool { return !l.now.Before(t.deadline.Add(while)) }
	name, given, begun, late := t.name, t.given, t.begun, past(0)
	soak := time.Duration(l.plan.Rule.Soak) * time.Second
	r := l.known.Reports[name]
	heard := !r.At.Before(begun) // what it said before is not of this wave
	arrived := heard && r.Overlay == given
	soaked := arrived && r.Trouble == "" && r.At.Sub(later(r.Well, begun)) >= soak // it said so after that time, too
	silent := l.now.Sub(later(r.At, r.Listens)) > r.Silence(l.plan.Rule)
	switch {
	// else it is what was published before
	case heard && r.Refused != "" && (late || r.RefusedSince.IsZero() || !r.RefusedSince.Before(begun)):
		j.Failed[name] = "it refuses the overlay: " + r.Refused
	case arrived && r.Trouble != "" && (late || r.Broken):
		j.Failed[name] = r.Trouble
	case soaked && !(t.done && silent):
		j.good++
		j.well[name] = later(r.Well, begun)
	case arrived && r.Trouble == "" && silent:
		j.Failed[name] = "silent since " + r.At.UTC().Format(time.RFC3339)
	case arrived && r.Unproved() && past(longestWait+soak+r.Silence(l.plan.Rule)):
		j.Failed[name] = "it has not passed its checks"
	case arrived && r.Trouble == "" && past(longestWait+soak+r.Silence(l.plan.Rule)): // its window may be the last
		j.Failed[name] = fmt.Sprintf("it was never healthy for %s; healthy last since %s", soak, r.Well.UTC().Format(time.RFC3339))
	case arrived && r.Trouble == "":
		j.soaking = append(j.soaking, name)
		j.well[name] = later(r.Well, begun)
	case heard && !arrived && r.Staged == given && r.Waiting == "" && r.Trouble == "" && !silent && !past(longestWait):
		j.pending = append(j.pending, name+" (it is staged)") // its window has opened
	case heard && !arrived && r.Waiting != "" && !silent && !past(longestWait):
		j.pending = append(j.pending, name+" waits for "+r.Waiting) // signed, and not to be hurried
	case heard && !arrived && r.Waiting != "" && !silent:
		j.Failed[name] = fmt.Sprintf("it waits for %s since the wave began, longer than any window", r.Waiting)
	case !late && arrived:
		j.pending = append(j.pending, name+" ("+r.Trouble+")")
	case !late && r.Garbled != "":
		j.pending = append(j.pending, name+" (its report does not count: "+r.Garbled+")")
	case !late:
		j.pending = append(j.pending, name)
	case r.Garbled != "":
		j.Failed[name] = "silent since the wave began: its report does not count: " + r.Garbled
	case !heard:
		j.Failed[name] = "silent since the wave began"
	case l.now.Sub(r.At) > r.Silence(l.plan.Rule):
		j.Failed[name] = "silent since " + r.At.UTC().Format(time.RFC3339)
	default:
		j.Failed[name] = "it does not report the overlay"
	}
}

// longestWait is how long a node may say that it waits for a window: whatever opens by the
// calendar opens once a month. What a node says holds nobody back for ever.
const longestWait = 35 * 24 * time.Hour

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{b, a}, time.Time.Compare) }

// halts reports whether so many failures of n nodes are too many.
func halts(r spec.RolloutRule, failed, n int) bool {
	if failed == 0 {
		return false
	}
	if r.Count == 0 && r.Percent == 0 {
		return true
	}
	return r.Count > 0 && failed >= r.Count || r.Percent > 0 && failed*100 >= r.Percent*n
}

// some names a few nodes with their reasons.
func some(nodes map[string]string) string {
	return first(plain.Each(plain.Names(maps.Keys(nodes)), func(name string) string { return name + " (" + nodes[name] + ")" }))
}

// shown is how many nodes a text names.
const shown = 3

func first(list []string) string { return firstOf(len(list), func(i int) string { return list[i] }) }

// firstOf names the first of so many, and says how many more there are.
func firstOf(n int, name func(i int) string) string {
	var names []string
	for i := range min(shown, n) {
		names = append(names, name(i))
	}
	text := strings.Join(names, ", ")
	if n > shown {
		text += fmt.Sprintf(" and %d more", n-shown)
	}
	return text
}

// measured asks for what the analyses of a plan compare.
func (d *Driver) measured(ctx context.Context, plan *spec.RolloutPlan, now time.Time) (all []analysis.Measured) {
	for _, a := range plan.Rule.Analysis {
		m, err := d.Measure(ctx, a, now)
		if err != nil {
			m = analysis.Measured{Trouble: report.Brief(err.Error())}
		}
		all = append(all, m)
	}
	return all
}

// compare says by the analyses that the last wave that began is worse than it may be, or what
// keeps that from being known.
func (l *look) compare(j judged) (worse, holds string) {
	for i, a := range l.plan.Rule.Analysis {
		sides, others := l.sides(a, j)
		for _, name := range plain.Names(maps.Keys(sides)) {
			s := sides[name]
			few := l.plan.Budget != nil && s.size < a.AtLeast
			switch {
			case s.planned < a.AtLeast, !s.moved:
				continue
			case few && s.waits:
				continue // it is judged when so many have moved
			case l.plan.Budget != nil && !few && a.Against != "" && len(others) < a.AtLeast:
				continue // it was judged before so many had moved
			}
			m := analysis.Measured{Trouble: "it was not asked"}
			if i < len(l.known.Measured) {
				m = l.known.Measured[i]
			}
			bad, unknown := analysis.Judge(a, m, s.well, others)
			what := plain.With(fmt.Sprintf("analysis %q", report.Brief(a.Query)), " of ", name)
			if bad != "" {
				return what + ": " + bad, ""
			}
			if unknown != "" && holds == "" {
				holds = what + " holds: " + unknown
			}
		}
	}
	return "", holds
}

// compared is a part of a wave that an analysis judges by itself.
type compared struct {
	planned int      // nodes that it has by the plan
	size    int      // with a budget, those of them that moved and have not failed
	moved   bool     // some of them, failed or not
	waits   bool     // others of them may move yet
	well    []string // nodes that were well for all of the time that is looked at
}

// sides divides the nodes of the last wave that began, by group or under "" all of them, from the
// others: those of the plan that do not have what it brings. A wave that is not judged has no sides.
func (l *look) sides(a spec.Analysis, j judged) (sides map[string]*compared, others []string) {
	sides = map[string]*compared{}
	n := len(l.row.Waves) - 1
	if !slices.Contains(analysis.Waves(l.plan, a), l.plan.Waves[n].Name) {
		return nil, nil
	}
	for i, w := range l.plan.Waves {
		for name, given := range w.Nodes {
			has := l.known.Rows[name].Overlay == given
			if !has && (i > n || l.plan.Budget != nil) {
				others = append(others, name)
			}
			if i != n {
				continue
			}
			group := analysis.Group(l.plan, a, name)
			if sides[group] == nil {
				sides[group] = &compared{}
			}
			s := sides[group]
			s.planned++
			s.moved = s.moved || has
			if l.plan.Budget != nil && (!has || j.LeftOut[name] != "" || j.Failed[name] != "") {
				continue
			}
			s.size++
			if since, well := j.well[name]; well && l.now.Sub(since) >= time.Duration(a.For)*time.Second {
				s.well = append(s.well, name)
			}
		}
	}
	for _, name := range slices.Concat(j.waiting, j.unheard) {
		sides[analysis.Group(l.plan, a, name)].waits = true
	}
	return sides, others
}

// readers is how many overlays are read at a time.
const readers = 16

// evidenced asks whether the changes of a plan were rehearsed, where its rule wants that.
type evidenced struct {
	fleet *published.Fleet
	rows  index.Rows
	plan  *spec.RolloutPlan
	shelf *evidence.Shelf
}

func (e *evidenced) open(ctx context.Context, f *published.Fleet, r *registry.Registry, plan *spec.RolloutPlan) (err error) {
	policy := f.Policy()
	e.fleet, e.plan = f, plan
	e.shelf = &evidence.Shelf{Registry: r, Fleet: policy.Fleet, Keys: policy.Attestation, Now: f.Now()}
	e.rows, err = f.Nodes(ctx)
	return err
}

// rehearsed refuses nodes whose change was not rehearsed, where the plan wants that.
func (d *Driver) rehearsed(ctx context.Context, f *published.Fleet, plan *spec.RolloutPlan, nodes []publish.Node) error {
	if plan.Rule.Rehearsed == "" || len(nodes) == 0 {
		return nil
	}
	var e evidenced
	if err := e.open(ctx, f, d.Publisher.Registry, plan); err != nil {
		return err
	}
	err := e.check(ctx, nodes)
	if errors.Is(err, evidence.ErrNotRehearsed) {
		return &stop{err}
	}
	return err
}

// Unrehearsed notes why waves of a plan would not begin if they were to begin now: a change of theirs
// was not rehearsed, and the plan wants that. nodes are those that the plan was made of.
func (s *State) Unrehearsed(ctx context.Context, p *publish.Publisher, policy published.Policy, plan *spec.RolloutPlan,
	nodes []publish.Node) error {
	if plan.Rule.Rehearsed == "" {
		return nil
	}
	f, err := p.Read(ctx, policy)
	if err != nil {
		return err
	}
	var e evidenced
	if err := e.open(ctx, f, p.Registry, plan); err != nil {
		return err
	}
	for i, w := range plan.Waves {
		mine := slices.DeleteFunc(slices.Clone(nodes), func(n publish.Node) bool { return w.Nodes[n.Name] == "" })
		switch err := e.check(ctx, mine); {
		case errors.Is(err, evidence.ErrNotRehearsed):
			s.Waves[i].Unrehearsed = err.Error() + ": " + cli.HintOf(err)
		case err != nil:
			return err
		}
	}
	return nil
}

// check returns an error where the change of a node was not rehearsed. Nodes that go the same way
// are asked about once, and a node that nothing is published for is not asked about.
func (e *evidenced) check(ctx context.Context, nodes []publish.Node) error {
	ways := make([]evidence.Asked, len(nodes))
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, n := range nodes {
		if row, there := e.rows[n.Name]; there && row.Overlay != e.plan.Gives(n.Name) {
			group.Go(func() (err error) {
				ways[i], err = e.way(reading, n, row)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	along := map[evidence.Asked][]string{}
	for i, way := range ways {
		if way.Rule != "" {
			along[way] = append(along[way], nodes[i].Name)
		}
	}
	for _, way := range slices.SortedFunc(maps.Keys(along), func(a, b evidence.Asked) int { return plain.Natural(along[a][0], along[b][0]) }) {
		err := e.shelf.Check(ctx, way)
		if errors.Is(err, evidence.ErrNotRehearsed) {
			return cli.WithHint(fmt.Errorf("the change of %s is %w", first(along[way]), err), "'caisson rehearse FILE --node "+
				along[way][0]+" --push' states one")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// way returns what a node is to go through.
func (e *evidenced) way(ctx context.Context, n publish.Node, row spec.Published) (a evidence.Asked, err error) {
	a = evidence.Asked{Rule: e.plan.Rule.Rehearsed, Planned: time.Unix(e.plan.At, 0).UTC(),
		From: evidence.End{Layer: row.Layer}, To: evidence.End{Layer: n.Layer}}
	if a.Rule == spec.RehearsedLayer {
		return a, nil
	}
	was, err := e.fleet.Content(ctx, n.Name, spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation})
	if err != nil {
		return a, err
	}
	doc, err := n.Doc()
	if err != nil {
		return a, err
	}
	var is spec.Overlay
	if err := spec.Decode(doc, &is); err != nil {
		return a, fmt.Errorf("overlay %s of node %s: %w", oci.Digest(doc), n.Name, err)
	}
	if a.From, err = evidence.EndOf(was); err == nil {
		a.To, err = evidence.EndOf(&is)
	}
	return a, err
}
