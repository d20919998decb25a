// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// nicMatchDoc has its own name in the schema.
type nicMatchDoc spec.NICMatch

type nicDoc struct {
	Match    nicMatchDoc           `site:"match" doc:"which interfaces are meant"`
	Ring     shape.Map[shape.Text] `site:"ring" doc:"lengths of ring buffers, as in ethtool -G"`
	Channels shape.Map[shape.Text] `site:"channels" doc:"numbers of queues, as in ethtool -L"`
	Coalesce shape.Map[shape.Text] `site:"coalesce" doc:"interrupt coalescing, as in ethtool -C"`
	Pause    shape.Map[shape.Text] `site:"pause" doc:"flow control, as in ethtool -A"`
	Link     shape.Map[shape.Text] `site:"link" doc:"speed, duplex and autoneg, as in ethtool -s"`
	Private  shape.Map[shape.Text] `site:"private" doc:"flags of the driver, as in ethtool --set-priv-flags"`
	Features shape.Map[shape.Text] `site:"features" doc:"offload features, as in ethtool -K; on or off"`
	V        *tree.Value
}

var nicsModule = Module{Name: "nics", Doc: reflect.TypeFor[shape.Raw[shape.Map[nicDoc]]](),
	About:  "rings, channels, coalescing, flow control, speed and features of interfaces",
	Normal: normalNICs, Compile: (*Checker).nics,
	Keys: func(i *spec.Items) (keys []string) {
		for _, n := range i.NICs {
			for _, s := range n.Settings {
				keys = append(keys, n.Match.Name+"/"+s.Group+"/"+s.Name)
			}
		}
		return keys
	},
	Lines: func(i *spec.Items) (out []Line) {
		for _, n := range i.NICs {
			words := []string{n.Match.String() + ":"}
			words = append(words, plain.Each(n.Settings, func(s spec.NICSetting) string { return s.Group + " " + s.Name + " " + s.Value })...)
			out = append(out, Line{n.ID, strings.Join(words, " ")})
		}
		return out
	},
}

// normalNICs gives features their long names, so that the spellings of one meet when
// maps are merged.
func normalNICs(c *shape.Checker, v *tree.Value) *tree.Value {
	return each(c, v, func(nic *tree.Value) *tree.Value {
		return c.Below(nic, spec.NICFeatures, func(features *tree.Value) *tree.Value { return c.Rename(features, FeatureName) })
	})
}

// each returns a map with what to makes of each of its values, in the field of that value.
func each(c *shape.Checker, v *tree.Value, to func(*tree.Value) *tree.Value) *tree.Value {
	if v.Kind != tree.Mapping {
		return v
	}
	out := *v
	out.Fields = slices.Clone(v.Fields)
	for i, f := range v.Fields {
		c.In(f.Key, func() { out.Fields[i].Val = to(f.Val) })
	}
	return &out
}

func (c *Checker) nics(v *tree.Value, f *Fragment) {
	shape.Entries(c.Checker, v, func(e shape.Entry[nicDoc]) {
		if e.Val.V == nil || !c.Valid(e.Key.At, rules.ID(e.Key.S)) {
			return
		}
		n := spec.NIC{ID: e.Key.S, Match: spec.NICMatch(e.Val.Match)}
		n.Match.MAC, n.Match.PCI = strings.ToLower(n.Match.MAC), strings.ToLower(n.Match.PCI)
		m := e.Val.V.Get("match")
		at := cmp.Or(c.At(m, "name"), c.At(m, "mac"), c.At(m, "driver"), c.At(m, "pci"), e.Key.At)
		if n.Match == (spec.NICMatch{}) {
			n.Match.Name = e.Key.S
		}
		c.Valid(at, rules.NICMatch(n.Match))
		for group, settings := range map[string]shape.Map[shape.Text]{"ring": e.Val.Ring, "channels": e.Val.Channels, "coalesce": e.Val.Coalesce,
			"pause": e.Val.Pause, "link": e.Val.Link, "private": e.Val.Private, spec.NICFeatures: e.Val.Features} {
			c.In(group, func() {
				n.Settings = append(n.Settings, c.nicSettings(group, settings)...)
			})
		}
		slices.SortFunc(n.Settings, func(a, b spec.NICSetting) int {
			return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
		})
		c.Refuse(len(n.Settings) == 0, e.Val.V.At, "required", "write ring, channels, coalesce, pause, link, private or features",
			"nothing is asked of the interface")
		f.Items.NICs = append(f.Items.NICs, n)
	})
	slices.SortFunc(f.Items.NICs, func(a, b spec.NIC) int { return strings.Compare(a.ID, b.ID) })
}

