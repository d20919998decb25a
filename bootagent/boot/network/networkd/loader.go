// SPDX-License-Identifier: Apache-2.0

package networkd

import (
	"slices"

	"github.com/caisson-os/caisson/spec"
)

// complete is b with what a loader of 0.9, which knows one way, did not say.
func (b Boot) complete() Boot {
	if b.Lease != nil && len(b.Made.Interfaces) == 0 {
		b.Made.Interfaces = []spec.Interface{{MAC: b.Lease.MAC, Name: b.Lease.Interface, DHCP: spec.DHCPv4}}
	}
	return b
}

// is reports whether one of the site's interfaces is that by which the loader has its
// address: made of the same cards in the same way, whatever it is called.
func (b Boot) is(one spec.Interface, all []spec.Interface) bool {
	return b.Lease != nil && same(one, all, b.Made.Interfaces[len(b.Made.Interfaces)-1], b.Made.Interfaces)
}

func same(a spec.Interface, ofA []spec.Interface, b spec.Interface, ofB []spec.Interface) bool {
	switch {
	case a.VLAN != nil:
		return b.VLAN != nil && a.VLAN.ID == b.VLAN.ID && same(named(ofA, a.VLAN.On), ofA, named(ofB, b.VLAN.On), ofB)
	case a.Bond != nil:
		return b.Bond != nil && share(a.Bond.Members, b.Bond.Members)
	}
	return b.VLAN == nil && b.Bond == nil && isCard(a, b)
}

// Names are those of the loader's bonds and VLANs that the site makes, too, under other
// names, and "" for those that it does not make where it says how their cards are used.
func (b Boot) Names(site spec.Network) map[string]string {
	b = b.complete()
	names := map[string]string{}
	if !b.coveredBy(site.Interfaces) {
		return names
	}
	for _, i := range b.Made.Interfaces {
		if i.Bond == nil && i.VLAN == nil {
			continue
		}
		at := slices.IndexFunc(site.Interfaces, func(s spec.Interface) bool { return same(s, site.Interfaces, i, b.Made.Interfaces) })
		switch {
		case at < 0:
			names[i.Name] = ""
		case site.Interfaces[at].Name != i.Name:
			names[i.Name] = site.Interfaces[at].Name
		}
	}
	return names
}

func named(all []spec.Interface, name string) spec.Interface {
	if i := slices.IndexFunc(all, func(i spec.Interface) bool { return i.Name == name }); i >= 0 {
		return all[i]
	}
	return spec.Interface{Name: name}
}

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(mac string) bool { return slices.Contains(b, mac) })
}

// isCard reports whether an entry of the site means a card of the loader's, which has both
// address and name.
func isCard(entry, card spec.Interface) bool {
	return entry.MAC != "" && entry.MAC == card.MAC || entry.MAC == "" && entry.Name == card.Name
}

// coveredBy reports whether the site says of one of the loader's cards how it is used.
func (b Boot) coveredBy(all []spec.Interface) bool {
	return slices.ContainsFunc(b.Made.Interfaces, func(b spec.Interface) bool {
		return slices.ContainsFunc(all, func(a spec.Interface) bool {
			switch {
			case a.VLAN != nil || b.VLAN != nil: // what is below says it
				return false
			case a.Bond != nil && b.Bond != nil:
				return share(a.Bond.Members, b.Bond.Members)
			case a.Bond != nil:
				return slices.Contains(a.Bond.Members, b.MAC)
			case b.Bond != nil:
				return slices.Contains(b.Bond.Members, a.MAC)
			}
			return isCard(a, b)
		})
	})
}
