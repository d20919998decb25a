// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// Rollouts holds what GET /v1/rollouts answers.
type Rollouts struct {
	Rollouts []rollout.State `json:"rollouts"` // the newest first
}

// rolloutRow is a rollout on the page: its waves beside what their nodes report now.
type rolloutRow struct {
	rollout.State
	Brief rollout.Brief
	Waves []waveRow
	Named []namedNodes
	Left  int // nodes that Named has no room for
	Acts  []act
}

// waveRow is a wave. What nodes of one that has not begun, or went back, report now says
// nothing of it.
type waveRow struct {
	rollout.WaveState
	Given         bool // its nodes have what the rollout brings
	Fine, Trouble int
}

// namedNodes are nodes that failed or are left out for one reason.
type namedNodes struct {
	What, Why string
	Nodes     []string
	More      int // that are not in Nodes
}

// What the page lists of a rollout at most.
const (
	maxNamed   = 12 // reasons
	maxNodesOf = 30 // nodes of one
)

// named groups the nodes of a rollout by why they failed, then by why they did not go
// back, and then by why they are left out: the most first.
func named(waves []rollout.WaveState) (list []namedNodes, left int) {
	for _, what := range []string{"failed", "did not go back", "left out"} {
		groups := map[string][]string{}
		for _, w := range waves {
			of := map[string]map[string]string{"failed": w.Failed, "did not go back": w.Stayed, "left out": w.LeftOut}[what]
			for _, name := range w.Nodes {
				if why := of[name]; why != "" {
					groups[why] = append(groups[why], name)
				}
			}
		}
		whys := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(groups[b]), len(groups[a])), cmp.Compare(a, b))
		})
		for _, why := range whys {
			nodes := groups[why]
			if len(list) == maxNamed {
				left += len(nodes)
				continue
			}
			n := min(len(nodes), maxNodesOf)
			list = append(list, namedNodes{what, why, nodes[:n], len(nodes) - n})
		}
	}
	return list, left
}

// says describes a verb's effect on a rollout.
var says = map[rollout.Verb]string{
	rollout.Pause:  "Pause it: no wave begins or ends",
	rollout.Resume: "Go on: the first wave that did not end, failed or went back begins again",
	rollout.Abort:  "End it: its nodes keep what they have",
	rollout.Undo:   "End it, and give its nodes what they had before it",
}

// verbsOf returns the verbs that an operator may give a rollout, the likeliest first.
var verbsOf = map[string][]rollout.Verb{
	spec.RolloutRunning: {rollout.Pause, rollout.Undo},
	spec.RolloutPaused:  {rollout.Resume, rollout.Undo, rollout.Abort},
	spec.RolloutHalted:  {rollout.Undo, rollout.Resume, rollout.Abort},
	spec.RolloutDone:    {rollout.Undo},
	spec.RolloutUndone:  {rollout.Undo}, // for nodes that stayed
}

func (s *Server) rolloutsPage(req *http.Request) (int, any, error) {
	names := s.names()
	now, conditions, given := s.o.Hub.Now(), map[string]view.Condition{}, map[string]string{}
	for _, n := range s.o.Hub.Nodes() {
		conditions[n.Name], _ = n.Is()
		if n.Published != nil {
			given[n.Name] = n.Published.Overlay
		}
	}
	var rows []rolloutRow
	for _, r := range s.o.Hub.Rollouts() {
		row := rolloutRow{State: r, Brief: r.Brief(now)}
		if r.Phase == spec.RolloutRunning {
			row.Acts = append(row.Acts, act{"Run it: waves begin and end only while this runs somewhere",
				fmt.Sprintf("caisson rollout run %s %s --to %s %s%s", r.Name, cmp.Or(names.Site, usualNames.Site), s.o.Registry,
					names.Signs, s.asReader(req))})
		}
		for _, verb := range verbsOf[r.Phase] {
			if r.Phase == spec.RolloutUndone && !r.Stayed() {
				continue
			}
			row.Acts = append(row.Acts, act{says[verb], fmt.Sprintf(`caisson rollout %s %s %s %s --reason "…" %s`, verb,
				s.o.Registry, r.Name, names.Verifies, names.Signs)})
		}
		for _, wave := range r.Waves {
			v := waveRow{WaveState: wave, Given: !wave.Begun.IsZero() && wave.Back.IsZero()}
			for _, name := range wave.Nodes {
				switch c := conditions[name]; {
				case wave.LeftOut[name] != "" || given[name] != wave.Gives[name]: // it got something else, from another
				case c == view.Fine:
					v.Fine++
				case view.KindOf(c).Trouble:
					v.Trouble++
				}
			}
			row.Waves = append(row.Waves, v)
		}
		row.Named, row.Left = named(r.Waves)
		rows = append(rows, row)
	}
	return http.StatusOK, map[string]any{"Rollouts": rows}, nil
}
