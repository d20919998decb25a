// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Report is what a rollout wants to know of a node: its last report that counts.
type Report struct {
	At      time.Time // when it was received
	Listens time.Time // since when the service can hear the node, where that is later
	Overlay string    // digest of what the node runs
	Well    time.Time // since when all is well with it; zero when it is not
	Trouble string    // why it is not
	Waiting string    // what a change waits for, as in "window night"; "" when for nothing
	Refused string    // why it does not take what is published for it; "" when it does
	Pinned  bool      // the key that signed it outlives a boot

	Interval time.Duration // between two reports of the node
}

// silence is how long the node may say nothing: as long as the rollout says, and never
// less than a node may that reports so seldom.
func (r Report) silence(rule spec.RolloutRule) time.Duration {
	return max(time.Duration(rule.Silence)*time.Second, view.Patience(r.Interval))
}

// Act is what is to be done next.
type Act string

// Acts.
const (
	Begin  Act = "begin"  // a wave, with Nodes
	Finish Act = "finish" // a wave, and with the last one the rollout
	Halt   Act = "halt"
	Wait   Act = "wait"
)

// Decision is what [Next] says.
type Decision struct {
	Act     Act
	Wave    int
	Nodes   []string          // of the wave that begins, without those that are left out
	LeftOut map[string]string // node → why
	Failed  map[string]string // node → why, so far
	Good    int
	Reason  string // of a halt, and what is waited for
}

// Next decides from the plan, how far it is, what is published, and what nodes report.
// A rollout that does not run waits. Of nodes without a row, left are those that had one
// when the plan was made.
func Next(plan *spec.RolloutPlan, row spec.Rollout, rows index.Rows, left map[string]bool, reports map[string]Report, now time.Time) Decision {
	if row.Phase != spec.RolloutRunning {
		return Decision{Act: Wait, Wave: len(row.Waves) - 1, Reason: "it is " + row.Phase}
	}
	if plan.Rule.Pinned {
		reports = maps.Clone(reports)
		maps.DeleteFunc(reports, func(_ string, r Report) bool { return !r.Pinned })
	}
	i := len(row.Waves) - 1
	if i < 0 || row.Waves[i].Done != 0 {
		return begin(plan, i+1, rows, left, reports, now)
	}
	d := judge(plan, i, row.Waves[i], rows, reports, now)
	switch n := len(plan.Waves[i].Nodes) - len(d.LeftOut); {
	case halts(plan.Rule, len(d.Failed), n):
		d.Act, d.Reason = Halt, fmt.Sprintf("wave %s: %d of %s failed: %s", plan.Waves[i].Name, len(d.Failed), plain.Count(n, "node"), some(d.Failed))
	case d.Act == "":
		d.Act = Finish
	}
	return d
}

// begin decides who takes part in a wave.
func begin(plan *spec.RolloutPlan, i int, rows index.Rows, left map[string]bool, reports map[string]Report, now time.Time) Decision {
	d := Decision{Act: Begin, Wave: i, LeftOut: map[string]string{}}
	silent := 0
	var unheard []string
	for _, name := range plain.Names(maps.Keys(plan.Waves[i].Nodes)) {
		row, there := rows[name]
		r, heard := reports[name]
		silence := r.silence(plan.Rule)
		switch {
		case held(row, now) != "":
			d.LeftOut[name] = held(row, now)
		case there && row.Overlay == plan.Waves[i].Nodes[name]:
			d.Nodes = append(d.Nodes, name) // it has it already, and is judged like the others
		case !there && left[name]:
			d.LeftOut[name] = gone
		case !there:
			d.Nodes = append(d.Nodes, name) // a new node has nothing to report yet
		case !heard:
			silent++
			d.LeftOut[name] = "silent: it never reported"
		case now.Sub(r.At) > silence && now.Sub(r.Listens) <= silence:
			unheard = append(unheard, name)
		case now.Sub(r.At) > silence:
			silent++
			d.LeftOut[name] = "silent: its last report is of " + r.At.UTC().Format(time.RFC3339)
		default:
			d.Nodes = append(d.Nodes, name)
		}
	}
	switch {
	case len(unheard) > 0: // whether they are silent is not known yet
		d.Act, d.Reason = Wait, fmt.Sprintf("wave %s: the service listens again, and has not heard of %s", plan.Waves[i].Name, first(unheard))
	case len(d.Nodes) == 0 && silent > 0:
		// A wave that nobody takes part in proves nothing for the next one.
		d.Act, d.Reason = Wait, fmt.Sprintf("wave %s: none of its nodes reports: %s", plan.Waves[i].Name, some(d.LeftOut))
	}
	return d
}

