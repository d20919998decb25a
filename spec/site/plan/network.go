// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// interfaceKey names an interface: a card by its MAC address where that finds it.
func interfaceKey(i spec.Interface) string { return cmp.Or(i.MAC, i.Name) }

// interfaceText is an interface in one line.
func interfaceText(i spec.Interface) string {
	var words []string
	add := func(format string, value any, isSet bool) {
		if isSet {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	if b := i.Bond; b != nil {
		words = append(words, "bond "+b.Mode+" of "+strings.Join(b.Members, " "))
		add("lacp %s", b.LACPRate, b.LACPRate != "")
		add("min-links %d", b.MinLinks, b.MinLinks != 0)
		add("hash %s", b.HashPolicy, b.HashPolicy != "")
	}
	if v := i.VLAN; v != nil {
		words = append(words, fmt.Sprintf("vlan %d on %s", v.ID, v.On))
	}
	add("dhcp %s", i.DHCP, i.DHCP != "")
	words = append(words, i.Addresses...)
	add("%s", i.Gateway, i.Gateway != "")
	for _, r := range i.Routes {
		words = append(words, strings.TrimSuffix("to "+r.To+" via "+r.Via, " via "))
	}
	add("mtu %d", i.MTU, i.MTU != 0)
	if i.MAC != "" {
		add("called %s", i.Name, i.Name != "")
	}
	return cmp.Or(strings.Join(words, " "), "up")
}
