// SPDX-License-Identifier: Apache-2.0

package server

import (
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/spec"
)

// phases are the states of a rollout's series.
var phases = []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted, spec.RolloutAborted, spec.RolloutUndone, spec.RolloutDone}

// rollouts writes how far the rollouts are.
func (e *exposition) rollouts(list []rollout.Brief) {
	of := func(name, help string, value func(rollout.Brief) (float64, bool)) {
		e.family(name, "gauge", help)
		for _, b := range list {
			if v, ok := value(b); ok {
				e.sample(name, v, "rollout", b.Name)
			}
		}
	}
	e.family("caisson_rollout_state", "gauge", "State of a rollout; one is 1.")
	for _, b := range list {
		for _, p := range phases {
			e.sample("caisson_rollout_state", truth(b.Phase == p), "rollout", b.Name, "state", p)
		}
	}
	of("caisson_rollout_waves", "Waves of a rollout.", func(b rollout.Brief) (float64, bool) { return float64(b.Waves), true })
	of("caisson_rollout_waves_done", "Waves of a rollout that are done.", func(b rollout.Brief) (float64, bool) { return float64(b.Done), true })
	e.family("caisson_rollout_nodes", "gauge", "Nodes of a rollout: all, and those that were left out, failed, or did not go back with the others.")
	for _, b := range list {
		e.sample("caisson_rollout_nodes", float64(b.Nodes), "rollout", b.Name, "which", "all")
		e.sample("caisson_rollout_nodes", float64(b.LeftOut), "rollout", b.Name, "which", "left_out")
		e.sample("caisson_rollout_nodes", float64(b.Failed), "rollout", b.Name, "which", "failed")
		e.sample("caisson_rollout_nodes", float64(b.Stayed), "rollout", b.Name, "which", "stayed")
	}
	of("caisson_rollout_step_timestamp_seconds", "When a rollout last moved: a wave began, ended or went back, or its state changed.",
		func(b rollout.Brief) (float64, bool) { return float64(b.Stepped.Unix()), true })
	of("caisson_rollout_end_timestamp_seconds", "When a rollout that runs is expected to end, as its waves have gone so far.",
		func(b rollout.Brief) (float64, bool) { return float64(b.Ends.Unix()), !b.Ends.IsZero() })
}
