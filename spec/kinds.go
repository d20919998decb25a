// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"path"
	"slices"
	"strings"
)

// kind holds the facts on a kind of items that both halves share.
type kind struct {
	name   string // its key in Items
	class  string // of a change
	why    string
	of     func(*Items) any
	cutter // zero where it cannot cut a node off

	when     When                     // its settings are there at a boot
	early    func(to, from *Items)    // of WhenEarly: copies those that need neither the network nor another unit
	policies []Policy                 // that a setting may have, the usual one first; nil where it cannot be read back
	paths    bool                     // a setting is known by its path
	lasts    bool                     // what it changes can outlive a root: it is on the disk
	programs func(*Items) int         // how many settings have a minute each for programs that it runs; nil: it runs none
	secrets  func(*Items, needSecret) // those that its settings need; nil: none does
}

// needSecret is called with the key of a setting and the secrets that it needs.
type needSecret func(key string, names []string)

// EnforceOrReport are the policies of settings that no kernel protects.
var EnforceOrReport = []Policy{PolicyEnforce, PolicyReport}

// protected are those of what the kernel protects: its own parameters alone.
var protected = append(slices.Clone(EnforceOrReport), PolicyProtect)

// kinds is the one table of kinds: their effects, their policies, what can cut a node off and
// all else that depends on the kind follow from it. What cannot be put back, such as a script,
// and what only a boot reads cuts nothing off. What an author writes of a kind is a row of
// module.All, what a node does one of items.Table.
var kinds = []kind{
	{name: "mounts", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Mount { return &i.Mounts }, laterMount), why: "it is mounted at once", of: func(i *Items) any { return i.Mounts }, policies: EnforceOrReport, paths: true,
		programs: func(i *Items) int { return len(i.Mounts) },
		cutter: cuts(func(i *Items) *[]Mount { return &i.Mounts }, func(m Mount) (string, bool) {
			return m.Target, slices.Contains([]string{"/", "/var", "/var/lib"}, m.Target) || below(m.Target, "/etc", "/home", "/root", "/usr", "/var/lib/caisson")
		})},
	{name: "swaps", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Swap { return &i.Swaps }, nil), why: "swap space is used at once", of: func(i *Items) any { return i.Swaps }, policies: EnforceOrReport,
		programs: func(i *Items) int { return len(i.Swaps) }},
	{name: "limits", class: ClassLive, when: WhenAgent, why: "new sessions have the new limits", of: func(i *Items) any { return i.Limits }, policies: EnforceOrReport},
	{name: "sysctl", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Sysctl { return &i.Sysctl }, laterSysctl), why: "kernel parameters are set at once", of: func(i *Items) any { return i.Sysctl }, policies: protected,
		cutter: cuts(func(i *Items) *[]Sysctl { return &i.Sysctl }, func(s Sysctl) (string, bool) { return s.Key, below(s.Key, "net") })},
	{name: "ethtool", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Feature { return &i.Ethtool }, nil), why: "features are set at once", of: func(i *Items) any { return i.Ethtool }, policies: EnforceOrReport,
		cutter: cuts(func(i *Items) *[]Feature { return &i.Ethtool }, func(f Feature) (string, bool) { return f.Interface + " " + f.Feature, true })},
	{name: "perm", class: ClassLive, when: WhenAgent, why: "owners and modes are set at once", of: func(i *Items) any { return i.Perm }, policies: EnforceOrReport, paths: true, lasts: true},
	{name: "exec", class: ClassLive, when: WhenAgent, why: "scripts run in the next pass", of: func(i *Items) any { return i.Exec }, lasts: true,
		secrets: func(i *Items, need needSecret) {
			for _, x := range i.Exec {
				need(x.Name, x.SecretNames())
			}
		}},
	{name: "files", class: ClassLive, when: WhenLoader, why: "files are written at once", of: func(i *Items) any { return i.Files }, policies: EnforceOrReport, paths: true,
		cutter: cuts(func(i *Items) *[]File { return &i.Files }, func(f File) (string, bool) {
			return f.Path, below(f.Path, "/etc/systemd", "/etc/NetworkManager", "/etc/network", "/etc/netplan", "/etc/ssh", "/etc/pam.d",
				"/etc/nftables.conf", "/etc/nftables.d", "/etc/iptables", "/etc/firewalld", "/etc/ufw", "/etc/udev", "/etc/modprobe.d", "/etc/modules", "/etc/modules-load.d",
				"/etc/sysctl.conf", "/etc/sysctl.d", "/etc/hosts", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/nsswitch.conf", "/etc/resolv.conf")
		}).atStart(),
		secrets: func(i *Items, need needSecret) {
			for _, f := range i.Files {
				need(f.Path, f.SecretNames())
			}
		}},
	{name: "modules", class: ClassLive, when: WhenLoader, why: "modules are loaded at once; parameters that are read once wait for a reboot", of: func(i *Items) any { return i.Modules }, policies: EnforceOrReport,
		cutter: cutter{
			can: func(i *Items) map[string]any {
				if i.Modules == nil {
					return nil
				}
				return map[string]any{"": *i.Modules}
			},
			drop: func(i *Items) { i.Modules = nil },
			copy: func(to, from *Items) { to.Modules = from.Modules },
		}.atStart()},
	{name: "nics", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]NIC { return &i.NICs }, nil), why: "settings of interfaces are set at once; a driver may take its link down for it", of: func(i *Items) any { return i.NICs }, policies: EnforceOrReport,
		cutter: cuts(func(i *Items) *[]NIC { return &i.NICs }, func(n NIC) (string, bool) { return n.ID, true })},
	{name: "units", class: ClassService, when: WhenLoader, why: "units are started, stopped and restarted as they ask for", of: func(i *Items) any { return i.Units }, policies: EnforceOrReport,
		programs: func(i *Items) int { return len(i.Units) },
		cutter:   cuts(func(i *Items) *[]Unit { return &i.Units }, func(u Unit) (string, bool) { return u.Name, true }).atStart(),
		secrets: func(i *Items, need needSecret) {
			for _, u := range i.Units {
				need(u.Name, u.SecretNames())
			}
		}},
	{name: "sysfs", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Sysfs { return &i.Sysfs }, nil), why: "attributes are set at once", of: func(i *Items) any { return i.Sysfs }, policies: EnforceOrReport, paths: true,
		cutter: cuts(func(i *Items) *[]Sysfs { return &i.Sysfs }, func(s Sysfs) (string, bool) {
			return s.Path, strings.Contains(s.Path, "/net/") || below(s.Path, "/sys/bus/pci")
		})},
	{name: "passwords", class: ClassLive, when: WhenLoader, why: "the next login asks for the new password", of: func(i *Items) any { return i.Passwords }, policies: EnforceOrReport,
		secrets: func(i *Items, need needSecret) {
			for _, p := range i.Passwords {
				need(p.User, []string{p.Secret})
			}
		}},
}

// kindOf returns the row of a kind, the zero one where there is none.
func kindOf(name string) kind {
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name }); i >= 0 {
		return kinds[i]
	}
	return kind{}
}

// Policies are those that settings of a kind may have; nil where they have none, since they
// cannot be read back: a script runs when it is due.
func Policies(kind string) []Policy { return kindOf(kind).policies }

// KeyIsPath reports whether the settings of a kind are known by their paths.
func KeyIsPath(kind string) bool { return kindOf(kind).paths }

// OutlivesRoot reports whether what a kind changes can be there when its root is gone.
func OutlivesRoot(kind string) bool { return kindOf(kind).lasts }

// Programs returns how many of the items run programs that may take up to a minute.
func (i *Items) Programs() (n int) {
	for _, k := range kinds {
		if k.programs != nil {
			n += k.programs(i)
		}
	}
	return n
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
