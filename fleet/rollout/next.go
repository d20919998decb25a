// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/analysis"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Act is the next thing to do.
type Act string

// Acts.
const (
	Begin  Act = "begin"  // a wave, with Nodes
	More   Act = "more"   // Nodes of waves that began move, as the budget allows; or what is known of those that move is noted
	Late   Act = "late"   // Nodes came back that their waves began without: the last wave waits for them, too
	Finish Act = "finish" // a wave, and with the last one the rollout
	End    Act = "end"    // the rollout: nobody is left to begin with
	Halt   Act = "halt"
	Return Act = "return" // go on with a way back that was cut
	Wait   Act = "wait"
)

// Decision holds what [Next] says.
type Decision struct {
	Act    Act
	Wave   int
	First  int       // that begins; nobody is in those between it and Wave
	Nodes  []string  // that get what the plan has for them; where a plan with a budget goes back, those that do so now
	Of     []Verdict // by wave: of those that began, that one that begins, and of those between that nobody is in
	Back   []int     // waves that have too many failures
	Good   int       // nodes of the wave that are well
	Reason string    // of a halt, and what is waited for

	known Known // by which it was made
}

// Verdict holds what a wave is judged to be.
type Verdict struct {
	LeftOut map[string]string // node → why
	Failed  map[string]string // node → why, so far
	Moving  map[string]int64  // of a plan with a budget: node that is not proved → since when, seconds since 1970
}

// Known holds what is known of a fleet's nodes.
type Known struct {
	Rows    index.Rows
	Left    map[string]bool // of nodes without a row, those that had one when the plan was made
	Reports map[string]report.Standing
	Busy    map[string]string // nodes that something else disturbs → what; a budget counts them
	Cut     bool              // a step was cut: nodes that move are tried from now on

	Measured []analysis.Measured // by the plan's analyses
}

// look holds what a decision is made of.
type look struct {
	plan     *spec.RolloutPlan
	row      spec.Rollout
	known    Known
	now      time.Time
	listens  time.Time // since when the service hears all nodes
	deadline time.Time // by which nodes have to arrive
}

func newLook(plan *spec.RolloutPlan, row spec.Rollout, known Known, now time.Time) *look {
	if known.Cut {
		row = triedAnew(row, now)
	}
	l := &look{plan: plan, row: row, known: known, now: now}
	for _, r := range known.Reports {
		l.listens = later(l.listens, r.Listens)
	}
	if n := len(row.Waves); n > 0 {
		// The time in which nodes have to arrive began with the wave that began last, with which late ones of
		// earlier waves are taken up, too. What the service could not hear is not a fault of a node.
		begun := later(time.Unix(row.Waves[n-1].Begun, 0), l.listens)
		l.deadline = begun.Add(time.Duration(plan.Rule.Deadline) * time.Second)
	}
	return l
}

// proved reports whether a node was well with what it was given.
func proved(plan *spec.RolloutPlan, row spec.Rollout, name string) bool {
	for i, w := range row.Waves {
		if _, among := plan.Waves[i].Nodes[name]; among {
			_, moving := w.Moving[name]
			return w.Done != 0 || plan.Budget != nil && !moving
		}
	}
	return false
}

