// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// needs says without which features the kernel keeps one off, for every caller:
// netdev_fix_features() of net/core/dev.c. One of a list is enough. A feature that the
// interface does not have is not looked at.
var needs = []struct {
	feature string
	oneOf   []string
}{
	{"tx-tcp-segmentation", []string{"tx-scatter-gather"}},
	{"tx-tcp6-segmentation", []string{"tx-scatter-gather"}},
	{"tx-tcp-ecn-segmentation", []string{"tx-scatter-gather"}},
	{"tx-tcp-mangleid-segmentation", []string{"tx-scatter-gather"}},
	{"tx-generic-segmentation", []string{"tx-scatter-gather"}},
	{"tx-tcp-segmentation", []string{"tx-checksum-ip-generic", "tx-checksum-ipv4"}},
	{"tx-tcp6-segmentation", []string{"tx-checksum-ip-generic", "tx-checksum-ipv6"}},
	{"rx-gro-hw", []string{"rx-checksum"}},
}

// due says what is to be done for what is wanted of one interface. What cannot come
// true is found here, from what is wanted and what the kernel says is asked for and
// active, and refused before anything is switched.
func (n featureNIC) due(want []spec.Feature) []spec.Drift {
	var drift []spec.Drift
	target, by := n.target(want)
	changes := 0
	for _, w := range want {
		d := n.compare(w)
		if n.err == nil {
			if why := n.conflict(w, target, by); why != "" && d.Action != spec.ActionRefuse {
				d = spec.Drift{Item: FeaturesName, Key: featureKey(w.Interface, w.Feature), From: d.From, To: onOff(w.On),
					Action: spec.ActionRefuse, Reason: conflict + why}
			}
		}
		if d.Action == spec.ActionChange && d.Reason == "" {
			changes++
		}
		if d.Action != "" {
			drift = append(drift, d)
		}
	}
	for k, d := range drift {
		if d.Action == spec.ActionChange && changes == 0 {
			drift[k].Action = spec.ActionRefuse // asked for already, and nothing changes that could help
		}
	}
	return drift
}

// target returns the wanted value of each feature of the kernel's, and the settings that want it.
func (n featureNIC) target(want []spec.Feature) (target map[string]bool, by map[string][]spec.Feature) {
	target, by = map[string]bool{}, map[string][]spec.Feature{}
	for name, s := range n.features {
		target[name] = s.Active || s.Changeable && s.Requested
	}
	for _, w := range want {
		for _, m := range members(w.Feature, n.features) {
			if n.features[m].Changeable {
				target[m] = w.On
				by[m] = append(by[m], w)
			}
		}
	}
	return target, by
}

// conflict says why w cannot come true, "" when it can. A group is on when one of
// its members is.
func (n featureNIC) conflict(w spec.Feature, target map[string]bool, by map[string][]spec.Feature) string {
	why := ""
	for _, m := range members(w.Feature, n.features) {
		if !n.features[m].Changeable {
			continue
		}
		if other := slices.IndexFunc(by[m], func(other spec.Feature) bool { return other.On != w.On }); other >= 0 {
			return by[m][other].Feature + " is to be " + onOff(!w.On) + ", which is the same feature of the kernel, " + m
		}
		if !w.On {
			continue
		}
		lacks := n.lacks(m, target)
		if lacks == "" {
			return ""
		}
		why = m + " needs " + lacks + ", which is off"
	}
	return why
}

// lacks names what keeps a feature off, "" when nothing does.
func (n featureNIC) lacks(name string, target map[string]bool) string {
	for _, need := range needs {
		if need.feature != name {
			continue
		}
		have := slices.DeleteFunc(slices.Clone(need.oneOf), func(m string) bool { _, ok := n.features[m]; return !ok })
		if len(have) > 0 && !slices.ContainsFunc(have, func(m string) bool { return target[m] }) {
			return strings.Join(have, " or ")
		}
	}
	return ""
}
