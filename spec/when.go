// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"reflect"
	"slices"
	"strings"
)

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
	later := i.targets(laterMount)
	early.Mounts = slices.DeleteFunc(early.Mounts, func(m Mount) bool { return below(m.Target, later...) || below(m.Device, later...) })
	early.Swaps = slices.DeleteFunc(early.Swaps, func(s Swap) bool { return below(s.Device, later...) })
	return early
}

// Remote returns the mounts that are made before remote-fs.target: those that are not early, may
// be made by then, and are on none that may not.
func (i *Items) Remote(may func(Mount) bool) []Mount {
	early := i.Early()
	is := (&early).targets(func(Mount) bool { return true })
	agents := func(m Mount) bool {
		return slices.ContainsFunc(Laters, func(l Later) bool { return l.When == WhenAgent && l.mount != nil && l.mount(m) })
	}
	later := i.targets(func(m Mount) bool { return agents(m) || !slices.Contains(is, m.Target) && !may(m) })
	return slices.DeleteFunc(slices.Clone(i.Mounts), func(m Mount) bool {
		return slices.Contains(is, m.Target) || below(m.Target, later...) || below(m.Device, later...)
	})
}

// targets are those of the mounts that are so.
func (i *Items) targets(so func(Mount) bool) (list []string) {
	for _, m := range i.Mounts {
		if so(m) {
			list = append(list, m.Target)
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
