// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// nicNumbers are the settings that are numbers, and nicFlags those that are on or
// off, by group, as ethtool(8) spells them.
var (
	nicNumbers = map[string][]string{
		"ring":     {"rx", "rx-mini", "rx-jumbo", "tx"},
		"channels": {"rx", "tx", "other", "combined"},
		"coalesce": {"rx-usecs", "rx-frames", "rx-usecs-irq", "rx-frames-irq", "tx-usecs", "tx-frames", "tx-usecs-irq",
			"tx-frames-irq", "stats-block-usecs",
			"pkt-rate-low", "rx-usecs-low", "rx-frames-low", "tx-usecs-low", "tx-frames-low",
			"pkt-rate-high", "rx-usecs-high", "rx-frames-high", "tx-usecs-high", "tx-frames-high", "sample-interval"},
		"link": {"speed"},
	}
	nicFlags = map[string][]string{"coalesce": {"adaptive-rx", "adaptive-tx"}, "pause": {"autoneg", "rx", "tx"}, "link": {"autoneg"}}
)

// NICGroups are the groups of settings of an interface.
var NICGroups = []string{"ring", "channels", "coalesce", "pause", "link", "private", spec.NICFeatures}

// NICFlag reports whether a setting is on or off.
func NICFlag(group, name string) bool {
	return group == "private" || group == spec.NICFeatures || slices.Contains(nicFlags[group], name)
}

// NIC checks settings of interfaces.
func NIC(n spec.NIC) error {
	var f fields
	f.add("id", ID(n.ID))
	f.add("match", NICMatch(n.Match))
	for _, s := range n.Settings {
		f.add("settings", NICSetting(s))
	}
	return f.err()
}

// NICMatch checks the match by which interfaces are found.
func NICMatch(m spec.NICMatch) error {
	word := lower + upper + digits + "_-"
	switch {
	case Given(m.Name != "", m.MAC != "", m.Driver != "", m.PCI != "") != 1:
		return invalid("nic-match", "one of name, mac, driver and pci", "an interface is found by one thing")
	case m.Name != "":
		return Interface(m.Name)
	case m.MAC != "":
		return MAC(m.MAC)
	case m.Driver != "" && (len(m.Driver) > 31 || !spelled(m.Driver, word, word)):
		return invalid("nic-match", "as ethtool -i prints it", "%.50q is not the name of a driver", m.Driver)
	case m.PCI != "" && !matches(pair+pair+":"+pair+":"+pair+".[0-9a-f]", m.PCI):
		return invalid("nic-match", "as lspci -D prints it, for example 0000:3b:00.0", "%.50q is not a place on the PCI bus", m.PCI)
	}
	return nil
}

// pair matches two digits.
const pair = "[0-9a-f][0-9a-f]"

// MAC checks a hardware address in lower case.
func MAC(s string) error {
	return refuse(!matches(strings.Repeat(pair+":", 5)+pair, s), "mac", "as in 52:54:00:12:34:56", "%.50q is not a hardware address", s)
}

// NICSetting checks one setting.
func NICSetting(s spec.NICSetting) error {
	var f fields
	f.add("group", oneOf(s.Group, "a group of settings", NICGroups))
	f.add("name", nicName(s.Group, s.Name))
	if f.list == nil {
		f.add("value", nicValue(s))
	}
	return f.err()
}

func nicName(group, name string) error {
	if group == spec.NICFeatures {
		return Feature(name)
	}
	if group == "private" {
		return refuse(len(name) > 31 || !printable(name) || strings.Contains(name, "/"), "nic-setting", "as ethtool --show-priv-flags prints it",
			"%.50q is not the name of a flag", name)
	}
	names := append(slices.Clone(nicNumbers[group]), nicFlags[group]...)
	if group == "link" {
		names = append(names, "duplex")
	}
	return oneOf(name, "a setting of "+group, names)
}

func nicValue(s spec.NICSetting) error {
	switch {
	case NICFlag(s.Group, s.Name):
		return oneOf(s.Value, "on or off", []string{"on", "off"})
	case s.Name == "duplex":
		return oneOf(s.Value, "half or full", []string{"half", "full"})
	}
	n, err := strconv.ParseUint(s.Value, 10, 32)
	return refuse(err != nil || strconv.FormatUint(n, 10) != s.Value, "type", "digits", "%.50q is not a number", s.Value)
}

// fillers lists the SMBIOS UUIDs that boards of several makers have as they leave the
// factory, beside zeros and ones alone. Many machines have the same one.
var fillers = []string{
	"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009",
	"12345678-1234-5678-90ab-cddeefaabbcc", "12345678-1234-1234-1234-123456789abc",
	"fefefefe-fefe-fefe-fefe-fefefefefefe", "01234567-8910-1112-1314-151617181920",
	"00112233-4455-6677-8899-aabbccddeeff",
}

// MachineUUID checks the SMBIOS UUID of a machine, 36 characters in lower case: one that the firmware
// fills in where nobody gave it any names no machine.
func MachineUUID(id string) error {
	return refuse(strings.Trim(id, "0-") == "" || strings.Trim(id, "f-") == "" || slices.Contains(fillers, id), "uuid",
		"match this machine by the MAC addresses of its cards", "the UUID %s is what firmware has where nobody set one: many machines have it",
		id)
}
