// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
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
	v := r.Document()
	if n := v.Get("network"); n != nil {
		r.Rest(v, "", nil, "network")
		v = n
	}
	const all = "a site has cards, bonds and VLANs"
	others := map[string]string{"bridges": all, "wifis": all, "tunnels": all, "vrfs": all, "dummy-devices": all}
	r.Rest(v, "", others, "version", "renderer", "ethernets", "bonds", "vlans")
	if word := text(v, "version"); word != "2" {
		r.Miss(line(v), "version", "only version 2 is read")
		return
	}
	if word := text(v, "renderer"); word != "" && word != "networkd" {
		r.Miss(line(v.Get("renderer")), "renderer", "nodes have systemd-networkd")
	}
	n := netplan{reading: r, ethernets: v.Get("ethernets"), members: map[string]*coverage.Item{}}
	r.Each(v, "bonds", func(id string, b *tree.Value) {
		cards := n.Texts(b, "interfaces")
		p := n.bond(id, b, cards)
		for _, m := range cards {
			n.members[m] = p
		}
	})
	r.Each(v, "ethernets", n.ethernet)
	r.Each(v, "vlans", func(id string, v *tree.Value) {
		i := iface{name: id, value: map[string]any{"name": id, "vlan": map[string]any{"id": text(v, "id"), "on": text(v, "link")}}}
		n.take(v, i, "id", "link")
	})
}

// netplan is a document as far as it was read.
type netplan struct {
	*reading
	ethernets *tree.Value
	members   map[string]*coverage.Item // bonds by the id of their cards
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
		n.Item(line(e), "interface "+id).Of = bond
		n.Rest(e, id, map[string]string{"set-name": netplanReasons["set-name"]}, "match")
	case match != nil && n.mac(id) == "" || text(match, "driver") != "":
		n.Miss(line(e), "interface "+id, "a site names interfaces by mac or name, it does not match them")
	default:
		n.take(e, i, "match")
	}
}

