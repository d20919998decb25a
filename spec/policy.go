// SPDX-License-Identifier: Apache-2.0

package spec

import "slices"

// Policy is what a node does about a setting that somebody has changed since it was
// set. What a new root or a newer generation asks for is set under every policy.
type Policy string

// Policies of a setting.
const (
	PolicyEnforce Policy = "enforce" // it is set again; this holds where nothing is said
	PolicyReport  Policy = "report"  // it is left alone and reported
	PolicyProtect Policy = "protect" // it is set again, and the kernel refuses writes of others; of sysctl alone
)

// Enforcement is the policy of a kind of settings, or of one of them.
type Enforcement struct {
	Item   string `json:"item"`
	Key    string `json:"key,omitempty"` // as in Drift; all of the kind that are not named when empty
	Policy Policy `json:"policy"`
}

// PolicyOf returns the policy of one setting: that of its key, else that of its kind.
func PolicyOf(rows []Enforcement, item, key string) Policy {
	for _, k := range []string{key, ""} {
		if i := slices.IndexFunc(rows, func(e Enforcement) bool { return e.Item == item && e.Key == k }); i >= 0 {
			return rows[i].Policy
		}
	}
	return PolicyEnforce
}

// Protected returns the kernel parameters that o sets and wants protected, as paths below
// /proc/sys in their order.
func (o *Overlay) Protected() (keys []string) {
	if o.Agent == nil || !slices.ContainsFunc(o.Agent.Enforce, func(e Enforcement) bool { return e.Policy == PolicyProtect }) {
		return nil
	}
	for _, s := range o.Items.Sysctl {
		if PolicyOf(o.Agent.Enforce, "sysctl", s.Key) == PolicyProtect {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
