// SPDX-License-Identifier: Apache-2.0

// Package sysfs sets attributes of the kernel and its devices below /sys, see
// sysfs(5), and the affinity of interrupts below /proc/irq, and puts the
// originals back.
//
// A key is the path of a file, in any of the spellings that links in /sys allow.
// Links are followed inside /sys alone, and a file that they lead to has to be
// one that may be set, too. Of a list such as "always [madvise] never" the value
// is the word in brackets. Only bootagent/items imports it.
package sysfs

import (
	"path"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/tunable"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "sysfs"

// New returns the item for want; sys is /sys and proc is /proc.
func New(want []spec.Sysfs, sys, proc string, j item.Journal) *tunable.Item {
	settings := make([]tunable.Setting, 0, len(want))
	for _, w := range want {
		settings = append(settings, tunable.Setting{Key: w.Path, Value: w.Value, Optional: w.Optional, Invalid: rules.Sysfs(w)})
	}
	t := tree{sys: sys, proc: proc}
	return tunable.New(tunable.Kind{Name: Name, Files: t, Coupled: t.coupled, Same: same,
		Keep: func(items *spec.Items, key, value string) {
			items.Sysfs = append(items.Sysfs, spec.Sysfs{Path: key, Value: value})
		}}, settings, j)
}

// masks are the attributes whose values are sets of processors or queues, in
// hexadecimal words.
var masks = map[string]bool{"rps_cpus": true, "xps_cpus": true, "xps_rxqs": true, "smp_affinity": true, "default_smp_affinity": true, "cpumask": true}

// same reports whether two values of a file mean the same.
func same(key, a, b string) bool {
	if masks[path.Base(key)] {
		return mask(a) == mask(b)
	}
	return tunable.Same(a, b)
}

// mask brings a set to one spelling: lower case, no commas, no leading zeros.
func mask(s string) string {
	s = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(s), ",", ""))
	return strings.TrimLeft(strings.TrimPrefix(s, "0x"), "0")
}

// selected returns the word in brackets of a list of possible values, and any
// other text as it is.
func selected(text string) string {
	if strings.Count(text, "[") != 1 || strings.Contains(text, "\n") {
		return text
	}
	for word := range strings.FieldsSeq(text) {
		if inner, ok := strings.CutPrefix(word, "["); ok && strings.HasSuffix(inner, "]") {
			return strings.TrimSuffix(inner, "]")
		}
	}
	return text
}
