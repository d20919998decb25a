// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"path"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// PolicyKey returns the key of a setting as a drift has it, of one as its author
// writes it.
func PolicyKey(kind, key string) string {
	switch {
	case kind == "sysctl":
		return SysctlPath(key)
	case path.IsAbs(key):
		return path.Clean(key)
	}
	return key
}

// PolicyName is the other way round: the key as its author writes it.
func PolicyName(kind, key string) string {
	return Spelled(spec.Drift{Item: kind, Key: key}).Key
}

// Enforcement checks the policy of a kind or of one setting of it.
func Enforcement(e spec.Enforcement) error {
	var f fields
	f.add("policy", oneOf(e.Policy, "a policy of "+e.Item, spec.Policies(e.Item)))
	if e.Key != "" {
		f.add("key", policyKey(e.Item, e.Key))
	}
	return f.err()
}

// Limits of a budget. The corrections of each setting that others change are on disk.
const (
	maxCorrections = 20
	leastPer       = 60
	mostPer        = 24 * 60 * 60
)

// Budget checks how often a setting is set again.
func Budget(b spec.Budget) error {
	var f fields
	f.add("corrections", refuse(b.Corrections < 1 || b.Corrections > maxCorrections, "range", "policy: report leaves a setting as it is",
		"from 1 to %d", maxCorrections))
	f.add("per", refuse(b.Per < leastPer || b.Per > mostPer, "range", "", "between a minute and a day"))
	return f.err()
}

func policyKey(kind, key string) error {
	switch {
	case kind == "sysctl":
		if !sysctlKey(key) {
			return invalid("sysctl-key", "as in vm.swappiness or net/ipv4/ip_forward", "%.150q is not a kernel parameter", SysctlName(key))
		}
	case spec.KeyIsPath(kind):
		return Path(key)
	default:
		if !printable(key) || strings.TrimSpace(key) != key {
			return invalid("policy-key", "write it as caisson-agent status does", "%.150q is not the key of a setting", key)
		}
	}
	return nil
}

// Confirm returns what is wrong with the time that an operator has to confirm a change:
// less than it takes to log in, or so long that nobody waits for its end.
func Confirm(c *spec.Confirm) error {
	if c != nil && (c.Within < 10 || c.Within > 24*60*60) {
		return fmt.Errorf("a change is confirmed within 10 s to 24 h, not %d s", c.Within)
	}
	return nil
}
