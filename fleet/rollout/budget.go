// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// unavailable returns which nodes of a budget are not proved to be well, with why: those that
// something else disturbs, and those whose report is missing, tells of trouble or of a change that
// is not proved, or is of something that was published before. Of those that are only not proved,
// or that the service had no time to hear since it began, that is only assumed.
func (l *look) unavailable() (out map[string]string, assumed map[string]bool) {
	out = map[string]string{}
	for name := range l.plan.Budget.Nodes {
		if why := l.unwell(name); why != "" {
			out[name] = why
		}
	}
	return out, l.disturbed(out)
}

// unwell says why a node is not proved to be well, whatever disturbs it; "" where it is, or the
// fleet publishes nothing for it.
func (l *look) unwell(name string) string {
	row, there := l.known.Rows[name]
	r := l.known.Reports[name]
	switch {
	case !there:
	case l.quiet(name) != "":
		return l.quiet(name)
	case r.Trouble != "":
		return r.Trouble
	case r.Overlay != row.Overlay:
		return "it does not report what is published for it"
	case r.Unproved() && r.Waiting != "":
		return notProved + ", and waits for " + r.Waiting
	case r.Unproved():
		return notProved
	}
	return ""
}

// notProved is said of a node that may be well, and may yet go back.
const notProved = "it is not proved yet"

// disturbed adds the nodes that something else disturbs to those that are not well, and returns of
// whom that is only assumed.
func (l *look) disturbed(out map[string]string) (assumed map[string]bool) {
	assumed = map[string]bool{}
	for name, why := range out {
		if strings.HasPrefix(why, notProved) || l.quiet(name) != "" && l.now.Sub(l.listens) <= l.known.Reports[name].Silence(l.plan.Rule) {
			assumed[name] = true
		}
	}
	for name, what := range l.known.Busy {
		_, counts := l.plan.Budget.Nodes[name]
		if _, there := l.known.Rows[name]; there && counts {
			out[name] = what
			delete(assumed, name)
		}
	}
	return assumed
}

// InFlight returns the nodes that rollouts other than one move now, with which.
func InFlight(rollouts map[string]spec.Rollout, but string) map[string]string {
	busy := map[string]string{}
	for name, r := range rollouts {
		if name == but || r.Ended() && !wasCut(r) {
			continue
		}
		for _, w := range r.Waves {
			for node := range w.Moving {
				busy[node] = "rollout " + name
			}
		}
	}
	return busy
}

// underWay reports whether a rollout may move nodes yet.
func (s *State) underWay() bool {
	stayed := func(w WaveState) spec.RolloutWave { return spec.RolloutWave{Stayed: w.Stayed} }
	row := spec.Rollout{Phase: s.Phase, Waves: plain.Each(s.Waves, stayed)}
	return !row.Ended() || wasCut(row)
}

// count counts what the budget has left, where these waves are judged so. A node that is not
// proved and reports nothing bad may be well.
func (l *look) count(of []Verdict) *rest {
	out, assumed := l.unavailable()
	for i, v := range of {
		for name := range v.Moving {
			if l.known.Rows[name].Overlay == l.plan.Waves[i].Nodes[name] && out[name] == "" {
				out[name], assumed[name] = notProved, true
			}
		}
	}
	return newRest(l.plan.Budget, out, assumed)
}

// place says of a node that does not have what its wave brings where it belongs, and reports
// whether that is all that is to be said of it.
func (l *look) place(j *judged, i int, name string) bool {
	row, there := l.known.Rows[name]
	w := l.row.Waves[i]
	_, moving := w.Moving[name]
	left := w.LeftOut[name]
	if left != "" && !l.back(name, left) {
		return true // judge has noted it
	}
	if there && row.Overlay == l.plan.Waves[i].Nodes[name] {
		return false
	}
	quiet := l.quiet(name)
	switch {
	case held(row, l.now) != "":
		j.LeftOut[name] = held(row, l.now)
	case !there && l.known.Left[name]:
		j.LeftOut[name] = gone
	case w.Done != 0 && !moving && left == "":
		j.LeftOut[name] = "it got something else since"
	case there && quiet != "" && l.unheard(name):
		j.unheard = append(j.unheard, name)
	case there && quiet != "" && w.Done != 0:
		j.LeftOut[name] = quiet
	case there && quiet != "":
		j.silent[name] = quiet
	default:
		delete(j.LeftOut, name)
		j.waiting = append(j.waiting, name)
	}
	return true
}

