// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"path"
	"slices"
	"strings"
)

// kind is what both halves know of a kind of items.
type kind struct {
	name   string // its key in Items
	class  string // of a change
	why    string
	of     func(*Items) any
	cutter // zero where it cannot cut a node off
}

// kinds is the one table of kinds: their effects and what can cut a node off follow from
// it. What cannot be put back, such as a script, and what only a boot reads
// cuts nothing off. What an author writes of a kind is a row of module.All, what a node
// does one of items.Table.
var kinds = []kind{
	{"mounts", ClassLive, "it is mounted at once", func(i *Items) any { return i.Mounts },
		cuts(func(i *Items) *[]Mount { return &i.Mounts }, func(m Mount) (string, bool) {
			return m.Target, slices.Contains([]string{"/", "/var", "/var/lib"}, m.Target) || below(m.Target, "/etc", "/home", "/root", "/usr", "/var/lib/caisson")
		})},
	{"swaps", ClassLive, "swap space is used at once", func(i *Items) any { return i.Swaps }, cutter{}},
	{"limits", ClassLive, "new sessions have the new limits", func(i *Items) any { return i.Limits }, cutter{}},
	{"sysctl", ClassLive, "kernel parameters are set at once", func(i *Items) any { return i.Sysctl },
		cuts(func(i *Items) *[]Sysctl { return &i.Sysctl }, func(s Sysctl) (string, bool) { return s.Key, below(s.Key, "net") })},
	{"ethtool", ClassLive, "features are set at once", func(i *Items) any { return i.Ethtool },
		cuts(func(i *Items) *[]Feature { return &i.Ethtool }, func(f Feature) (string, bool) { return f.Interface + " " + f.Feature, true })},
	{"perm", ClassLive, "owners and modes are set at once", func(i *Items) any { return i.Perm }, cutter{}},
	{"exec", ClassLive, "scripts run in the next pass", func(i *Items) any { return i.Exec }, cutter{}},
	{"files", ClassLive, "files are written at once", func(i *Items) any { return i.Files },
		cuts(func(i *Items) *[]File { return &i.Files }, func(f File) (string, bool) {
			return f.Path, below(f.Path, "/etc/systemd/network", "/etc/NetworkManager", "/etc/network", "/etc/netplan", "/etc/ssh", "/etc/pam.d", "/etc/nftables.conf",
				"/etc/hosts", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/nsswitch.conf", "/etc/resolv.conf")
		})},
	{"modules", ClassLive, "modules are loaded at once; parameters that are read once wait for a reboot", func(i *Items) any { return i.Modules }, cutter{}},
	{"nics", ClassLive, "settings of interfaces are set at once; a driver may take its link down for it", func(i *Items) any { return i.NICs },
		cuts(func(i *Items) *[]NIC { return &i.NICs }, func(n NIC) (string, bool) { return n.ID, true })},
	{"units", ClassService, "units are started, stopped and restarted as they ask for", func(i *Items) any { return i.Units },
		cuts(func(i *Items) *[]Unit { return &i.Units }, func(u Unit) (string, bool) { return u.Name, true })},
	{"sysfs", ClassLive, "attributes are set at once", func(i *Items) any { return i.Sysfs },
		cuts(func(i *Items) *[]Sysfs { return &i.Sysfs }, func(s Sysfs) (string, bool) {
			return s.Path, strings.Contains(s.Path, "/net/") || below(s.Path, "/sys/bus/pci")
		})},
	{"passwords", ClassLive, "the next login asks for the new password", func(i *Items) any { return i.Passwords }, cutter{}},
}

// withKinds adds the effects of kinds to those of other parts.
func withKinds(parts []Effect) []Effect {
	for _, k := range kinds {
		parts = append(parts, Effect{"items." + k.name, k.class, k.why, func(o *Overlay) any { return k.of(&o.Items) }})
	}
	return parts
}

func below(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(path.Clean(name), dir+"/") })
}