func (c *Checker) nicSettings(group string, settings shape.Map[shape.Text]) (out []spec.NICSetting) {
	for _, s := range settings {
		if s.Null {
			continue // said already
		}
		c.In(s.Key.S, func() {
			x := spec.NICSetting{Group: group, Name: s.Key.S, Value: s.Val.S}
			if on, ok := shape.FlagWord(x.Value); ok && rules.NICFlag(group, x.Name) {
				x.Value = map[bool]string{true: "on", false: "off"}[on]
			}
			c.ValidFields(s.Key.At, map[string]report.Pos{"value": s.Val.At}, rules.NICSetting(x))
			out = append(out, x)
		})
	}
	return out
}

var ethtoolModule = Module{Name: "ethtool", Doc: reflect.TypeFor[shape.Raw[shape.Map[shape.Map[shape.Flag]]]](),
	About: "offload features by interface",
	Normal: func(c *shape.Checker, v *tree.Value) *tree.Value {
		return each(c, v, func(features *tree.Value) *tree.Value { return c.Rename(features, FeatureName) })
	},
	Compile: (*Checker).ethtool,
	Flag:    func(path []string) bool { return len(path) == 2 },
	Lines: func(i *spec.Items) []Line {
		return plain.Each(i.Ethtool, func(f spec.Feature) Line {
			return Line{f.Interface + "/" + f.Feature, map[bool]string{true: "on", false: "off"}[f.On]}
		})
	},
}

// featureAliases are ethtool(8)'s short names, and the kernel's own, of features
// that -k prints under another. A group of several kernel features is left as it is.
var featureAliases = map[string]string{
	"rx": "rx-checksumming", "tx": "tx-checksumming", "sg": "scatter-gather", "tso": "tcp-segmentation-offload",
	"gso": "generic-segmentation-offload", "gro": "generic-receive-offload", "lro": "large-receive-offload",
	"ufo":    "udp-fragmentation-offload",
	"rxvlan": "rx-vlan-offload", "txvlan": "tx-vlan-offload", "ntuple": "ntuple-filters", "rxhash": "receive-hashing",
	"rx-checksum": "rx-checksumming", "rx-gro": "generic-receive-offload", "rx-lro": "large-receive-offload", "rx-hashing": "receive-hashing",
	"rx-vlan-hw-parse": "rx-vlan-offload", "tx-vlan-hw-insert": "tx-vlan-offload", "rx-ntuple-filter": "ntuple-filters",
	"tx-generic-segmentation": "generic-segmentation-offload", "tx-udp-fragmentation": "udp-fragmentation-offload",
}

// FeatureName expands the short name of a feature.
func FeatureName(name string) string { return cmp.Or(featureAliases[name], name) }

func (c *Checker) ethtool(v *tree.Value, f *Fragment) {
	shape.Entries(c.Checker, v, func(nic shape.Entry[shape.Map[shape.Text]]) {
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
	slices.SortFunc(f.Items.Ethtool, func(a, b spec.Feature) int {
		return cmp.Or(strings.Compare(a.Interface, b.Interface), strings.Compare(a.Feature, b.Feature))
	})
}