// Next decides from the plan, how far it is, what is published, and what nodes report.
// A rollout that does not run waits.
func Next(plan *spec.RolloutPlan, row spec.Rollout, known Known, now time.Time) Decision {
	n := len(row.Waves) - 1
	if row.Phase != spec.RolloutRunning {
		return Decision{Act: Wait, Wave: n, Reason: "it is " + row.Phase}
	}
	switch known.Reports = maps.Clone(known.Reports); plan.Rule.Grade {
	case spec.GradePinned:
		maps.DeleteFunc(known.Reports, func(_ string, r report.Standing) bool { return !r.Pinned })
	case spec.GradeAttested:
		for name, r := range known.Reports {
			if !r.Attests && r.Garbled == "" && !(r.Stale && proved(plan, row, name)) { // which has booted just now
				known.Reports[name] = report.Standing{Listens: r.Listens, Garbled: "its TPM has not shown what it runs"}
			}
		}
	}
	l := newLook(plan, row, known, now)
	row = l.row
	d := Decision{Act: Wait, Wave: n, known: known}
	all := judged{Verdict: Verdict{LeftOut: map[string]string{}}, silent: map[string]string{}} // of all waves that began
	takesPart, runs := false, n >= 0 && row.Waves[n].Done == 0
	var holds string
	for i := range row.Waves { // each is judged until the end
		j := l.judge(i)
		d.Of = append(d.Of, j.Verdict)
		all.join(j)
		if size := len(plan.Waves[i].Nodes) - len(j.LeftOut); halts(plan.Rule, len(j.Failed), size) {
			d.Act, d.Wave, d.Back = Halt, i, append(d.Back, i)
			d.Reason = fmt.Sprintf("wave %s: %d of %s failed: %s", plan.Waves[i].Name, len(j.Failed), plain.Count(size, "node"), some(j.Failed))
		}
		if i == n {
			d.Good, takesPart = j.good, j.good+len(j.pending)+len(j.soaking)+len(j.Failed)+len(j.waiting)+len(j.unheard) > 0
			if worse, unknown := l.compare(j); runs && d.Act != Halt && worse != "" {
				d.Act, d.Wave, d.Back = Halt, i, []int{i}
				d.Reason = fmt.Sprintf("wave %s: %s", plan.Waves[i].Name, worse)
			} else if runs {
				holds = unknown
			}
		}
	}
	name := func() string { return plan.Waves[max(n, 0)].Name }
	switch {
	case d.Act == Halt:
		return l.halted(d)
	case runs && !takesPart && len(all.silent) == 0:
		// A wave that nobody is in any more proves nothing for the next one.
		d.Act, d.Back = Halt, []int{n}
		d.Reason = fmt.Sprintf("wave %s: none of its nodes has what it was given any more: %s", name(), some(d.Of[n].LeftOut))
		return l.halted(d)
	case plan.Budget != nil:
		return l.admit(d, all, holds, runs)
	case len(all.pending) > 0:
		d.Reason = fmt.Sprintf("wave %s: %d healthy, %d pending: %s", name(), d.Good+len(all.soaking), len(all.pending), first(all.pending))
		return d
	case len(all.soaking) > 0:
		d.Reason = fmt.Sprintf("wave %s: soaking: %s", name(), first(all.soaking))
		return d
	case holds != "":
		d.Reason = fmt.Sprintf("wave %s: %d healthy; %s", name(), d.Good, holds)
		return d
	}
	if runs && n+1 < len(plan.Waves) {
		d.Act = Finish
		return d
	}
	return l.onward(d, runs)
}

// halted adds to a halt who goes back at once, where a budget bounds that.
func (l *look) halted(d Decision) Decision {
	if l.plan.Budget == nil {
		return d
	}
	waves := d.Back
	if l.plan.Rule.Undo == spec.UndoAll {
		waves = nil
		for i := range l.row.Waves {
			waves = append(waves, i)
		}
	}
	d.Nodes, _ = l.mayReturn(d.Of, waves)
	return d
}

// onward decides who comes next, where all that began is well.
func (l *look) onward(d Decision, runs bool) Decision {
	late := l.late(d.Of)
	if d.First = len(l.row.Waves); !runs {
		for i := len(l.row.Waves); i < len(l.plan.Waves); i++ {
			w := l.gather(i)
			d.Of = append(d.Of, w.Verdict)
			switch name := l.plan.Waves[i].Name; {
			case len(w.unheard) > 0: // whether they are silent is not known yet
				d.Act, d.Wave, d.Reason = Wait, i, fmt.Sprintf("wave %s: the service was restarted and has no report of %s yet", name, first(w.unheard))
				return d
			case len(w.silent) > 0 && len(w.waiting) == 0:
				d.Act, d.Wave, d.Reason = Wait, i, fmt.Sprintf("wave %s: none of its nodes reports: %s", name, some(w.silent))
				return d
			case len(w.silent) > len(w.waiting):
				// The first ones that come back prove nothing for a rack that was cut off.
				d.Act, d.Wave, d.Reason = Wait, i, fmt.Sprintf("wave %s: %d of its nodes report, it begins with %d; silent are %s",
					name, len(w.waiting), (len(w.silent)+len(w.waiting)+1)/2, some(w.silent))
				return d
			case len(w.waiting) > 0:
				d.Act, d.Wave, d.Nodes = Begin, i, w.waiting
				d.take(late)
				return d
			}
		}
	}
	switch {
	case len(late) > 0:
		d.Act, d.Wave = Late, len(l.row.Waves)-1
		d.take(late)
	case runs:
		d.Act = Finish
	default:
		d.Act, d.Wave = End, len(l.plan.Waves)-1
		if l.nobody(d.Of) {
			d.Act, d.Wave = Halt, max(0, len(l.row.Waves)-1)
			leftOut := ofAll(d.Of, func(v Verdict) map[string]string { return v.LeftOut })
			d.Reason = fmt.Sprintf("none of its %s has what it brings: %s", plain.Count(l.plan.Size(), "node"), some(leftOut))
		}
	}
	return d
}

