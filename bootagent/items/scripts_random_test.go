// SPDX-License-Identifier: Apache-2.0

package items

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// life is the last run of a script.
type life struct {
	start time.Duration
	well  bool
}

// model is Divingbell's rules for scripts, with what a change adds: those it asks for can
// take it back. A script is known by its text, which names it and its version.
type model struct {
	now   time.Duration
	lives map[string]life
	fails map[string]bool // by name
}

func (m *model) due(w spec.Exec) bool {
	l, ran := m.lives[w.Data]
	interval := w.RerunInterval
	if ran && !l.well {
		interval = cmp.Or(w.RetryInterval, w.RerunInterval)
	}
	switch {
	case !ran:
		return true
	case w.Rerun == "never", w.Rerun == "once_successfully" && l.well, interval < 0:
		return false
	}
	return m.now-l.start >= time.Duration(cmp.Or(interval, 60))*time.Second
}

func (m *model) failed(w spec.Exec) bool {
	l, ran := m.lives[w.Data]
	return ran && !l.well
}

// pass runs what is due, in order of names, up to one that halts and has not succeeded.
func (m *model) pass(want []spec.Exec) (ran []spec.Exec) {
	for _, w := range want {
		if m.due(w) {
			m.lives[w.Data] = life{m.now, !m.fails[w.Name]}
			ran = append(ran, w)
		}
		if m.failed(w) && w.Blocking == "foreground_halt_pod_on_failure" {
			break
		}
	}
	return ran
}

// change is a pass that may be taken back; then the scripts before it have theirs.
func (m *model) change(before, next []spec.Exec) (ran []spec.Exec, stands bool) {
	lacked := map[string]bool{}
	for _, w := range before {
		lacked[w.Data] = m.due(w) || m.failed(w)
	}
	own := func(w spec.Exec) bool { return w.OnFailure == "rollback" && !lacked[w.Data] && m.failed(w) }
	if slices.ContainsFunc(next, func(w spec.Exec) bool { return own(w) && !m.due(w) }) {
		return nil, false
	}
	ran = m.pass(next)
	if slices.ContainsFunc(ran, own) {
		return append(ran, m.pass(before)...), false
	}
	return ran, true
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// choose changes some of the scripts.
func choose(r *rand.Rand, n *node, now []spec.Exec) []spec.Exec {
	next := slices.Clone(now)
	for range 1 + r.IntN(3) {
		name := pick(r, "010", "020", "10.sh", "9.sh", "B", "a")
		next = slices.DeleteFunc(next, func(w spec.Exec) bool { return w.Name == name })
		if r.IntN(5) == 0 {
			continue
		}
		says := fmt.Sprint(name, "v", r.IntN(3))
		next = append(next, spec.Exec{Name: name, Data: fmt.Sprintf("#!/bin/sh\necho %s >>%s/srv/ran\n! test -e %s/srv/fails-%s\n", says, n.root, n.root, name),
			Rerun: pick(r, "", "always", "never", "once_successfully"), Blocking: pick(r, "", "foreground", "foreground_halt_pod_on_failure"),
			RerunInterval: pick[int64](r, 0, 0, 5400, -1), RetryInterval: pick[int64](r, 0, 0, 9000, -1), OnFailure: pick(r, "", "", "rollback")})
	}
	slices.SortFunc(next, func(a, b spec.Exec) int { return strings.Compare(a.Name, b.Name) })
	return next
}

// Whatever is due, by whatever policy, before a change or with it, and whatever fails,
// runs as the model says.
func TestRandomScripts(t *testing.T) { randomScripts(t, 1, 12) }

func TestLongRandomScripts(t *testing.T) {
	require.Long(t)
	randomScripts(t, 1000, 1000)
}

func randomScripts(t *testing.T, from, sequences uint64) {
	for seed := from; seed < from+sequences; seed++ {
		if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			n, m := newNode(t), &model{lives: map[string]life{}, fails: map[string]bool{}}
			var now []spec.Exec
			for step := range 6 {
				by := pick[time.Duration](r, 0, 1, 2, 3) * time.Hour
				n.later(by)
				m.now += by
				for _, w := range now {
					if r.IntN(3) == 0 {
						m.toggle(n, w.Name)
					}
				}
				next := now
				if r.IntN(3) != 0 {
					next = choose(r, n, now)
				}
				want, stands := m.change(now, next)
				result := Transact(t.Context(), n.items(scripts(next...)), n.items(scripts(now...)), n.journal, nil)
				if got := n.ran(); got != saying(want) || (result.Err == nil) != stands {
					t.Fatalf("step %d: ran %q and stands %v, want %q and %v: %v\nbefore %+v\nnow %+v", step, got, result.Err == nil, saying(want), stands, result.Err, now, next)
				}
				if stands {
					now = next
				}
				if degraded := slices.ContainsFunc(now, m.failed); stands && degraded != (result.Health == spec.HealthDegraded) {
					t.Fatalf("step %d: %s, want degraded %v: %+v", step, result.Health, degraded, result.Items)
				}
			}
		}) {
			return
		}
	}
}

// toggle has a script fail from now on, or succeed again.
func (m *model) toggle(n *node, name string) {
	m.fails[name] = !m.fails[name]
	if m.fails[name] {
		n.write("srv/fails-"+name, "")
	} else if err := os.Remove(n.root + "/srv/fails-" + name); err != nil {
		n.t.Fatal(err)
	}
}

// saying returns the output of scripts that run.
func saying(ran []spec.Exec) string {
	var says []string
	for _, w := range ran {
		says = append(says, strings.Fields(w.Data)[2])
	}
	return strings.Join(says, " ")
}