// admit decides who of the waves that began moves next, where the budget allows it and no
// analysis holds them.
func (l *look) admit(d Decision, all judged, holds string, runs bool) Decision {
	n, count := len(l.row.Waves)-1, l.count(d.Of)
	full := "; " + holds
	if holds == "" {
		full = l.take(&d, count, all.waiting)
	}
	noted := l.known.Cut && n >= 0 // before the first wave nothing is to be noted
	for i, v := range d.Of {
		noted = noted || !maps.Equal(v.Moving, l.row.Waves[i].Moving) || !maps.Equal(v.Failed, l.row.Waves[i].Failed)
	}
	name := func() string { return l.plan.Waves[max(n, 0)].Name }
	switch {
	case len(d.Nodes) > 0 || noted:
		d.Act = More
	case len(all.pending)+len(all.soaking) > 0:
		d.Reason = fmt.Sprintf("wave %s: %d healthy, not proved yet: %s%s", name(), d.Good, first(append(all.pending, all.soaking...)), full)
	case full != "":
		d.Reason = fmt.Sprintf("wave %s: %d healthy%s", name(), d.Good, full)
	case len(all.unheard) > 0:
		d.Reason = fmt.Sprintf("wave %s: the service was restarted and has no report of %s yet", name(), first(all.unheard))
	case runs && len(all.silent) > d.Good+len(d.Of[n].Failed): // the others prove little for the next one
		d.Reason = fmt.Sprintf("wave %s: %d healthy, it ends when fewer are silent: %s", name(), d.Good, some(all.silent))
	case runs:
		maps.Copy(d.Of[n].LeftOut, all.silent)
		d.Act = Finish
	default:
		return l.next(d, count)
	}
	return d
}

// triedAnew returns how far a rollout is, with nodes that move from now on: while nobody drove
// it, nobody saw what became of them.
func triedAnew(row spec.Rollout, now time.Time) spec.Rollout {
	row.Waves = slices.Clone(row.Waves)
	for i, w := range row.Waves {
		row.Waves[i].Moving = withMoving(w.Moving, now.Unix(), slices.Collect(maps.Keys(w.Moving))...)
	}
	return row
}

// next begins the next wave with those of its nodes that the budget allows.
func (l *look) next(d Decision, count *rest) Decision {
	d = l.onward(d, false)
	if d.Act != Begin {
		return d
	}
	var wants []string
	has := false
	for _, name := range d.Nodes {
		if l.known.Rows[name].Overlay == l.plan.Waves[d.Wave].Nodes[name] {
			has = true // it proves itself first
		} else {
			wants = append(wants, name)
		}
	}
	d.Nodes = nil
	full := l.take(&d, count, wants)
	if len(d.Nodes) == 0 && !has {
		d.Act, d.Reason = Wait, fmt.Sprintf("wave %s: it does not begin%s", l.plan.Waves[d.Wave].Name, full)
	}
	return d
}

// take adds to a decision who moves, in order, and says why the first of the others does not.
func (l *look) take(d *Decision, count *rest, wants []string) (full string) {
	for _, name := range wants {
		if why := count.take(name, "it moves"); why == "" {
			d.Nodes = append(d.Nodes, name)
		} else if full == "" {
			full = "; no room for " + name + ": " + why
		}
	}
	return full
}

// mayReturn returns those nodes of waves that may go back now: all that are unavailable
// anyway, and others as the budget allows. It says what keeps the first of the others.
func (l *look) mayReturn(of []Verdict, waves []int) (now []string, full string) {
	count, d := l.count(of), Decision{}
	var well []string
	for _, i := range waves {
		w := l.row.Waves[i]
		for _, name := range plain.Names(maps.Keys(l.plan.Waves[i].Nodes)) {
			switch {
			case w.Back != 0 && w.Stayed[name] == "": // it is back
			case l.known.Rows[name].Overlay != l.plan.Waves[i].Nodes[name]: // it has not moved
			case count.unavailable(name):
				now = append(now, name)
			default:
				well = append(well, name)
			}
		}
	}
	full = l.take(&d, count, well)
	return append(now, d.Nodes...), full
}

