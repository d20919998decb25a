// SPDX-License-Identifier: Apache-2.0

// Offload features of network interfaces are turned on and off as ethtool(8) -K does it, and the
// originals put back.
//
// The kernel's feature bits are known by exact name; there is no text to
// parse and no unit to write. What cannot come true beside what else is wanted, or
// is, is refused before anything is switched. Switching one feature may switch
// others: what changed in passing is remembered too and comes back with it.

package nics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// FeaturesName is the kind.
const FeaturesName = "ethtool"

// FeatureState is one feature of an interface.
type FeatureState struct {
	Changeable bool // the driver lets it be switched
	Requested  bool // what was last asked for
	Active     bool // what is
}

// FeatureDevice is the kernel's view of interfaces.
type FeatureDevice interface {
	// Index identifies the interface; one that was deleted and made again has
	// another. An interface that is missing is ErrMissing.
	Index(name string) (int, error)
	// Called is the name that the interface has by now, "" where it is gone.
	Called(index int) string
	Features(name string) (map[string]FeatureState, error)
	// Change asks for features; the kernel may do more or less than asked.
	Change(name string, want map[string]bool) error
}

// ErrMissing is a Device's answer for an interface that is not there.
var ErrMissing = netif.ErrMissing

// Features switches the wanted features.
type Features struct {
	want    []spec.Feature
	absent  map[string]bool // interfaces that are named by what would find them
	device  FeatureDevice
	journal item.Journal
}

// NewFeatures returns the item for want, and for the features among settings of interfaces
// that are found by more than their name; sys is /sys, device is NewKernel().
func NewFeatures(want []spec.Feature, nics []spec.NIC, sys string, device FeatureDevice, j item.Journal) *Features {
	i := &Features{want: slices.Clone(want), absent: map[string]bool{}, device: device, journal: j}
	for _, n := range nics {
		if !slices.ContainsFunc(n.Settings, func(s spec.NICSetting) bool { return s.Group == spec.NICFeatures }) {
			continue
		}
		names := netif.Find(sys, n.Match)
		if len(names) == 0 {
			names = []string{n.Match.String()}
			i.absent[names[0]] = true
		}
		for _, name := range names {
			for _, s := range n.Settings {
				if s.Group == spec.NICFeatures {
					i.want = append(i.want, spec.Feature{Interface: name, Feature: s.Name, On: s.Value == "on"})
				}
			}
		}
	}
	slices.SortStableFunc(i.want, func(a, b spec.Feature) int {
		return strings.Compare(featureKey(a.Interface, a.Feature), featureKey(b.Interface, b.Feature))
	})
	i.want = slices.Compact(i.want) // two entries may mean one interface
	return i
}

// Name implements item.Item.
func (*Features) Name() string { return FeaturesName }

// Wanted implements item.Item.
func (i *Features) Wanted() int { return len(i.want) }

func featureKey(iface, feature string) string { return iface + "/" + feature }

func splitFeature(key string) (iface, feature string) {
	iface, feature, _ = strings.Cut(key, "/") // an interface's name holds no slash
	return iface, feature
}

// featurePrior is a kernel feature as it was on the interface with that index.
type featurePrior struct {
	Index     int  `json:"index"`
	Requested bool `json:"requested"`
	Active    bool `json:"active"`
}

// Check implements item.Item.
func (i *Features) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	wanted := map[string]bool{}  // kernel features that a wanted one covers
	managed := map[string]bool{} // interfaces with such a feature
	nics := map[string]featureNIC{}
	byIface := map[string][]spec.Feature{}
	for _, w := range i.want {
		byIface[w.Interface] = append(byIface[w.Interface], w)
	}
	for _, iface := range sorted(byIface) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := i.look(iface)
		nics[iface], managed[iface] = n, true
		for _, w := range byIface[iface] {
			for _, m := range members(w.Feature, n.features) {
				wanted[featureKey(iface, m)] = true
			}
		}
		drift = append(drift, n.due(byIface[iface])...)
	}
	for _, e := range i.journal.Entries(FeaturesName) {
		iface, feature := splitFeature(e.Key)
		p := item.Was[featurePrior](e)
		moved := managed[iface] && nics[iface].err == nil && nics[iface].index != p.Index && i.device.Called(p.Index) != ""
		if !moved && (wanted[e.Key] || managed[iface] && (e.Applied == nil || nics[iface].err != nil)) {
			continue // a side effect stays while what may cause it does
		}
		d := spec.Drift{Item: FeaturesName, Key: e.Key, Action: spec.ActionRemove}
		iface = cmp.Or(i.device.Called(p.Index), iface)
		n, looked := nics[iface]
		if !looked {
			n = i.look(iface)
			nics[iface] = n
		}
		if now, ok := n.features[feature]; ok && n.index == p.Index { // else it went, and what was set with it
			d.From, d.To = onOff(now.Active), onOff(p.Active)
		}
		drift = append(drift, d)
	}
	return drift, nil
}

// featureNIC is an interface as it was looked at.
type featureNIC struct {
	index    int
	features map[string]FeatureState
	err      error
}

func (i *Features) look(name string) featureNIC {
	if i.absent[name] {
		return featureNIC{err: ErrMissing}
	}
	if err := rules.Interface(name); err != nil {
		return featureNIC{err: err}
	}
	index, err := i.device.Index(name)
	if err != nil {
		return featureNIC{err: err}
	}
	features, err := i.device.Features(name)
	return featureNIC{index, features, err}
}

// compare says what is to be done for w; no action when it is as wanted. Some of
// its words are Divingbell's, because pipelines search for them.
func (n featureNIC) compare(w spec.Feature) spec.Drift {
	d := spec.Drift{Item: FeaturesName, Key: featureKey(w.Interface, w.Feature), To: onOff(w.On)}
	because := func(action, format string, args ...any) spec.Drift {
		d.Action, d.Reason = action, fmt.Sprintf(format, args...)
		return d
	}
	if errors.Is(n.err, ErrMissing) {
		return because(spec.ActionDefer, "there is no interface %s yet", w.Interface)
	}
	if n.err != nil {
		return because(spec.ActionRefuse, "the features of %s cannot be read: %v", w.Interface, n.err)
	}
	names := members(w.Feature, n.features)
	if len(names) == 0 {
		return because(spec.ActionRefuse, "Could not find requested param %s for %s", w.Feature, w.Interface)
	}
	active, asked, changeable := false, true, false
	for _, name := range names {
		s := n.features[name]
		active = active || s.Active
		changeable = changeable || s.Changeable
		asked = asked && (!s.Changeable || s.Requested == w.On)
	}
	if d.From = onOff(active); active == w.On {
		return spec.Drift{}
	}
	if !changeable {
		return because(spec.ActionRefuse, "'%s' does not permit changing the '%s' setting", w.Interface, w.Feature)
	}
	d.Action = spec.ActionChange
	if asked {
		d.Reason = fmt.Sprintf(conflict+"it was asked for and the kernel keeps it %s", d.From)
	}
	return d
}

// conflict begins what is said of features that do not go together.
const conflict = "There is a conflict between settings chosen for this device: "

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
