// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/module"
)

// linkFeatures are systemd.link(5)'s names of offload features and ethtool(8)'s.
var linkFeatures = map[string]string{
	"ReceiveChecksumOffload":               "rx-checksumming",
	"TransmitChecksumOffload":              "tx-checksumming",
	"TCPSegmentationOffload":               "tcp-segmentation-offload",
	"TCP6SegmentationOffload":              "tx-tcp6-segmentation",
	"GenericSegmentationOffload":           "generic-segmentation-offload",
	"PartialGenericSegmentationOffload":    "tx-gso-partial",
	"GenericReceiveOffload":                "generic-receive-offload",
	"GenericReceiveOffloadHardware":        "rx-gro-hw",
	"LargeReceiveOffload":                  "large-receive-offload",
	"ReceiveVLANCTAGHardwareAcceleration":  "rx-vlan-offload",
	"TransmitVLANCTAGHardwareAcceleration": "tx-vlan-offload",
	"ReceiveVLANCTAGFilter":                "rx-vlan-filter",
	"TransmitVLANSTAGHardwareAcceleration": "tx-vlan-stag-hw-insert",
	"NTupleFilter":                         "ntuple-filters",
}

// readLink reads systemd.link(5): the features of a link that is named.
func readLink(r *reading) {
	var settings []setting
	name, several, sections := "", false, r.sections()
	if r.wraps(sections) {
		return
	}
	for _, sec := range sections {
		for _, s := range sec.lines {
			switch {
			case sec.name == "Match" && s.key == "OriginalName" && name == "":
				name = s.value
				several = strings.ContainsAny(name, "*?[ !")
			case sec.name == "Match" && s.key == "OriginalName":
			case sec.name == "Match":
				r.Miss(s.n, s.line, "a site names interfaces, it does not match them")
			case sec.name == "Link" && s.key == "Name":
				name, several = s.value, false
				r.Miss(s.n, s.line, "names are not given by a site; the features are taken under this name")
			case sec.name == "Link":
				settings = append(settings, s)
			default:
				r.Miss(s.n, s.line, "section ["+sec.name+"] has no counterpart")
			}
		}
	}
	for _, s := range settings {
		feature := linkFeatures[s.key]
		on := strings.ToLower(s.value)
		switch {
		case feature == "":
			r.Miss(s.n, s.line, "it is not an offload feature")
		case name == "" || several:
			r.Miss(s.n, s.line, "the file does not match one interface by name: [Match] OriginalName= or [Link] Name=")
		case on == "yes" || on == "true" || on == "on" || on == "1":
			r.feature(s.n, s.line, name, feature, "on")
		case on == "no" || on == "false" || on == "off" || on == "0":
			r.feature(s.n, s.line, name, feature, "off")
		default:
			r.Miss(s.n, s.line, "its value is neither yes nor no")
		}
	}
}

// readEthtool reads what ethtool -k printed, or lines of ethtool -K.
func readEthtool(r *reading) {
	nic := ""
	r.Lines("#", func(n int, line string) {
		if rest, ok := strings.CutPrefix(line, "Features for "); ok {
			nic = strings.TrimSuffix(rest, ":")
			return
		}
		words := strings.Fields(line)
		if len(words) > 2 && strings.HasSuffix(words[0], "ethtool") {
			r.ethtoolCommand(n, line, words)
			return
		}
		feature, state, ok := strings.Cut(line, ": ")
		switch {
		case !ok || nic == "":
			r.Miss(n, line, "it is neither ethtool -k's nor ethtool -K's")
		case strings.Contains(state, "[fixed]"):
			r.Miss(n, line, "the driver does not let it be changed")
		case strings.Contains(state, "[requested"):
			r.Miss(n, line, "it could not be set as requested, so what is meant is not clear")
		default:
			r.feature(n, line, nic, feature, strings.TrimSpace(state))
		}
	})
}