// nextBack decides who goes back next of a rollout with a budget whose way back is under way. Those
// that moved and were not proved are judged until then: who is well by now may make room for others.
func nextBack(plan *spec.RolloutPlan, row spec.Rollout, known Known, now time.Time) Decision {
	d := Decision{Act: Return, Wave: len(row.Waves) - 1, known: known}
	l, noted := newLook(plan, row, known, now), known.Cut
	for i, w := range l.row.Waves {
		moving := l.judge(i).Moving
		maps.DeleteFunc(moving, func(name string, _ int64) bool { _, moved := w.Moving[name]; return !moved })
		d.Of = append(d.Of, Verdict{LeftOut: w.LeftOut, Failed: w.Failed, Moving: moving})
		noted = noted || len(moving) != len(w.Moving)
	}
	var full string
	if d.Nodes, full = l.mayReturn(d.Of, returning(row)); len(d.Nodes) == 0 && full != "" && !noted {
		d.Act, d.Reason = Wait, "going back"+full
	}
	return d
}

// stillFits wants room for the nodes of a decision, where something else disturbs nodes since
// it was made.
func (d *Decision) stillFits(plan *spec.RolloutPlan, row spec.Rollout, busy map[string]string, now time.Time) error {
	l := newLook(plan, row, d.known, now)
	l.known.Busy = busy
	if full := l.take(&Decision{}, l.count(d.Of), d.Nodes); full != "" {
		return fmt.Errorf("something else was disturbed meanwhile%s", full)
	}
	return nil
}

// returning returns the waves that go back.
func returning(row spec.Rollout) (waves []int) {
	for i, w := range row.Waves {
		if w.Back != 0 {
			waves = append(waves, i)
		}
	}
	return waves
}

// rest is what is left of a budget: it counts how many nodes may be unavailable at once, of each
// group, a rack for example, and of all. It knows who is unavailable and why, and not how that is
// found out. A node that is unavailable already costs nothing more; one of which that is only assumed
// counts, and costs what an available one does.
type rest struct {
	of      *spec.RolloutBudget
	reasons map[string]string   // by node that is unavailable
	assumed map[string]bool     // of these: it may be available all the same
	groups  map[string][]string // unavailable nodes of each
	all     []string            // unavailable nodes
}

// newRest counts the unavailable nodes of a budget, with why each is, and of which that is only
// assumed. Others do no harm.
func newRest(of *spec.RolloutBudget, unavailable map[string]string, assumed map[string]bool) *rest {
	r := &rest{of: of, reasons: map[string]string{}, assumed: assumed, groups: map[string][]string{}}
	for _, node := range plain.Names(maps.Keys(unavailable)) {
		if _, counts := of.Nodes[node]; counts {
			r.add(node, unavailable[node])
		}
	}
	return r
}

func (r *rest) add(node, why string) {
	group := r.of.Nodes[node]
	r.reasons[node] = why
	r.groups[group] = append(r.groups[group], node)
	r.all = append(r.all, node)
}

// full says why a node may not become unavailable, "" where it may, or is.
func (r *rest) full(node string) string {
	group, counts := r.of.Nodes[node]
	_, is := r.reasons[node]
	itself := 0
	if is {
		itself = 1
	}
	switch {
	case is && !r.assumed[node] || !counts:
		return ""
	case r.of.Each > 0 && len(r.groups[group])-itself >= r.of.Each:
		return fmt.Sprintf("%s %s: %d unavailable, %d may be: %s", r.of.Per, r.of.Nodes[node],
			len(r.groups[group]), r.of.Each, r.some(r.groups[group]))
	case r.of.Overall > 0 && len(r.all)-itself >= r.of.Overall:
		return fmt.Sprintf("%d of all nodes unavailable, %d may be: %s", len(r.all), r.of.Overall, r.some(r.all))
	}
	return ""
}

// take makes a node unavailable where the budget allows it; else it says why not.
func (r *rest) take(node, reason string) (full string) {
	if full = r.full(node); full != "" {
		return full
	}
	if r.assumed[node] {
		r.assumed = maps.Clone(r.assumed)
		delete(r.assumed, node) // it is from now on
	}
	if _, is := r.reasons[node]; !is {
		r.add(node, reason)
	}
	return ""
}

