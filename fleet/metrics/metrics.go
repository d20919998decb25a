// SPDX-License-Identifier: Apache-2.0

// Package metrics writes what there is to say of a fleet in Prometheus' text format, version 0.0.4. What
// a node measures of itself the node exports. Only fleet/server imports it.
package metrics

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// exposition holds metrics that are written.
type exposition struct{ bytes.Buffer }

// family begins a metric; the samples follow.
func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// gauge is a metric of one sample.
func (e *exposition) gauge(name, help string, value float64, labels ...string) {
	e.family(name, "gauge", help)
	e.sample(name, value, labels...)
}

var labelText = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// sample writes one value; labels are names and values by turns.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		fmt.Fprintf(e, `%c%s="%s"`, "{,"[min(i, 1)], labels[i], labelText.Replace(strings.ToValidUTF8(labels[i+1], "?")))
	}
	if len(labels) > 0 {
		e.WriteByte('}')
	}
	e.WriteByte(' ')
	e.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
	e.WriteByte('\n')
}

// Of returns the metrics of a fleet, as a service of a release has them.
func Of(f *query.Fleet, version string) []byte {
	sum, stats := f.Summary(), f.Hub.Stats()
	var e exposition
	e.gauge("caisson_fleet_info", "The fleet and the release of this service.", 1, "fleet", sum.Name, "version", version)
	e.gauge("caisson_fleet_generation", "Generation that was given out last.", float64(sum.Generation))
	e.gauge("caisson_fleet_epoch", "Epoch of the fleet.", float64(sum.Epoch))
	e.gauge("caisson_fleet_index_timestamp_seconds", "When what is published was last read.", float64(sum.Indexed.Unix()))
	e.family("caisson_fleet_unread", "gauge", "1 where a source of this service could not be read, and what was read before is used.")
	e.sample("caisson_fleet_unread", truth(sum.IndexTrouble != ""), "source", "registry")
	if f.Site != nil {
		e.sample("caisson_fleet_unread", truth(sum.SiteTrouble != ""), "source", "site")
	}
	if f.Inbox != nil {
		e.sample("caisson_fleet_unread", truth(sum.InboxTrouble != ""), "source", "reports")
	}
	e.sample("caisson_fleet_unread", truth(sum.DatabaseTrouble != ""), "source", "database")
	e.gauge("caisson_fleet_writer", "1 where this instance takes reports, 0 where another one does, or none can.", truth(sum.Writes))
	e.family("caisson_fleet_nodes", "gauge", "Nodes by condition; each node has one.")
	for _, k := range view.Kinds {
		e.sample("caisson_fleet_nodes", float64(sum.Conditions[k.Condition]), "condition", string(k.Condition))
	}
	e.gauge("caisson_fleet_nodes_hinted", "Nodes of which an unproven hint says that their loader boots nothing.", float64(sum.Hinted))
	e.gauge("caisson_fleet_nodes_differing", "Nodes that run something else than is published for them.", float64(sum.Differ))
	e.family("caisson_fleet_nodes_attested", "gauge", "Nodes by what their TPM shows; those of which that is not known are left out.")
	for _, word := range view.Attestations {
		e.sample("caisson_fleet_nodes_attested", float64(sum.TPM[word]), "state", string(word))
	}
	e.family("caisson_fleet_layer_nodes", "gauge", "Nodes by the layer that they run.")
	for _, l := range sum.Layers {
		e.sample("caisson_fleet_layer_nodes", float64(l.Running), "layer", l.Layer, "version", l.Version)
	}
	e.family("caisson_fleet_agent_nodes", "gauge", "Nodes by the release of their agent.")
	for _, r := range sum.Releases {
		e.sample("caisson_fleet_agent_nodes", float64(r.Nodes), "version", r.Name)
	}
	e.services(f.Services().Services)
	e.family("caisson_fleet_slots", "gauge", "Slots by group.")
	groups := f.Hub.Slots()
	for _, g := range groups {
		e.sample("caisson_fleet_slots", float64(g.Max), "group", g.Name)
	}
	e.family("caisson_fleet_slots_held", "gauge", "Slots that nodes hold, by group.")
	for _, g := range groups {
		e.sample("caisson_fleet_slots_held", float64(len(g.Held)), "group", g.Name)
	}
	e.family("caisson_fleet_reports_total", "counter", "Reports since this instance started, by what became of them.")
	e.sample("caisson_fleet_reports_total", float64(stats.Taken.Load()), "result", "taken")
	e.sample("caisson_fleet_reports_total", float64(stats.Offered.Load()), "result", "other_key")
	e.sample("caisson_fleet_reports_total", float64(stats.Refused.Load()), "result", "refused")
	e.family("caisson_fleet_commits_total", "counter", "Transactions with reports since this instance started.")
	e.sample("caisson_fleet_commits_total", float64(stats.Batches.Load()))
	e.rollouts(plain.Each(f.Hub.Rollouts(), func(r rollout.State) rollout.Brief { return r.Brief(sum.Time) }))
	return e.Bytes()
}

// services writes where services stand. Of the commits that nodes report those count that
// most of them have, see [view.Services]: nodes may report anything.
func (e *exposition) services(list []query.Service) {
	e.family("caisson_service_info", "gauge", "The commit that services.lock names for a service. Always 1.")
	for _, v := range list {
		if v.Locked != "" && v.Stale == "" {
			e.sample("caisson_service_info", 1, "service", v.Name, "commit", v.Locked)
		}
	}
	e.family("caisson_fleet_service_head_info", "gauge", "The commit that git has for a service, when it was last asked. Always 1.")
	for _, v := range list {
		if v.Head != "" {
			e.sample("caisson_fleet_service_head_info", 1, "service", v.Name, "commit", v.Head)
		}
	}
	e.family("caisson_fleet_service_nodes", "gauge", "Nodes by the commit of a service that they report; without one "+
		"where they do not say that they have it.")
	for _, v := range list {
		for _, c := range v.Reported {
			e.sample("caisson_fleet_service_nodes", float64(c.Nodes), "service", v.Name, "commit", c.Commit)
		}
	}
	e.family("caisson_fleet_service_nodes_differing", "gauge", "Nodes that report another commit of a service than they were sent, or none.")
	for _, v := range list {
		e.sample("caisson_fleet_service_nodes_differing", float64(v.Differ), "service", v.Name)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// phases are the states of a rollout's series.
var phases = []string{spec.RolloutRunning, spec.RolloutPaused, spec.RolloutHalted, spec.RolloutAborted,
	spec.RolloutUndone, spec.RolloutDone}

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
	of("caisson_rollout_waves_done", "Waves of a rollout that are done.",
		func(b rollout.Brief) (float64, bool) { return float64(b.Done), true })
	e.family("caisson_rollout_nodes", "gauge", "Nodes of a rollout: all, and those that were left out, failed, or did "+
		"not go back with the others.")
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
