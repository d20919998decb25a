// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"path"
	"reflect"
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
	{name: "mounts", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Mount { return &i.Mounts },
		laterMount), why: "it is mounted at once", of: func(i *Items) any { return i.Mounts }, policies: EnforceOrReport, paths: true,
		programs: func(i *Items) int { return len(i.Mounts) },
		cutter: cuts(func(i *Items) *[]Mount { return &i.Mounts }, func(m Mount) (string, bool) {
			return m.Target, slices.Contains([]string{"/", "/var", "/var/lib"}, m.Target) ||
				below(m.Target, "/etc", "/home", "/root", "/usr", "/var/lib/caisson")
		})},
	{name: "swaps", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Swap { return &i.Swaps }, nil),
		why: "swap space is used at once", of: func(i *Items) any { return i.Swaps }, policies: EnforceOrReport,
		programs: func(i *Items) int { return len(i.Swaps) }},
	{name: "limits", class: ClassLive, when: WhenAgent, why: "new sessions have the new limits",
		of: func(i *Items) any { return i.Limits }, policies: EnforceOrReport},
	{name: "sysctl", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Sysctl { return &i.Sysctl },
		laterSysctl), why: "kernel parameters are set at once", of: func(i *Items) any { return i.Sysctl }, policies: protected,
		cutter: cuts(func(i *Items) *[]Sysctl { return &i.Sysctl }, func(s Sysctl) (string, bool) { return s.Key, below(s.Key, "net") })},
	{name: "ethtool", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Feature { return &i.Ethtool },
		nil), why: "features are set at once", of: func(i *Items) any { return i.Ethtool }, policies: EnforceOrReport,
		cutter: cuts(func(i *Items) *[]Feature { return &i.Ethtool },
			func(f Feature) (string, bool) { return f.Interface + " " + f.Feature, true })},
	{name: "perm", class: ClassLive, when: WhenAgent, why: "owners and modes are set at once",
		of: func(i *Items) any { return i.Perm }, policies: EnforceOrReport, paths: true, lasts: true},
	{name: "exec", class: ClassLive, when: WhenAgent, why: "scripts run in the next pass",
		of: func(i *Items) any { return i.Exec }, lasts: true,
		secrets: func(i *Items, need needSecret) {
			for _, x := range i.Exec {
				need(x.Name, x.SecretNames())
			}
		}},
	{name: "files", class: ClassLive, when: WhenLoader, why: "files are written at once",
		of: func(i *Items) any { return i.Files }, policies: EnforceOrReport, paths: true,
		cutter: cuts(func(i *Items) *[]File { return &i.Files }, func(f File) (string, bool) {
			return f.Path, below(f.Path, "/etc/systemd", "/etc/NetworkManager", "/etc/network", "/etc/netplan", "/etc/ssh", "/etc/pam.d",
				"/etc/nftables.conf", "/etc/nftables.d", "/etc/iptables", "/etc/firewalld", "/etc/ufw", "/etc/udev",
				"/etc/modprobe.d", "/etc/modules", "/etc/modules-load.d",
				"/etc/sysctl.conf", "/etc/sysctl.d", "/etc/hosts", "/etc/hosts.allow", "/etc/hosts.deny", "/etc/nsswitch.conf", "/etc/resolv.conf")
		}).atStart(),
		secrets: func(i *Items, need needSecret) {
			for _, f := range i.Files {
				need(f.Path, f.SecretNames())
			}
		}},
	{name: "modules", class: ClassLive, when: WhenLoader,
		why: "modules are loaded at once; parameters that are read once wait for a reboot",
		of:  func(i *Items) any { return i.Modules }, policies: EnforceOrReport,
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
	{name: "nics", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]NIC { return &i.NICs }, nil),
		why: "settings of interfaces are set at once; a driver may take its link down for it",
		of:  func(i *Items) any { return i.NICs }, policies: EnforceOrReport,
		cutter: cuts(func(i *Items) *[]NIC { return &i.NICs }, func(n NIC) (string, bool) { return n.ID, true })},
	{name: "units", class: ClassService, when: WhenLoader,
		why: "units are started, stopped and restarted as they ask for", of: func(i *Items) any { return i.Units }, policies: EnforceOrReport,
		programs: func(i *Items) int { return len(i.Units) },
		cutter:   cuts(func(i *Items) *[]Unit { return &i.Units }, func(u Unit) (string, bool) { return u.Name, true }).atStart(),
		secrets: func(i *Items, need needSecret) {
			for _, u := range i.Units {
				need(u.Name, u.SecretNames())
			}
		}},
	{name: "sysfs", class: ClassLive, when: WhenEarly, early: earlyOf(func(i *Items) *[]Sysfs { return &i.Sysfs }, nil),
		why: "attributes are set at once", of: func(i *Items) any { return i.Sysfs }, policies: EnforceOrReport, paths: true,
		cutter: cuts(func(i *Items) *[]Sysfs { return &i.Sysfs }, func(s Sysfs) (string, bool) {
			return s.Path, strings.Contains(s.Path, "/net/") || below(s.Path, "/sys/bus/pci")
		})},
	{name: "passwords", class: ClassLive, when: WhenLoader, why: "the next login asks for the new password",
		of: func(i *Items) any { return i.Passwords }, policies: EnforceOrReport,
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

// When says before what the settings of a kind are there at a boot. docs/order.md shows the
// whole order.
type When string

// Moments, the first one first.
const (
	WhenLoader When = "loader" // before PID 1 starts
	WhenEarly  When = "early"  // before local-fs.target, network-pre.target and sysinit.target, see bootagent/node/cycle
	WhenRemote When = "remote" // before remote-fs.target, where the network is up
	WhenAgent  When = "agent"  // when the agent's service has started
)

// Kind is a kind of items as pages show it.
type Kind struct {
	Name string
	When When
}

// Kinds lists the kinds of items, sorted by name.
func Kinds() (list []Kind) {
	for _, k := range kinds {
		list = append(list, Kind{k.name, k.when})
	}
	slices.SortFunc(list, func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Later is a setting of a kind of WhenEarly that is there at a later moment.
type Later struct {
	Kind, What string
	When       When
	Why        string
	mount      func(Mount) bool
	key        string // of sysctl
}

// Laters lists them.
var Laters = []Later{
	{Kind: "mounts", What: "types nfs, nfs4, cifs, smb3, ceph, glusterfs, lustre and afs, and option `_netdev`",
		When: WhenRemote, Why: "they need the network",
		mount: func(m Mount) bool {
			return slices.Contains(NetworkTypes, m.Type) || slices.Contains(m.Options, "_netdev")
		}},
	{Kind: "mounts", What: "types `fuse` and `fuse.*`", When: WhenAgent, Why: "their programs may need the network and other services",
		mount: func(m Mount) bool { return m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse.") }},
	{Kind: "mounts", What: "those with `after`",
		When: WhenRemote, Why: "the units that they name start later; the agent's where those start after `remote-fs.target`",
		mount: func(m Mount) bool { return len(m.After) > 0 }},
	{Kind: "sysctl", What: "`kernel.modules_disabled`", When: WhenAgent, Why: "udev still loads drivers", key: "kernel/modules_disabled"},
}

// NetworkTypes are file systems that are mounted over the network.
var NetworkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "afs"}

// laterMount reports whether a mount is there later for what it is.
func laterMount(m Mount) bool {
	return slices.ContainsFunc(Laters, func(l Later) bool { return l.mount != nil && l.mount(m) })
}

func laterSysctl(s Sysctl) bool {
	return slices.ContainsFunc(Laters, func(l Later) bool { return l.key != "" && l.key == s.Key })
}

func earlyOf[T any](list func(*Items) *[]T, later func(T) bool) func(to, from *Items) {
	return func(to, from *Items) {
		all := slices.Clone(*list(from))
		if later != nil {
			all = slices.DeleteFunc(all, later)
		}
		*list(to) = all
	}
}

// Early returns the items that are set before sysinit.target. What is on a mount that comes later
// comes later, too.
func (i *Items) Early() (early Items) {
	for _, k := range kinds {
		if k.early != nil {
			k.early(&early, i)
		}
	}
	later := i.Needing(laterMount)
	early.Mounts = slices.DeleteFunc(early.Mounts, func(m Mount) bool { return slices.Contains(later, m.Target) })
	early.Swaps = slices.DeleteFunc(early.Swaps, func(s Swap) bool { return below(s.Device, later...) })
	return early
}

// Remote returns the mounts that are made before remote-fs.target: those that are not early, may
// be made by then, and are on none that may not.
func (i *Items) Remote(may func(Mount) bool) []Mount {
	early := i.Early()
	is := (&early).Needing(func(Mount) bool { return true })
	agents := func(m Mount) bool {
		return slices.ContainsFunc(Laters, func(l Later) bool { return l.When == WhenAgent && l.mount != nil && l.mount(m) })
	}
	later := i.Needing(func(m Mount) bool { return agents(m) || !slices.Contains(is, m.Target) && !may(m) })
	return slices.DeleteFunc(slices.Clone(i.Mounts), func(m Mount) bool { return slices.Contains(append(is, later...), m.Target) })
}

// Needing returns the targets of the mounts that are so, and of all that lie on one of them.
func (i *Items) Needing(so func(Mount) bool) (list []string) {
	for n := -1; n < len(list); {
		n = len(list)
		for _, m := range i.Mounts {
			on := func(path string) bool { return below(path, list...) }
			if !slices.Contains(list, m.Target) && (so(m) || slices.ContainsFunc(m.Paths(), on)) {
				list = append(list, m.Target)
			}
		}
	}
	return list
}

// IsEmpty reports whether there is nothing among the items.
func (i *Items) IsEmpty() bool {
	return !slices.ContainsFunc(kinds, func(k kind) bool {
		v := reflect.ValueOf(k.of(i))
		return v.Kind() == reflect.Slice && v.Len() > 0 || v.Kind() == reflect.Pointer && !v.IsNil()
	})
}
