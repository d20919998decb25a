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

// Later is a setting of a kind of WhenEarly that is left to the agent.
type Later struct {
	Kind, What string
	Why        string
	mount      func(Mount) bool
	key        string // of sysctl
}

// Laters lists them.
var Laters = []Later{
	{Kind: "mounts", What: "types nfs, nfs4, cifs, smb3, ceph, glusterfs, lustre and afs, and option `_netdev`", Why: "they need the network",
		mount: func(m Mount) bool {
			return slices.Contains(NetworkTypes, m.Type) || slices.Contains(m.Options, "_netdev")
		}},
	{Kind: "mounts", What: "types `fuse` and `fuse.*`", Why: "their programs may need the network and other services",
		mount: func(m Mount) bool { return m.Type == "fuse" || strings.HasPrefix(m.Type, "fuse.") }},
	{Kind: "mounts", What: "those with `after`", Why: "the units that they name start later",
		mount: func(m Mount) bool { return len(m.After) > 0 }},
	{Kind: "sysctl", What: "`kernel.modules_disabled`", Why: "udev still loads drivers", key: "kernel/modules_disabled"},
}

// NetworkTypes are file systems that are mounted over the network.
var NetworkTypes = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "afs"}

// laterMount reports whether a mount is left to the agent for what it is.
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

// Early returns the items that are set before sysinit.target. A mount below one that is left to
// the agent is left to it, too, and so is one of what lies below it.
func (i *Items) Early() (early Items) {
	for _, k := range kinds {
		if k.early != nil {
			k.early(&early, i)
		}
	}
	var later []string
	for _, m := range i.Mounts {
		if laterMount(m) {
			later = append(later, m.Target)
		}
	}
	early.Mounts = slices.DeleteFunc(early.Mounts, func(m Mount) bool { return below(m.Target, later...) || below(m.Device, later...) })
	early.Swaps = slices.DeleteFunc(early.Swaps, func(s Swap) bool { return below(s.Device, later...) })
	return early
}

// IsEmpty reports whether there is nothing among the items.
func (i *Items) IsEmpty() bool {
	return !slices.ContainsFunc(kinds, func(k kind) bool {
		v := reflect.ValueOf(k.of(i))
		return v.Kind() == reflect.Slice && v.Len() > 0 || v.Kind() == reflect.Pointer && !v.IsNil()
	})
}
