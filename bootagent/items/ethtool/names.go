// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"path"
	"slices"
)

// groups are the names that ethtool(8) prints and takes for kernel features of a
// pattern; on means that at least one of them is on. It matches patterns, too:
// newer kernels have members that older ones lack.
var groups = map[string]string{
	"rx-checksumming":              "rx-checksum",
	"tx-checksumming":              "tx-checksum-*",
	"scatter-gather":               "tx-scatter-gather*",
	"tcp-segmentation-offload":     "tx-tcp*-segmentation",
	"udp-fragmentation-offload":    "tx-udp-fragmentation",
	"generic-segmentation-offload": "tx-generic-segmentation",
	"generic-receive-offload":      "rx-gro",
	"large-receive-offload":        "rx-lro",
	"rx-vlan-offload":              "rx-vlan-hw-parse",
	"tx-vlan-offload":              "tx-vlan-hw-insert",
	"ntuple-filters":               "rx-ntuple-filter",
	"receive-hashing":              "rx-hashing",
}

// aliases are ethtool's short names.
var aliases = map[string]string{
	"rx":     "rx-checksumming",
	"tx":     "tx-checksumming",
	"sg":     "scatter-gather",
	"tso":    "tcp-segmentation-offload",
	"ufo":    "udp-fragmentation-offload",
	"gso":    "generic-segmentation-offload",
	"gro":    "generic-receive-offload",
	"lro":    "large-receive-offload",
	"rxvlan": "rx-vlan-offload",
	"txvlan": "tx-vlan-offload",
	"ntuple": "ntuple-filters",
	"rxhash": "receive-hashing",
}

// members are the kernel features of features that a name means. Names are
// exact: a part of a name means nothing.
func members(name string, features map[string]State) []string {
	if _, ok := features[name]; ok {
		return []string{name}
	}
	if long, ok := aliases[name]; ok {
		name = long
	}
	pattern, ok := groups[name]
	if !ok {
		return nil
	}
	var found []string
	for m := range features {
		if ok, err := path.Match(pattern, m); err == nil && ok {
			found = append(found, m)
		}
	}
	slices.Sort(found)
	return found
}
