// SPDX-License-Identifier: Apache-2.0

package spec

import "slices"

// feature is something that came after the first release: an overlay that uses
// it is not applied by an agent that does not know it.
type feature struct {
	name string
	used func(*Overlay) bool
}

// features is the one table, sorted by name; kinds of items that are features are rows of
// their own. Loaders, layers and publishers of
// different releases meet: the layer's description lists what its agent knows,
// the overlay what it needs, and publish compares the two before it signs.
var features = andKinds([]feature{
	{"agent-metrics", func(o *Overlay) bool { return o.Agent != nil && o.Agent.Metrics != nil }},
	{"agent-poll", func(o *Overlay) bool { return o.Agent != nil && o.Agent.Poll != 0 }},
	{"agent-report", func(o *Overlay) bool { return o.Agent != nil && o.Agent.Report != nil }},
	{"agent-report-registry", func(o *Overlay) bool { return o.Agent != nil && o.Agent.Report != nil && o.Agent.Report.Registry != "" }},
	{"budget", func(o *Overlay) bool {
		return o.Agent != nil && slices.ContainsFunc(o.Agent.Enforce, func(e Enforcement) bool { return e.Budget != nil }) ||
			o.Maintenance != nil && slices.ContainsFunc(o.Maintenance.Realtime, func(r Realtime) bool { return r.Budget != nil })
	}},
	{"confirm", func(o *Overlay) bool { return o.Confirm != nil }},
	{"default-limits", func(o *Overlay) bool {
		return slices.ContainsFunc(o.Items.Units, func(u Unit) bool { return u.Name == "system.conf" })
	}},
	{"exec-limits", func(o *Overlay) bool {
		return slices.ContainsFunc(o.Items.Exec, func(x Exec) bool { return x.MemoryMax != 0 || x.CPUQuota != 0 || x.TasksMax != 0 })
	}},
	{"exec-on-failure", func(o *Overlay) bool {
		return slices.ContainsFunc(o.Items.Exec, func(x Exec) bool { return x.OnFailure != "" })
	}},
	{"gates", func(o *Overlay) bool { return o.Gates != nil }},
	{"layer-swap", func(o *Overlay) bool { return o.Swap != nil }},
	{FeatureLiveAccounts, func(*Overlay) bool { return false }},
	{"maintenance", func(o *Overlay) bool { return o.Maintenance != nil }},
	{"nic-features", func(o *Overlay) bool {
		return slices.ContainsFunc(o.Items.NICs, func(n NIC) bool {
			return slices.ContainsFunc(n.Settings, func(s NICSetting) bool { return s.Group == NICFeatures })
		})
	}},
	{"operation-order", func(o *Overlay) bool {
		return o.Maintenance != nil && slices.ContainsFunc(o.Maintenance.Operations, func(x Operation) bool { return x.Order != nil || x.Reboots })
	}},
	{"operation-realtime", func(o *Overlay) bool { return o.Maintenance != nil && len(o.Maintenance.Realtime) > 0 }},
	{"operation-template", func(o *Overlay) bool {
		return o.Maintenance != nil && slices.ContainsFunc(o.Maintenance.Operations, func(x Operation) bool { return x.From != "" })
	}},
	{"pause", func(o *Overlay) bool { return o.Pause != nil }},
	{"policy", func(o *Overlay) bool { return o.Agent != nil && len(o.Agent.Enforce) > 0 }},
	{"protect", func(o *Overlay) bool {
		return o.Agent != nil && slices.ContainsFunc(o.Agent.Enforce, func(e Enforcement) bool { return e.Policy == PolicyProtect })
	}},
	{"services", func(o *Overlay) bool { return len(o.Services) > 0 }},
	{FeatureSoftReboot, func(*Overlay) bool { return false }},
})

// Features returns the names of what this release's agent knows beyond the first
// release, for a layer's description.
func Features() []string {
	var names []string
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// SetNeeds makes o say which features it uses. The compiler calls it last.
func (o *Overlay) SetNeeds() {
	o.Needs = nil
	for _, f := range features {
		if f.used(o) {
			o.Needs = append(o.Needs, f.name)
		}
	}
}

// Missing returns the needs that known lacks, nil when all are there.
func Missing(needs, known []string) []string {
	var missing []string
	for _, n := range needs {
		if !slices.Contains(known, n) {
			missing = append(missing, n)
		}
	}
	return missing
}