// held says why a node keeps what it has, "" where nothing holds it.
func held(row spec.Published, now time.Time) string {
	holds, _ := hold.Split(row.Holds, now)
	return hold.Why(holds)
}

// gone is why a node is left out that was retired, or left the site, during a rollout.
const gone = "it is not published any more"

// aside says why a node is not judged that was given an overlay: an operator has taken
// it out of the wave since. "" where nobody has.
func aside(rows index.Rows, name, given string, now time.Time) string {
	switch row, there := rows[name]; {
	case !there:
		return gone
	case held(row, now) != "":
		return held(row, now)
	case row.Overlay != given:
		return "it got something else since"
	}
	return ""
}

// judge looks at the nodes of a wave. Its Act is Wait where some of them may still
// become well, and "" where none may.
func judge(plan *spec.RolloutPlan, i int, w spec.RolloutWave, rows index.Rows, reports map[string]Report, now time.Time) Decision {
	d := Decision{Wave: i, LeftOut: map[string]string{}, Failed: map[string]string{}}
	maps.Copy(d.LeftOut, w.LeftOut)
	begun := time.Unix(w.Begun, 0)
	// What the service could not hear is no fault of a node.
	var listens time.Time
	for _, r := range reports {
		listens = later(listens, r.Listens)
	}
	late := !now.Before(later(begun, listens).Add(time.Duration(plan.Rule.Deadline) * time.Second))
	soak := time.Duration(plan.Rule.Soak) * time.Second
	var pending, soaking []string
	for _, name := range plain.Names(maps.Keys(plan.Waves[i].Nodes)) {
		if w.LeftOut[name] != "" {
			continue
		}
		if why := aside(rows, name, plan.Waves[i].Nodes[name], now); why != "" {
			d.LeftOut[name] = why
			continue
		}
		r := reports[name]
		silence := r.silence(plan.Rule)
		heard := !r.At.Before(begun) // what it said before says nothing of this wave
		arrived := heard && r.Overlay == plan.Waves[i].Nodes[name]
		switch {
		case heard && r.Refused != "":
			d.Failed[name] = "it refuses the overlay: " + r.Refused
		case arrived && r.Trouble != "" && late:
			d.Failed[name] = r.Trouble
		case arrived && r.Trouble == "" && r.At.Sub(later(r.Well, begun)) >= soak:
			d.Good++ // it said so after that time, too
		case arrived && r.Trouble == "" && now.Sub(later(r.At, r.Listens)) > silence:
			d.Failed[name] = "silent since " + r.At.UTC().Format(time.RFC3339)
		case arrived && r.Trouble == "":
			soaking = append(soaking, name)
		case heard && !arrived && r.Waiting != "" && now.Sub(later(r.At, r.Listens)) <= silence:
			pending = append(pending, name+" waits for "+r.Waiting) // signed, and not to be hurried
		case !late:
			pending = append(pending, name)
		case !heard:
			d.Failed[name] = "silent since the wave began"
		case now.Sub(r.At) > silence:
			d.Failed[name] = "silent since " + r.At.UTC().Format(time.RFC3339)
		default:
			d.Failed[name] = "it does not report the overlay"
		}
	}
	switch {
	case len(pending) > 0:
		d.Act, d.Reason = Wait, fmt.Sprintf("wave %s: %d well, %d on their way: %s", plan.Waves[i].Name, d.Good+len(soaking), len(pending), first(pending))
	case len(soaking) > 0:
		d.Act, d.Reason = Wait, fmt.Sprintf("wave %s: soaking", plan.Waves[i].Name)
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

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
	var out []string
	for _, name := range plain.Names(maps.Keys(nodes)) {
		out = append(out, name+" ("+nodes[name]+")")
	}
	return first(out)
}

// shown is how many nodes a text names.
const shown = 3

func first(list []string) string {
	text := ""
	for i, s := range list[:min(shown, len(list))] {
		if i > 0 {
			text += ", "
		}
		text += s
	}
	if n := len(list) - shown; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
