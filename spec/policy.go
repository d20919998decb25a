// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"slices"
	"time"
)

// Policy names the reaction of a node to a setting that was changed since it was
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
	Item   string  `json:"item"`
	Key    string  `json:"key,omitempty"` // as in Drift; all of the kind that are not named when empty
	Policy Policy  `json:"policy"`
	Budget *Budget `json:"budget,omitempty"`
}

// Budget is how often a setting that others keep changing is set again, before it is
// quarantined.
type Budget struct {
	// of one setting
	Corrections int64 `json:"corrections" site:",required" doc:"how often a setting is set again before it is quarantined"`
	// seconds
	Per int64 `json:"per" site:",required,duration" doc:"time in which the corrections are counted"`
}

// String is the budget for people, as in 5 corrections within 10m0s.
func (b Budget) String() string {
	return fmt.Sprintf("%d corrections within %v", b.Corrections, time.Duration(b.Per)*time.Second)
}

// UsualBudget is that of a setting of which nothing else is said.
func UsualBudget() Budget { return Budget{Corrections: 5, Per: 600} }

// Enforced returns the policy of one setting: the row of its key, else that of its kind.
func Enforced(rows []Enforcement, item, key string) Enforcement {
	for _, k := range []string{key, ""} {
		if i := slices.IndexFunc(rows, func(e Enforcement) bool { return e.Item == item && e.Key == k }); i >= 0 {
			return rows[i]
		}
	}
	return Enforcement{Item: item, Key: key, Policy: PolicyEnforce}
}

// Enforced returns what o says of one setting, whether an operation manages it or not.
// In which windows an operation does is another question.
func (o *Overlay) Enforced(item, key string) Enforcement {
	e := Enforcement{Item: item, Key: key, Policy: PolicyEnforce}
	if r := o.Maintenance.RealtimeOf(item, key); r != nil {
		e.Budget = r.Budget
	} else if o.Agent != nil {
		e = Enforced(o.Agent.Enforce, item, key)
	}
	if e.Budget == nil {
		usual := UsualBudget()
		e.Budget = &usual
	}
	return e
}

// Protected returns the kernel parameters that o sets and wants protected, as paths below
// /proc/sys in their order.
func (o *Overlay) Protected() (keys []string) {
	if o.Agent == nil || !slices.ContainsFunc(o.Agent.Enforce, func(e Enforcement) bool { return e.Policy == PolicyProtect }) {
		return nil
	}
	for _, s := range o.Items.Sysctl {
		if Enforced(o.Agent.Enforce, "sysctl", s.Key).Policy == PolicyProtect {
			keys = append(keys, s.Key)
		}
	}
	return keys
}
