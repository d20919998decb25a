// SPDX-License-Identifier: Apache-2.0

// Package module holds the parts of a configuration that have overrides of their
// own: Divingbell's nine and the machine settings. Each has a file of its name
// with the type that an author writes, the spelling its keys are brought to, and
// one function that checks a target's values and compiles them into literals.
//
// [All] is the table of them: a new kind is a file here with its row. The row owns
// the authored type, the override stanza, the switch, the compiler, the words of a
// plan and of an explanation; its items are a field of spec.Items, with a row in
// spec.Effects for what a change costs. A module knows neither nodes nor overrides;
// package override chooses and merges, and calls it with the result. The formats are
// those of sysctl.d(5), limits.conf(5), mount(8), ethtool(8), apt-get(8), chmod(1)
// and apparmor.d(5); docs/divingbell.md has a row for every key.
package module
