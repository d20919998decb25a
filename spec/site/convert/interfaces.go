// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net"
	"slices"
	"strconv"
	"strings"
)

// stanza is the part of interfaces(5) that begins with a word iface. An interface has one
// for each family of addresses.
type stanza struct {
	n                          int
	line, name, family, method string
	options                    []setting
}

// option returns the value of an option, or "".
func (s *stanza) option(key string) string {
	for _, o := range s.options {
		if o.key == key {
			return o.value
		}
	}
	return ""
}

// readInterfaces reads interfaces(5): cards and VLANs that are there from the start, with
// addresses or DHCP.
func readInterfaces(r *reading) {
	stanzas, names := map[string][]*stanza{}, []string{}
	var last *stanza
	var starts []setting // a name each
	r.lines("#", func(n int, line string) {
		f := strings.Fields(line)
		switch word := f[0]; {
		case strings.HasSuffix(line, "\\"):
			last = nil
			r.miss(n, line, "a line that the next one continues is not read: join them")
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
			r.miss(n, line, "import those files, too")
		case slices.Contains([]string{"iface", "auto", "mapping", "template", "rename", "no-auto-down", "no-scripts"}, word):
			last = nil
			r.miss(n, line, "it has no counterpart in a site")
		case last != nil:
			last.options = append(last.options, setting{n: n, line: line, key: strings.ReplaceAll(word, "_", "-"),
				value: strings.TrimSpace(line[len(word):])})
		default:
			r.miss(n, line, "it belongs to something that is not taken")
		}
	})
	taken := map[string]*parsed{}
	for _, name := range names {
		atBoot := slices.ContainsFunc(starts, func(s setting) bool { return s.key == name })
		taken[name] = r.ifupdown(stanzas[name], atBoot)
	}
	for _, s := range starts {
		if p := taken[s.key]; p != nil {
			r.item(s.n, s.line).of = p
		} else {
			r.miss(s.n, s.line, s.key+" is not taken")
		}
	}
}

// ifupdown takes an interface whole, or says of each of its lines why not.
func (r *reading) ifupdown(stanzas []*stanza, atBoot bool) *parsed {
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
			r.miss(s.n, s.line, why)
			for _, o := range s.options {
				r.miss(o.n, o.line, why)
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
			r.item(s.n, s.line).of = p
		}
		for _, o := range s.options {
			if r.ifupdownLine(&i, s, o) {
				r.item(o.n, o.line).of = p
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
			r.miss(o.n, o.line, "it is of nothing that is taken")
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
		r.miss(o.n, o.line, "a command has no place in a network: write routes, sysctl, or a unit")
		return false
	default:
		r.miss(o.n, o.line, "it has no counterpart in a site")
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
