// SPDX-License-Identifier: Apache-2.0

// Package nics sets what network interfaces have beside their features: lengths of
// rings, numbers of channels, coalescing, flow control, speed and private flags of
// the driver, as ethtool(8) -G, -L, -C, -A, -s and --set-priv-flags do, and puts the
// originals back.
//
// Interfaces are found by name, address, driver or place on the PCI bus, at each
// look: one that comes later is set then. A value above what the driver says it can
// do is refused before anything is written. Only bootagent/items imports it.
package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/nicmatch"
	"github.com/caisson-os/caisson/bootagent/items/item/tunable"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "nics"

// New returns the item for want; sys is /sys.
func New(want []spec.NIC, sys string, j item.Journal) *tunable.Item {
	var settings []tunable.Setting
	for _, n := range want {
		names := nicmatch.Find(sys, n.Match)
		if len(names) == 0 {
			names = []string{n.Match.String()} // which no interface is called
		}
		for _, name := range names {
			for _, s := range n.Settings {
				if s.Group == spec.NICFeatures {
					continue // kind ethtool's
				}
				settings = add(settings, tunable.Setting{Key: name + "/" + s.Group + "/" + s.Name, Value: s.Value, Invalid: rules.NIC(n)})
			}
		}
	}
	return tunable.New(tunable.Kind{Name: Name, Files: kernel{}, Same: same, Refuse: above, Keep: keep,
		Coupled: func(key string) []string { return kernel{}.beside(key) }}, settings, j)
}

// keep adds an interface with one setting.
func keep(items *spec.Items, key, value string) {
	parts := strings.SplitN(key, "/", 3) // interface, group and name
	items.NICs = append(items.NICs, spec.NIC{ID: key, Match: spec.NICMatch{Name: parts[0]}, Settings: []spec.NICSetting{{Group: parts[1], Name: parts[2], Value: value}}})
}

// add adds a setting, unless another entry means the same interface: then it is the
// first one, which is refused when they differ.
func add(settings []tunable.Setting, s tunable.Setting) []tunable.Setting {
	at := slices.IndexFunc(settings, func(other tunable.Setting) bool { return other.Key == s.Key })
	if at < 0 {
		return append(settings, s)
	}
	if !same(s.Key, settings[at].Value, s.Value) {
		settings[at].Invalid = errors.Join(settings[at].Invalid, fmt.Errorf("two entries mean this interface: %s and %s", settings[at].Value, s.Value))
	}
	return settings
}

// same reports whether two values mean the same.
func same(_, a, b string) bool {
	return strings.EqualFold(a, b) || tunable.Same(a, b)
}

// above says that the driver cannot do as much as value, where it says how much.
func above(key, value string) error {
	most, ok := kernel{}.most(key)
	n, err := number(value)
	if !ok || err != nil || n <= most {
		return nil
	}
	return fmt.Errorf("the driver takes at most %d", most)
}
