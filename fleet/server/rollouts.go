// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"

	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// Rollouts is what GET /v1/rollouts answers.
type Rollouts struct {
	Rollouts []rollout.State `json:"rollouts"` // the newest first
}

func (s *Server) getRollouts(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, Rollouts{s.o.Hub.Rollouts()})
}

// rolloutRow is a rollout on the page: its waves beside what their nodes report now.
type rolloutRow struct {
	rollout.State
	Waves []waveRow
	Named []namedNode
	Acts  []act
}

type waveRow struct {
	rollout.WaveState
	Fine, Trouble int
}

type namedNode struct{ Node, What, Why string }

// maxNamed is how many nodes of a rollout the page names.
const maxNamed = 50

// says is what a verb does to a rollout.
var says = map[rollout.Verb]string{
	rollout.Pause:  "Let no wave begin or end",
	rollout.Resume: "Go on: a wave that did not end, or went back, begins anew",
	rollout.Abort:  "End it: its nodes keep what they have",
	rollout.Undo:   "End it, and give its nodes what they had before it",
}

// verbsOf are what an operator may do about a rollout, the likeliest first.
var verbsOf = map[string][]rollout.Verb{
	spec.RolloutRunning: {rollout.Pause, rollout.Undo},
	spec.RolloutPaused:  {rollout.Resume, rollout.Undo, rollout.Abort},
	spec.RolloutHalted:  {rollout.Undo, rollout.Resume, rollout.Abort},
	spec.RolloutDone:    {rollout.Undo},
}

func (s *Server) rolloutsPage(w http.ResponseWriter, req *http.Request) {
	now, conditions := s.o.Hub.Now(), map[string]view.Condition{}
	for _, n := range s.o.Hub.Nodes() {
		conditions[n.Name], _ = n.Condition(now)
	}
	var rows []rolloutRow
	for _, r := range s.o.Hub.Rollouts() {
		row := rolloutRow{State: r}
		if r.Phase == spec.RolloutRunning {
			row.Acts = append(row.Acts, act{"Drive it: waves begin and end only while this runs somewhere",
				fmt.Sprintf("caisson rollout run %s site.yaml --to %s --key keys/operator.key%s", r.Name, s.o.Registry, s.asReader(req))})
		}
		for _, verb := range verbsOf[r.Phase] {
			row.Acts = append(row.Acts, act{says[verb], fmt.Sprintf(`caisson rollout %s %s %s --site site.yaml --reason "…"`, verb, s.o.Registry, r.Name)})
		}
		for _, wave := range r.Waves {
			v := waveRow{WaveState: wave}
			for _, name := range wave.Nodes {
				switch c := conditions[name]; {
				case c == view.Fine:
					v.Fine++
				case view.KindOf(c).Trouble:
					v.Trouble++
				}
				for _, one := range []namedNode{{name, "failed", wave.Failed[name]}, {name, "left out", wave.LeftOut[name]}} {
					if one.Why != "" && len(row.Named) < maxNamed {
						row.Named = append(row.Named, one)
					}
				}
			}
			row.Waves = append(row.Waves, v)
		}
		rows = append(rows, row)
	}
	s.show(w, req, http.StatusOK, "rollouts.html", map[string]any{"Rollouts": rows})
}
