// SPDX-License-Identifier: Apache-2.0

package query

import (
	"slices"

	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Still is something that a machine has as a node, which another machine in its place gets or waits for.
type Still struct {
	What    string `json:"what"` // key, slot, hold, rollout, secrets, known host
	Says    string `json:"says"`
	Command string `json:"command,omitempty"` // that ends it, ready for a shell
}

// Commands write commands as who asks would have to type them.
type Commands struct {
	Looks, Publishes func(verb, more string) string // at the registry of the fleet
	Service          string                         // ends one that takes an operator at the service
}

// Still lists what the machine of a node has, for who replaces it.
func (n Node) Still(rollouts []rollout.State, c Commands) []Still {
	list := []Still{}
	if n.Key != "" {
		s := Still{What: "key", Says: plain.Sprintf("its reports count, by the %s key %s, until another key is accepted", n.Grade, n.Key)}
		if n.Offered != nil {
			s.Says += "; another one reports: accept it where caisson-agent report on the new machine prints it"
			s.Command = "caisson fleet accept " + n.Name + " " + cli.ShellWord(n.Offered.Report.Key) + c.Service
		}
		list = append(list, s)
	}
	for _, l := range n.Slots {
		list = append(list, Still{"slot", plain.Sprintf("of %s, since %s", l.Group, plain.Time(l.Since)),
			"caisson fleet slots release " + cli.ShellWord(l.Group) + " " + n.Name + ` --reason "…"` + c.Service})
	}
	if n.Published != nil {
		for _, h := range n.Published.Holds {
			verb := "forward"
			if h.Kind == spec.HoldPause {
				verb = "resume"
			}
			list = append(list, Still{"hold", plain.Sprintf("%s: %s; it stays for the new machine", h.Kind, h.Reason),
				c.Publishes(verb, " --node "+n.Name)})
		}
	}
	for _, r := range rollouts {
		if (spec.Rollout{Phase: r.Phase}).Ended() {
			continue
		}
		for _, w := range r.Waves {
			if slices.Contains(w.Nodes, n.Name) {
				list = append(list, Still{"rollout", plain.Sprintf(
					"%s, wave %s, which is %s: publish refuses the node until the rollout has ended, or is aborted", r.Name, w.Name, w.State),
					c.Looks("rollout status", " "+cli.ShellWord(r.Name))})
			}
		}
	}
	return list
}