func (r *reading) ethtoolCommand(n int, line string, words []string) {
	if words[1] != "-K" && words[1] != "--features" && words[1] != "--offload" {
		r.Miss(n, line, "only offload features (-K) are taken")
		return
	}
	pairs := words[3:]
	if len(pairs) == 0 || len(pairs)%2 != 0 {
		r.Miss(n, line, "features and values do not pair")
		return
	}
	for i := 0; i < len(pairs); i += 2 {
		r.feature(n, line, words[2], pairs[i], pairs[i+1])
	}
}

func (r *reading) feature(n int, line, nic, feature, state string) {
	feature = module.FeatureName(feature)
	r.Item(n, line).Take("ethtool", nic+" "+feature, []string{nic, feature}, state)
}

// iface is an interface, whatever tool describes it.
type iface struct {
	name  string
	value map[string]any // as network.interfaces has it
}

// dhcp sets the word of a site for two flags.
func (i *iface) dhcp(v4, v6 bool) {
	if word := map[[2]bool]string{{true, false}: "ipv4", {false, true}: "ipv6", {true, true}: "both"}[[2]bool{v4, v6}]; word != "" {
		i.value["dhcp"] = word
	}
}

func (i *iface) add(key string, value any) {
	entries, _ := i.value[key].([]any)
	i.value[key] = append(entries, value)
}

// noOnLink returns what a site has not of a flag of a route by a router, "" where it has it: it reaches the
// router on the link where no address of the interface does, but beside DHCP; see [spec.Interface.OnLink].
func (i *iface) noOnLink(key, word, via string) string {
	switch {
	case denies(word):
		return ""
	case !flag(word):
		return key + "=" + word
	}
	own, _ := i.value["addresses"].([]any)
	static := spec.Interface{Addresses: plain.Each(own, func(a any) string { return fmt.Sprint(a) })}
	dynamic := static
	dynamic.DHCP, _ = i.value["dhcp"].(string)
	if static.OnLink(via) && !dynamic.OnLink(via) {
		return key + " beside DHCP"
	}
	return ""
}

// route adds one: the first default route is the gateway.
func (i *iface) route(to, via, metric string) {
	if a, err := netip.ParseAddr(to); err == nil {
		to = netip.PrefixFrom(a, a.BitLen()).String()
	}
	if to == "default" || to == "" || strings.HasSuffix(to, "/0") {
		all := "0.0.0.0/0"
		if strings.Contains(to+via, ":") {
			all = "::/0"
		}
		if _, taken := i.value["gateway"]; !taken && via != "" && metric == "" {
			i.value["gateway"] = via
			return
		}
		to = all
	}
	r := map[string]any{"to": to}
	if via != "" {
		r["via"] = via
	}
	if metric != "" {
		r["metric"] = metric
	}
	i.add("routes", r)
}

// iface takes an interface.
func (r *reading) iface(n int, line string, i iface) *coverage.Item {
	return r.Item(n, line).Take(coverage.Machine, "interface "+i.name, []string{"network", "interfaces", appended}, i.value)
}

// network takes a resolver, a domain or a time server, which a site has for all interfaces.
func (r *reading) network(n int, line, key, value string) {
	r.Item(n, line).Take(coverage.Machine, key+" "+value, []string{"network", key, appended}, value)
}

