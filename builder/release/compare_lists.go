// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/spec"
)

// compareMaps lists the keys whose values differ, sorted.
func compareMaps(old, new map[string]string) []Change {
	changes := []Change{}
	names := maps.Clone(old)
	maps.Copy(names, new)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if old[name] != new[name] {
			changes = append(changes, Change{Name: name, From: old[name], To: new[name]})
		}
	}
	return changes
}

func packageMap(l spec.Layer) map[string]string {
	m := map[string]string{}
	for _, p := range l.Packages {
		m[p.Name] = p.Version
	}
	return m
}

func accountMap(l spec.Layer) map[string]string {
	m := map[string]string{}
	for _, acc := range l.Accounts {
		if acc.UID < 0 { // a group, which may have a user's name
			m["group "+acc.Name] = fmt.Sprintf("%d %s", acc.GID, acc.State)
			continue
		}
		m[acc.Name] = fmt.Sprintf("%d %s", acc.UID, acc.State)
	}
	return m
}

func profileMap(l spec.Layer) map[string]string {
	m := map[string]string{}
	for _, p := range l.AppArmor.Profiles {
		m[p.Name] = p.Mode
	}
	return m
}
