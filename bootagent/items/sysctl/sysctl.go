// SPDX-License-Identifier: Apache-2.0

// Package sysctl sets kernel parameters below /proc/sys, as sysctl.d(5) does,
// and puts the originals back.
//
// It reads and writes the files itself: no sysctl(8), no files in /etc/sysctl.d,
// so no other owner's file is applied by accident. A key is the path below
// /proc/sys. Values are compared field by field, because the kernel separates
// with tabs what people separate with blanks. Only bootagent/items imports it.
package sysctl

import (
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/tunable"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "sysctl"

// New returns the item for want; root is /proc/sys.
func New(want []spec.Sysctl, root string, j item.Journal) *tunable.Item {
	settings := make([]tunable.Setting, 0, len(want))
	for _, w := range want {
		settings = append(settings, tunable.Setting{Key: w.Key, Value: w.Value, Optional: w.Optional, Invalid: rules.Sysctl(w)})
	}
	t := newTree(root)
	kind := tunable.Kind{Name: Name, Files: t, Coupled: t.coupled, Done: t.done,
		Stays: rules.OneWay,
		Same:  func(_, a, b string) bool { return tunable.Same(a, b) },
		Keep: func(items *spec.Items, key, value string) {
			items.Sysctl = append(items.Sysctl, spec.Sysctl{Key: key, Value: value})
		}}
	return tunable.New(kind, settings, j)
}
