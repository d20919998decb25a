// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Brief is a rollout at a glance.
type Brief struct {
	Name    string    `json:"name"`
	Phase   string    `json:"phase"`
	Since   time.Time `json:"since"`
	Author  string    `json:"author,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Wave    string    `json:"wave,omitempty"` // that runs
	Waves   int       `json:"waves"`
	Done    int       `json:"done"` // waves
	Nodes   int       `json:"nodes"`
	LeftOut int       `json:"leftOut"`
	Failed  int       `json:"failed"`
	Stayed  int       `json:"stayed"`        // nodes that did not go back with the others
	Stepped time.Time `json:"stepped"`       // when something came of it last
	Ends    time.Time `json:"ends,omitzero"` // when a running one is expected to end, as its waves have gone so far
}

// Brief returns a rollout at a glance.
func (s *State) Brief(now time.Time) Brief {
	b := Brief{Name: s.Name, Phase: s.Phase, Since: s.Since, Author: s.Author, Reason: s.Reason, Waves: len(s.Waves), Stepped: s.Since}
	each := time.Duration(s.Rule.Soak) * time.Second
	var took, left time.Duration // of waves that are done; of those that are not
	ran := 0
	for _, w := range s.Waves {
		b.Nodes += len(w.Nodes)
		b.LeftOut += len(w.LeftOut)
		b.Failed += len(w.Failed)
		b.Stayed += len(w.Stayed)
		b.Stepped = later(b.Stepped, later(w.Begun, later(w.Done, w.Back)))
		switch {
		case w.Done.IsZero() && w.Begun.IsZero() || !w.Back.IsZero():
		case w.Done.IsZero():
			b.Wave = w.Name
		case w.Done.After(w.Begun): // somebody was in it
			took += w.Done.Sub(w.Begun)
			ran++
			b.Done++
		default:
			b.Done++
		}
	}
	if ran > 0 {
		each = max(each, took/time.Duration(ran))
	}
	for _, w := range s.Waves {
		switch {
		case w.Begun.IsZero():
			left += each
		case w.Done.IsZero():
			left += max(0, w.Begun.Add(each).Sub(now))
		}
	}
	if s.Phase == spec.RolloutRunning {
		b.Ends = now.Add(left).Truncate(time.Second)
	}
	return b
}

// Ended reports whether nothing will come of it any more.
func (b Brief) Ended() bool { return spec.Rollout{Phase: b.Phase}.Ended() }

// String says how far it is.
func (b Brief) String() string {
	text := fmt.Sprintf("%s since %s", b.Phase, b.Since.UTC().Format(time.RFC3339))
	if b.Reason != "" {
		text += ": " + b.Reason
	}
	text += fmt.Sprintf("; %d of %s done", b.Done, plain.Count(b.Waves, "wave"))
	if b.Wave != "" && !b.Ended() {
		text += ", wave " + b.Wave + " has begun"
	}
	for _, n := range []struct {
		n    int
		what string
	}{{b.LeftOut, "left out"}, {b.Failed, "failed"}, {b.Stayed, "did not go back"}} {
		if n.n > 0 {
			text += fmt.Sprintf("; %d of %s %s", n.n, plain.Count(b.Nodes, "node"), n.what)
		}
	}
	if !b.Ends.IsZero() {
		text += "; expected to end at " + b.Ends.UTC().Format(time.RFC3339)
	}
	return text
}
