// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

var ethtoolModule = Module{Name: "ethtool", Doc: reflect.TypeFor[shape.Raw[shape.Map[shape.Map[shape.Flag]]]](), About: "offload features by interface",
	Normal: normalEthtool, Compile: (*Checker).ethtool,
	Flag: func(path []string) bool { return len(path) == 2 },
	Lines: func(i *spec.Items) (out []Line) {
		for _, f := range i.Ethtool {
			out = append(out, Line{f.Interface + "/" + f.Feature, map[bool]string{true: "on", false: "off"}[f.On]})
		}
		return out
	},
}

// featureAliases are ethtool(8)'s short names, and the kernel's own, of features
// that -k prints under another. A group of several kernel features is left as it is.
var featureAliases = map[string]string{
	"rx": "rx-checksumming", "tx": "tx-checksumming", "sg": "scatter-gather", "tso": "tcp-segmentation-offload",
	"gso": "generic-segmentation-offload", "gro": "generic-receive-offload", "lro": "large-receive-offload", "ufo": "udp-fragmentation-offload",
	"rxvlan": "rx-vlan-offload", "txvlan": "tx-vlan-offload", "ntuple": "ntuple-filters", "rxhash": "receive-hashing",
	"rx-checksum": "rx-checksumming", "rx-gro": "generic-receive-offload", "rx-lro": "large-receive-offload", "rx-hashing": "receive-hashing",
	"rx-vlan-hw-parse": "rx-vlan-offload", "tx-vlan-hw-insert": "tx-vlan-offload", "rx-ntuple-filter": "ntuple-filters",
	"tx-generic-segmentation": "generic-segmentation-offload", "tx-udp-fragmentation": "udp-fragmentation-offload",
}

// FeatureName expands the short name of a feature.
func FeatureName(name string) string {
	if full := featureAliases[name]; full != "" {
		return full
	}
	return name
}

func normalEthtool(c *shape.Checker, v *tree.Value) *tree.Value {
	if v.Kind != tree.Mapping {
		return v
	}
	out := *v
	out.Fields = slices.Clone(v.Fields)
	for i, f := range out.Fields {
		c.In(f.Key, func() {
			out.Fields[i].Val = c.Rename(f.Val, FeatureName)
		})
	}
	return &out
}

func (c *Checker) ethtool(v *tree.Value, f *Fragment) {
	var d shape.Map[shape.Map[shape.Text]]
	c.Decode(v, &d)
	for _, nic := range d {
		c.In(nic.Key.S, func() {
			c.Valid(nic.Key.At, rules.Interface(nic.Key.S))
			for _, e := range nic.Val {
				if e.Null {
					continue // said already
				}
				c.In(e.Key.S, func() {
					on, ok := shape.FlagWord(e.Val.S)
					if !ok {
						hint := "a feature is on or off"
						if strings.Trim(e.Val.S, "0123456789") == "" {
							hint = "lengths of rings, numbers of queues and coalescing are conf.nics, as in nics: {" + nic.Key.S + ": {ring: {rx: 4096}}}"
						}
						c.Errorf(cmp.Or(e.Val.At, e.Key.At), "enum", hint, "Expected 'on' or 'off', got '%s'", e.Val.S)
					}
					c.Valid(e.Key.At, rules.Feature(e.Key.S))
					f.Items.Ethtool = append(f.Items.Ethtool, spec.Feature{Interface: nic.Key.S, Feature: e.Key.S, On: on})
				})
			}
		})
	}
	slices.SortFunc(f.Items.Ethtool, func(a, b spec.Feature) int {
		return cmp.Or(strings.Compare(a.Interface, b.Interface), strings.Compare(a.Feature, b.Feature))
	})
}