func (n *netplan) bond(id string, b *tree.Value, cards []string) *coverage.Item {
	bond := map[string]any{"mode": "balance-rr"}
	for _, m := range cards {
		if n.mac(m) == "" {
			p := n.Item(line(b), "interface "+id)
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
		n.Rest(p, id+".parameters", why, "mode", "lacp-rate", "min-links", "transmit-hash-policy", "primary")
	}
	return n.take(b, iface{name: id, value: map[string]any{"name": id, "bond": bond}}, "interfaces", "parameters")
}

// take takes an entry with what all have. Known are keys that were read already.
func (n *netplan) take(e *tree.Value, i iface, known ...string) *coverage.Item {
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
	n.Entries(e, "addresses", func(a *tree.Value) {
		if a.Kind == tree.Scalar {
			i.add("addresses", a.Text)
		} else { // a label, a lifetime
			n.Miss(line(a), i.name+".addresses", "an address of a site has no options")
		}
	})
	n.Entries(e, "routes", func(t *tree.Value) {
		if text(t, "to") == "" {
			n.Miss(line(t), i.name+".routes", "it does not say where to")
			return
		}
		for _, f := range t.Fields {
			if !slices.Contains([]string{"to", "via", "metric", "on-link"}, f.Key) || f.Val.Kind != tree.Scalar {
				n.Miss(line(t), i.name+".routes", "a route of a site has no such "+f.Key)
				return
			}
		}
		if word := text(t, "on-link"); word != "" {
			if no := i.noOnLink("on-link", word, text(t, "via")); no != "" {
				n.Miss(line(t), i.name+".routes", "a route of a site has no "+no)
				return
			}
		}
		i.route(text(t, "to"), text(t, "via"), text(t, "metric"))
	})
	if ns := e.Get("nameservers"); ns != nil {
		for _, word := range n.Texts(ns, "addresses") {
			n.network(line(ns), i.name+".nameservers", "dns", word)
		}
		for _, word := range n.Texts(ns, "search") {
			n.network(line(ns), i.name+".nameservers", "search", word)
		}
		n.Rest(ns, i.name+".nameservers", nil, "addresses", "search")
	}
	n.Rest(e, i.name, netplanReasons, append(known, "dhcp4", "dhcp6", "mtu", "optional",
		"gateway4", "gateway6", "addresses", "routes", "nameservers")...)
	return p
}

// stanza is the part of interfaces(5) that begins with a word iface. An interface has one
// for each family of addresses.
type stanza struct {
	n                          int
	line, name, family, method string
	options                    []setting
}

// option returns the value of an option, or "".
func (s *stanza) option(key string) string {
	return plain.First(s.options, func(o setting) bool { return o.key == key }).value
}

// readInterfaces reads interfaces(5): cards and VLANs that are there from the start, with
// addresses or DHCP.
func readInterfaces(r *reading) {
	stanzas, names := map[string][]*stanza{}, []string{}
	var last *stanza
	var starts []setting // a name each
	r.Lines("#", func(n int, line string) {
		f := strings.Fields(line)
		switch word := f[0]; {
		case strings.HasSuffix(line, "\\"):
			last = nil
			r.Miss(n, line, "a line that the next one continues is not read: join them")
		case word == "iface" && len(f) == 4 && (f[2] == "inet" || f[2] == "inet6"):
			last = &stanza{n: n, line: line, name: f[1], family: f[2], method: f[3]}
			if stanzas[last.name] == nil {
				names = append(names, last.name)
			}
			stanzas[last.name] = append(stanzas[last.name], last)
		case (word == "auto" || strings.HasPrefix(word, "allow-")) && len(f) > 1:
			last = nil
			for _, name := range f[1:] {
				starts = append(starts, setting{n: n, line: line, key: name})
			}
		case slices.Contains([]string{"source", "source-directory"}, word):
			last = nil
			r.Miss(n, line, "import those files, too")
		case slices.Contains([]string{"iface", "auto", "mapping", "template", "rename", "no-auto-down", "no-scripts"}, word):
			last = nil
			r.Miss(n, line, "it has no counterpart in a site")
		case last != nil:
			last.options = append(last.options, setting{n: n, line: line, key: strings.ReplaceAll(word, "_", "-"),
				value: strings.TrimSpace(line[len(word):])})
		default:
			r.Miss(n, line, "it belongs to something that is not taken")
		}
	})
	taken := map[string]*coverage.Item{}
	for _, name := range names {
		atBoot := slices.ContainsFunc(starts, func(s setting) bool { return s.key == name })
		taken[name] = r.ifupdown(stanzas[name], atBoot)
	}
	for _, s := range starts {
		if p := taken[s.key]; p != nil {
			r.Item(s.n, s.line).Of = p
		} else {
			r.Miss(s.n, s.line, s.key+" is not taken")
		}
	}
}

// ifupdown takes an interface whole, or says of each of its lines why not.
func (r *reading) ifupdown(stanzas []*stanza, atBoot bool) *coverage.Item {
	first, why := stanzas[0], ""
	for _, s := range stanzas {
		switch {
		case s.name == "lo":
			why = "each node has it"
		case !atBoot:
			why = "nothing starts it at boot, and a site has what is always there"
		case s.method != "static" && s.method != "dhcp" && s.method != "manual":
			why = "the method " + s.method + " has no counterpart in a site"
		case slices.ContainsFunc(s.options, func(o setting) bool { return strings.HasPrefix(o.key, "bond-") || o.key == "slaves" }):
			why = "a site finds members by hardware address: write an entry of network.interfaces with bond:"
		case slices.ContainsFunc(s.options, func(o setting) bool { return strings.HasPrefix(o.key, "bridge-") }):
			why = "a site has cards, bonds and VLANs"
		}
	}
	if why != "" {
		for _, s := range stanzas {
			r.Miss(s.n, s.line, why)
			for _, o := range s.options {
				r.Miss(o.n, o.line, why)
			}
		}
		return nil
	}
	i := iface{name: first.name, value: map[string]any{"name": first.name}}
	p := r.iface(first.n, first.line, i)
	if on, id, ok := strings.Cut(first.name, "."); ok {
		i.value["vlan"] = map[string]any{"id": id, "on": on}
	}
	v4, v6 := false, false
	for _, s := range stanzas {
		v4, v6 = v4 || s.method == "dhcp" && s.family == "inet", v6 || s.method == "dhcp" && s.family == "inet6"
		if s != first {
			r.Item(s.n, s.line).Of = p
		}
		for _, o := range s.options {
			if r.ifupdownLine(&i, s, o) {
				r.Item(o.n, o.line).Of = p
			}
		}
	}
	i.dhcp(v4, v6)
	return p
}

// ifupdownLine puts an option into an interface, or accounts for it and returns false.
func (r *reading) ifupdownLine(i *iface, s *stanza, o setting) bool {
	switch o.key {
	case "address":
		i.add("addresses", prefix(o.value, s.option("netmask")))
	case "gateway":
		i.route("", o.value, s.option("metric"))
	case "mtu":
		i.value["mtu"] = o.value
	case "vlan-raw-device":
		i.value["vlan"] = map[string]any{"id": s.name[len(strings.TrimRight(s.name, "0123456789")):], "on": o.value}
	case "netmask", "broadcast", "network", "metric": // of the address and the gateway
		if s.option("address") == "" || o.key == "metric" && s.option("gateway") == "" {
			r.Miss(o.n, o.line, "it is of nothing that is taken")
			return false
		}
	case "dns-nameservers", "dns-nameserver", "dns-search", "dns-domain":
		key := "search"
		if strings.HasPrefix(o.key, "dns-name") {
			key = "dns"
		}
		for _, word := range strings.Fields(o.value) {
			r.network(o.n, o.line, key, word)
		}
		return o.value == ""
	case "up", "post-up", "pre-up", "down", "post-down", "pre-down":
		r.Miss(o.n, o.line, "a command has no place in a network: write routes, sysctl, or a unit")
		return false
	default:
		r.Miss(o.n, o.line, "it has no counterpart in a site")
		return false
	}
	return true
}

// prefix is an address with the length of its network, which may stand beside it as a
// number or as a mask.
func prefix(address, mask string) string {
	if strings.Contains(address, "/") || mask == "" {
		return address
	}
	if _, err := strconv.Atoi(mask); err == nil {
		return address + "/" + mask
	}
	if ones, bits := net.IPMask(net.ParseIP(mask).To4()).Size(); bits > 0 {
		return address + "/" + strconv.Itoa(ones)
	}
	return address // which a site refuses
}
