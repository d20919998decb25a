// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
)

// cutter is what can cut a node off of one kind of items: whoever gets it wrong there
// can neither log in nor publish something better.
type cutter struct {
	kind string
	of   func(*Items) map[string]any // by key
	drop func(*Items)                // takes the same out of the items
	copy func(to, from *Items)       // puts the same of others beside them
}

// cutters is the one table, a row for each kind that can. What cannot be put back, such
// as a script, and what only a boot reads, is not in it.
var cutters = []cutter{
	cuts("mounts", func(i *Items) *[]Mount { return &i.Mounts }, func(m Mount) (string, bool) {
		return m.Target, slices.Contains([]string{"/", "/var", "/var/lib"}, m.Target) || below(m.Target, "/etc", "/home", "/root", "/usr", "/var/lib/caisson")
	}),
	cuts("files", func(i *Items) *[]File { return &i.Files }, func(f File) (string, bool) {
		return f.Path, below(f.Path, "/etc/systemd/network", "/etc/NetworkManager", "/etc/network", "/etc/netplan", "/etc/ssh", "/etc/pam.d", "/etc/nftables.conf",
			"/etc/hosts", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/nsswitch.conf", "/etc/resolv.conf")
	}),
	cuts("sysctl", func(i *Items) *[]Sysctl { return &i.Sysctl }, func(s Sysctl) (string, bool) { return s.Key, below(s.Key, "net") }),
	cuts("sysfs", func(i *Items) *[]Sysfs { return &i.Sysfs }, func(s Sysfs) (string, bool) {
		return s.Path, strings.Contains(s.Path, "/net/") || below(s.Path, "/sys/bus/pci")
	}),
	cuts("ethtool", func(i *Items) *[]Feature { return &i.Ethtool }, func(f Feature) (string, bool) { return f.Interface + " " + f.Feature, true }),
	cuts("nics", func(i *Items) *[]NIC { return &i.NICs }, func(n NIC) (string, bool) { return n.ID, true }),
	cuts("units", func(i *Items) *[]Unit { return &i.Units }, func(u Unit) (string, bool) { return u.Name, true }),
}

func cuts[T any](kind string, list func(*Items) *[]T, can func(T) (key string, cuts bool)) cutter {
	return cutter{
		kind: kind,
		of: func(i *Items) map[string]any {
			found := map[string]any{}
			for _, v := range *list(i) {
				if key, ok := can(v); ok {
					found[key] = v
				}
			}
			return found
		},
		drop: func(i *Items) {
			*list(i) = slices.DeleteFunc(slices.Clone(*list(i)), func(v T) bool { _, ok := can(v); return ok })
		},
		copy: func(to, from *Items) {
			*list(to) = append(*list(to), slices.DeleteFunc(slices.Clone(*list(from)), func(v T) bool { _, ok := can(v); return !ok })...)
		},
	}
}

func below(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(path.Clean(name), dir+"/") })
}

// CutsOff returns what differs between two lists of items and can cut the node off, as
// "kind key", sorted.
func CutsOff(from, to *Items) []string {
	var list []string
	for _, c := range cutters {
		a, b := c.of(from), c.of(to)
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for key := range keys {
			if !reflect.DeepEqual(a[key], b[key]) {
				list = append(list, c.kind+" "+key)
			}
		}
	}
	slices.Sort(list)
	return list
}

// Harmless returns the items without what can cut the node off.
func (i Items) Harmless() Items {
	for _, c := range cutters {
		c.drop(&i)
	}
	return i
}

// Keeping returns the items with what can cut the node off as others have it.
func (i Items) Keeping(others Items) Items {
	i = i.Harmless()
	for _, c := range cutters {
		c.copy(&i, &others)
	}
	return i
}