// take makes late nodes get what their waves gave the others.
func (d *Decision) take(late map[string]int) {
	for _, name := range plain.Names(maps.Keys(late)) {
		d.Nodes = append(d.Nodes, name)
		of := &d.Of[late[name]]
		of.LeftOut = maps.Clone(of.LeftOut)
		delete(of.LeftOut, name)
	}
}

// isSilent begins why a node is left out that does not report.
const isSilent = "silent: "

// late returns the nodes that waves began without, since they were silent, and that report
// by now, with their wave.
func (l *look) late(of []Verdict) map[string]int {
	late := map[string]int{}
	for i := range l.row.Waves {
		for name, why := range of[i].LeftOut {
			if l.back(name, why) {
				late[name] = i
			}
		}
	}
	return late
}

// back reports whether a node that is left out for being silent reports by now.
func (l *look) back(name, why string) bool {
	row, there := l.known.Rows[name]
	return strings.HasPrefix(why, isSilent) && there && held(row, l.now) == "" && l.quiet(name) == ""
}

// unheard reports whether it is not known yet if a node that reports nothing is silent.
func (l *look) unheard(name string) bool {
	r := l.known.Reports[name]
	return !r.At.IsZero() && l.now.Sub(r.Listens) <= r.Silence(l.plan.Rule)
}

// quiet says since when a node reports nothing, "" where it reports.
func (l *look) quiet(name string) string {
	switch r := l.known.Reports[name]; {
	case r.Garbled != "":
		return isSilent + "its report does not count: " + r.Garbled
	case r.At.IsZero():
		return isSilent + "it never reported"
	case l.now.Sub(r.At) > r.Silence(l.plan.Rule):
		return isSilent + "its last report is of " + r.At.UTC().Format(time.RFC3339)
	}
	return ""
}

// gather says who would be in a wave: they wait.
func (l *look) gather(i int) judged {
	w := judged{Verdict: Verdict{LeftOut: map[string]string{}}, silent: map[string]string{}}
	for _, name := range plain.Names(maps.Keys(l.plan.Waves[i].Nodes)) {
		row, there := l.known.Rows[name]
		why := l.quiet(name)
		switch {
		case held(row, l.now) != "":
			w.LeftOut[name] = held(row, l.now)
		case there && row.Overlay == l.plan.Waves[i].Nodes[name]:
			w.waiting = append(w.waiting, name) // it has it already, and is judged like the others
		case !there && l.known.Left[name]:
			w.LeftOut[name] = gone
		case !there || why == "": // a new node has nothing to report yet
			w.waiting = append(w.waiting, name)
		case l.unheard(name):
			w.unheard = append(w.unheard, name)
		default:
			w.silent[name], w.LeftOut[name] = why, why
		}
	}
	return w
}

// nobody reports whether no node has what the rollout brings.
func (l *look) nobody(of []Verdict) bool {
	for i := range l.row.Waves {
		if len(l.plan.Waves[i].Nodes) > len(of[i].LeftOut) {
			return false
		}
	}
	return true
}

// held says why a node keeps what it has, "" where nothing holds it.
func held(row spec.Published, now time.Time) string {
	holds, _ := published.SplitHolds(row.Holds, now)
	return published.WhyHeld(holds)
}

// gone is why a node is left out that was retired, or left the site, during a rollout.
const gone = "it is not published any more"

// aside says why a node is not judged that was given an overlay: an operator has taken
// it out of the wave since. "" where nobody has.
func (l *look) aside(name, given string) string {
	switch row, there := l.known.Rows[name]; {
	case !there:
		return gone
	case held(row, l.now) != "":
		return held(row, l.now)
	case row.Overlay != given:
		return "it got something else since"
	}
	return ""
}
