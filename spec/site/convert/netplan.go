// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"

	"github.com/caisson-os/caisson/spec/site/tree"
)

// netplanReasons say what becomes of what an entry says beside its addresses.
var netplanReasons = map[string]string{
	"set-name": "a card keeps the name that the kernel gave it", "macaddress": "a card keeps its own address",
	"routing-policy": "a site has one table of routes",
}

// bondWords are netplan's words of a bond and a site's.
var bondWords = map[string]string{"mode": "mode", "lacp-rate": "lacpRate", "min-links": "minLinks",
	"transmit-hash-policy": "transmitHashPolicy"}

// readNetplan reads netplan(5), also as cloud-init has it in network-config.
func readNetplan(r *reading) {
	v := r.document()
	if n := v.Get("network"); n != nil {
		r.rest(v, "", nil, "network")
		v = n
	}
	const all = "a site has cards, bonds and VLANs"
	others := map[string]string{"bridges": all, "wifis": all, "tunnels": all, "vrfs": all, "dummy-devices": all}
	r.rest(v, "", others, "version", "renderer", "ethernets", "bonds", "vlans")
	if word := text(v, "version"); word != "2" {
		r.miss(line(v), "version", "only version 2 is read")
		return
	}
	if word := text(v, "renderer"); word != "" && word != "networkd" {
		r.miss(line(v.Get("renderer")), "renderer", "nodes have systemd-networkd")
	}
	n := netplan{reading: r, ethernets: v.Get("ethernets"), members: map[string]*parsed{}}
	r.each(v, "bonds", func(id string, b *tree.Value) {
		cards := n.texts(b, "interfaces")
		p := n.bond(id, b, cards)
		for _, m := range cards {
			n.members[m] = p
		}
	})
	r.each(v, "ethernets", n.ethernet)
	r.each(v, "vlans", func(id string, v *tree.Value) {
		i := iface{name: id, value: map[string]any{"name": id, "vlan": map[string]any{"id": text(v, "id"), "on": text(v, "link")}}}
		n.take(v, i, "id", "link")
	})
}

// netplan is a document as far as it was read.
type netplan struct {
	*reading
	ethernets *tree.Value
	members   map[string]*parsed // bonds by the id of their cards
}

// mac is the hardware address by which a card is found, or "".
func (n *netplan) mac(id string) string { return text(n.ethernets.Get(id).Get("match"), "macaddress") }

func (n *netplan) ethernet(id string, e *tree.Value) {
	i := iface{name: id, value: map[string]any{"name": id}}
	if mac := n.mac(id); mac != "" {
		i.value["mac"] = mac
	}
	match := e.Get("match")
	bond, isMember := n.members[id]
	switch {
	case isMember:
		n.item(line(e), "interface "+id).of = bond
		n.rest(e, id, map[string]string{"set-name": netplanReasons["set-name"]}, "match")
	case match != nil && n.mac(id) == "" || text(match, "driver") != "":
		n.miss(line(e), "interface "+id, "a site names interfaces by mac or name, it does not match them")
	default:
		n.take(e, i, "match")
	}
}

func (n *netplan) bond(id string, b *tree.Value, cards []string) *parsed {
	bond := map[string]any{"mode": "balance-rr"}
	for _, m := range cards {
		if n.mac(m) == "" {
			p := n.item(line(b), "interface "+id)
			p.Why = "a site finds members by hardware address, and " + m + " has no match.macaddress in this file"
			return p
		}
		members, _ := bond["members"].([]any)
		bond["members"] = append(members, n.mac(m))
	}
	if p := b.Get("parameters"); p != nil {
		for theirs, ours := range bondWords {
			if word := text(p, theirs); word != "" {
				bond[ours] = word
			}
		}
		if card := n.mac(text(p, "primary")); card != "" {
			bond["primary"] = card
		}
		why := map[string]string{"mii-monitor-interval": "a site looks at links each 100 ms"}
		n.rest(p, id+".parameters", why, "mode", "lacp-rate", "min-links", "transmit-hash-policy", "primary")
	}
	return n.take(b, iface{name: id, value: map[string]any{"name": id, "bond": bond}}, "interfaces", "parameters")
}

// take takes an entry with what all have. Known are keys that were read already.
func (n *netplan) take(e *tree.Value, i iface, known ...string) *parsed {
	p := n.iface(line(e), "interface "+i.name, i)
	i.dhcp(truth(e, "dhcp4"), truth(e, "dhcp6"))
	if mtu := text(e, "mtu"); mtu != "" {
		i.value["mtu"] = mtu
	}
	if truth(e, "optional") {
		i.value["optional"] = true
	}
	for _, key := range []string{"gateway4", "gateway6"} {
		if via := text(e, key); via != "" {
			i.route("", via, "")
		}
	}
	n.entries(e, "addresses", func(a *tree.Value) {
		if a.Kind == tree.Scalar {
			i.add("addresses", a.Text)
		} else { // a label, a lifetime
			n.miss(line(a), i.name+".addresses", "an address of a site has no options")
		}
	})
	n.entries(e, "routes", func(t *tree.Value) {
		if text(t, "to") == "" {
			n.miss(line(t), i.name+".routes", "it does not say where to")
			return
		}
		for _, f := range t.Fields {
			if !slices.Contains([]string{"to", "via", "metric", "on-link"}, f.Key) || f.Val.Kind != tree.Scalar {
				n.miss(line(t), i.name+".routes", "a route of a site has no such "+f.Key)
				return
			}
		}
		if word := text(t, "on-link"); word != "" {
			if no := i.noOnLink("on-link", word, text(t, "via")); no != "" {
				n.miss(line(t), i.name+".routes", "a route of a site has no "+no)
				return
			}
		}
		i.route(text(t, "to"), text(t, "via"), text(t, "metric"))
	})
	if ns := e.Get("nameservers"); ns != nil {
		for _, word := range n.texts(ns, "addresses") {
			n.network(line(ns), i.name+".nameservers", "dns", word)
		}
		for _, word := range n.texts(ns, "search") {
			n.network(line(ns), i.name+".nameservers", "search", word)
		}
		n.rest(ns, i.name+".nameservers", nil, "addresses", "search")
	}
	n.rest(e, i.name, netplanReasons, append(known, "dhcp4", "dhcp6", "mtu", "optional",
		"gateway4", "gateway6", "addresses", "routes", "nameservers")...)
	return p
}
