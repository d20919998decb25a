// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
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
				at = l.heardSince(t.begun)
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
	silent := l.now.Sub(later(r.At, r.Listens)) > r.silence(l.plan.Rule)
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
	case arrived && r.unproved() && past(longestWait+soak+r.silence(l.plan.Rule)):
		j.Failed[name] = "it has not passed its checks"
	case arrived && r.Trouble == "" && past(longestWait+soak+r.silence(l.plan.Rule)): // its window may be the last
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
	case l.now.Sub(r.At) > r.silence(l.plan.Rule):
		j.Failed[name] = "silent since " + r.At.UTC().Format(time.RFC3339)
	default:
		j.Failed[name] = "it does not report the overlay"
	}
}

// longestWait is how long a node may say that it waits for a window: whatever opens by the
// calendar opens once a month. What a node says holds nobody back for ever.
const longestWait = 35 * 24 * time.Hour

// since returns when the time began in which nodes have to arrive: with the wave that began
// last, with which late ones of earlier waves are taken up, too. What the service could
// not hear is not a fault of a node.
func (l *look) since() time.Time {
	return l.heardSince(time.Unix(l.row.Waves[len(l.row.Waves)-1].Begun, 0))
}

// heardSince returns since when the service hears all nodes, and not before a time.
func (l *look) heardSince(since time.Time) time.Time {
	return later(since, l.listens)
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

// count is how many nodes a plan is for.
func count(plan *spec.RolloutPlan) (n int) {
	for _, w := range plan.Waves {
		n += len(w.Nodes)
	}
	return n
}

// some names a few nodes with their reasons.
func some(nodes map[string]string) string {
	return first(plain.Each(plain.Names(maps.Keys(nodes)), func(name string) string { return name + " (" + nodes[name] + ")" }))
}

// someOf names a few of the nodes that are left out of waves.
func someOf(waves []Verdict) string {
	all := map[string]string{}
	for _, w := range waves {
		maps.Copy(all, w.LeftOut)
	}
	return some(all)
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