// readNetworkd reads systemd.network(5): the settings of a card that is named.
func readNetworkd(r *reading) {
	i := iface{value: map[string]any{}}
	sections, at, text := r.sections(), 1, "the whole file"
	if r.wraps(sections) {
		return
	}
	slices.SortStableFunc(sections, func(a, b section) int { // a route's words depend on DHCP
		return cmp.Compare(strings.Index(a.name, "Route"), strings.Index(b.name, "Route"))
	})
	for _, s := range sections {
		if s.name == "NetDev" {
			r.Whole("other files say the rest of it: write an entry of network.interfaces with bond: or vlan:")
			return
		}
		for _, l := range s.lines {
			switch key := map[string]string{"Name": "name", "MACAddress": "mac", "PermanentMACAddress": "mac"}[l.key]; {
			case s.name != "Match":
			case key == "" || strings.ContainsAny(l.value, "*?[ !"):
				r.Whole("a site names interfaces, it does not match them by " + l.line)
				return
			default:
				at, text, i.name, i.value[key] = l.n, l.line, l.value, l.value
			}
		}
	}
	p := r.iface(at, text, i)
	for _, s := range sections {
		if s.name == "Route" {
			r.networkdRoute(p, &i, s)
			continue
		}
		for _, l := range s.lines {
			if s.name != "Match" && !r.networkdLine(&i, s.name, l) {
				continue
			}
			if l.n != at {
				r.Item(l.n, l.line).Of = p
			}
		}
	}
}

// wraps accounts for a file with a line that goes on in the next one.
func (r *reading) wraps(sections []section) bool {
	for _, s := range sections {
		for _, l := range s.lines {
			if strings.HasSuffix(l.line, `\`) {
				r.Whole(fmt.Sprintf("line %d goes on in the next one: join them", l.n))
				return true
			}
		}
	}
	return false
}

// networkdLine puts a line into an interface, or accounts for it and returns false.
func (r *reading) networkdLine(i *iface, section string, l setting) bool {
	if l.value == "" {
		r.Miss(l.n, l.line, "it is empty, which takes away what was said before")
		return false
	}
	switch section + " " + l.key {
	case "Link MTUBytes":
		i.value["mtu"] = l.value
	case "Link RequiredForOnline":
		switch {
		case denies(l.value):
			i.value["optional"] = true
		case !flag(l.value):
			r.Miss(l.n, l.line, "a site says optional: true, or nothing")
			return false
		}
	case "Network DHCP":
		v4, v6 := slices.Contains([]string{"ipv4", "v4"}, l.value), slices.Contains([]string{"ipv6", "v6"}, l.value)
		both := flag(l.value) || l.value == "both"
		if !v4 && !v6 && !both && !denies(l.value) && l.value != "none" {
			r.Miss(l.n, l.line, "it is neither yes, no, ipv4 nor ipv6")
			return false
		}
		delete(i.value, "dhcp")
		i.dhcp(v4 || both, v6 || both)
	case "Network Address", "Address Address":
		i.add("addresses", l.value)
	case "Network Gateway":
		i.route("", l.value, "")
	case "Network DNS", "Network Domains", "Network NTP":
		for _, word := range strings.Fields(l.value) {
			r.network(l.n, l.line, map[string]string{"DNS": "dns", "Domains": "search", "NTP": "ntp"}[l.key], word)
		}
		return false
	case "Network Bond", "Network VLAN":
		r.Miss(l.n, l.line, "write an entry of network.interfaces with "+strings.ToLower(l.key)+":")
		return false
	default:
		r.Miss(l.n, l.line, "it has no counterpart in a site")
		return false
	}
	return true
}

// networkdRoute takes a section [Route], unless it says what a site cannot.
func (r *reading) networkdRoute(p *coverage.Item, i *iface, s section) {
	said := map[string]string{}
	unknown := ""
	for _, l := range s.lines {
		said[l.key] = l.value
		if l.key != "Destination" && l.key != "Gateway" && l.key != "Metric" && l.key != "GatewayOnLink" {
			unknown = l.key
		}
	}
	if word, is := said["GatewayOnLink"]; is {
		unknown = cmp.Or(i.noOnLink("GatewayOnLink", word, said["Gateway"]), unknown)
	}
	if said["Destination"] == "" && said["Gateway"] == "" {
		unknown = "Destination or Gateway that is empty"
	}
	if unknown == "" {
		i.route(said["Destination"], said["Gateway"], said["Metric"])
	}
	for _, l := range s.lines {
		if unknown != "" {
			r.Miss(l.n, l.line, "a route of a site has no "+unknown)
		} else {
			r.Item(l.n, l.line).Of = p
		}
	}
}