// unavailable reports whether it is certain that a node is.
func (r *rest) unavailable(node string) bool { return r.reasons[node] != "" && !r.assumed[node] }

func (r *rest) some(nodes []string) string {
	return firstOf(len(nodes), func(i int) string { return nodes[i] + " (" + r.reasons[nodes[i]] + ")" })
}

// groupSizes returns how many nodes each group of a budget has.
func groupSizes(of *spec.RolloutBudget) map[string]int {
	sizes := map[string]int{}
	for _, group := range of.Nodes {
		sizes[group]++
	}
	return sizes
}

// Room says whether the budgets of rollouts let a node be disturbed. It is asked often, and of a
// large fleet: it looks at a node again only when it was told of it, and at all of them when one may
// have become silent meanwhile. It is not safe for use by several goroutines.
type Room struct {
	states []State
	known  Known
	now    time.Time           // when it was asked last
	unwell []map[string]string // by state: its nodes that are not well, with why
	told   map[string]bool     // of which nodes, since it looked
	until  time.Time           // none becomes silent before
	looked int                 // at nodes, in all
}

// NewRoom returns the room that rollouts leave.
func NewRoom(states []State) *Room {
	r := &Room{states: states, known: Known{Rows: index.Rows{}, Reports: map[string]report.Standing{}}, told: map[string]bool{}}
	for range states {
		r.unwell = append(r.unwell, map[string]string{})
	}
	return r
}

// Tell tells of a node: what is published for it, and what it reported last.
func (r *Room) Tell(n *view.Node) {
	r.told[n.Name] = true
	delete(r.known.Rows, n.Name)
	delete(r.known.Reports, n.Name)
	if n.Published != nil {
		r.known.Rows[n.Name] = *n.Published
	}
	if reported, ok := report.Last(n); ok {
		r.known.Reports[n.Name] = report.StandingOf(reported)
	}
}

// look is how the rule and the budget of a rollout see nodes.
func (s *State) look(known Known, now time.Time) *look {
	return &look{plan: &spec.RolloutPlan{Rule: s.Rule, Budget: s.Budget}, known: known, now: now}
}

// look looks at the nodes of which something may have changed.
func (r *Room) look() {
	if !r.now.Before(r.until) {
		r.until = r.now.Add(24 * time.Hour)
		for name := range r.known.Rows {
			r.told[name] = true
		}
	}
	for name := range r.told {
		r.looked++
		for i, s := range r.states {
			delete(r.unwell[i], name)
			if s.Budget == nil {
				continue
			}
			if _, counts := s.Budget.Nodes[name]; !counts {
				continue
			}
			if why := s.look(r.known, r.now).unwell(name); why != "" {
				r.unwell[i][name] = why
			}
			said := r.known.Reports[name]
			if end := said.At.Add(said.Silence(s.Rule)); !end.Before(r.now) && end.Before(r.until) {
				r.until = end
			}
		}
	}
	clear(r.told)
}

// Full says why a node may not be disturbed now: the budget of a rollout that has not ended is
// used up without it. "" where it may. One that moves may be proved by now, and needs room, too.
// Others are disturbed by something else, and the service can hear nodes since a time.
func (r *Room) Full(node string, others map[string]string, listens, now time.Time) string {
	r.now = now
	r.look()
	known, moves := r.known, map[string]bool{}
	known.Busy = map[string]string{}
	maps.Copy(known.Busy, others)
	for _, s := range r.states {
		for _, w := range s.Waves {
			for _, name := range w.Moving {
				if s.underWay() {
					known.Busy[name], moves[name] = "rollout "+s.Name, true
				}
			}
		}
	}
	for i, s := range r.states {
		if s.Budget == nil || !s.underWay() {
			continue
		}
		out := maps.Clone(r.unwell[i])
		l := s.look(known, now)
		l.listens = listens
		assumed := l.disturbed(out)
		maps.Copy(assumed, moves)
		if full := newRest(s.Budget, out, assumed).full(node); full != "" {
			return "rollout " + s.Name + " is under way; " + full
		}
	}
	return ""
}
