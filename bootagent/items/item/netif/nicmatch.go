// SPDX-License-Identifier: Apache-2.0

// Package netif finds the network interfaces that a site means: by name, address, driver or place
// on the PCI bus, and asks the kernel about them.
//
// All kinds that set something of interfaces mean the same ones by the same words, and so does
// the loader. It is asked at each look, so that one that comes later is found then. Only
// bootagent/items/nics, bootagent/items/tunable, bootagent/boot/identity and
// bootagent/boot/network import it.
package netif

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Find returns the names of the interfaces that m means, in the order of their
// names; sys is /sys. By address those of devices and of bonds' members are meant, where there
// is one: a bond or a VLAN has the address of the card below it.
func Find(sys string, m spec.NICMatch) []string {
	if m.Name != "" {
		return []string{m.Name}
	}
	dir := filepath.Join(sys, "class/net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // an interface that cannot be found is deferred
	}
	var cards, others []string
	for _, e := range entries {
		name := e.Name()
		driver, place, isDevice := Device(sys, name)
		_, err := os.Stat(filepath.Join(dir, name, "bonding_slave"))
		isCard, isMeant := isDevice || err == nil, m.MAC != "" && strings.EqualFold(Address(sys, name), m.MAC)
		switch {
		case isMeant && !isCard:
			others = append(others, name)
		case isMeant,
			m.Driver != "" && driver == m.Driver,
			m.PCI != "" && place == m.PCI:
			cards = append(cards, name)
		}
	}
	if len(cards) == 0 {
		return others
	}
	return cards
}

// Address returns the address that is an interface's own, "" where it has none; sys is /sys. A
// card in a bond has the bond's for as long, so the permanent one counts where there is one.
func Address(sys, name string) string {
	dir := filepath.Join(sys, "class/net", name)
	if own := read(filepath.Join(dir, "bonding_slave/perm_hwaddr")); own != "" {
		return own
	}
	if sys == "/sys" { // the kernel does not know those elsewhere
		if own := Permanent(name); own != "" {
			return own
		}
	}
	return read(filepath.Join(dir, "address"))
}

// read returns the text of a file, "" where there is none: interfaces come and go.
func read(file string) string {
	data, _ := os.ReadFile(file) // see above
	return strings.TrimSpace(string(data))
}

// Device returns the driver and the place on the PCI bus of the device behind an interface,
// "" where it has none; sys is /sys. A bond or a VLAN has no device.
func Device(sys, name string) (driver, place string, isDevice bool) {
	dir := filepath.Join(sys, "class/net")
	if _, err := os.Readlink(filepath.Join(dir, name, "device")); err != nil {
		return "", "", false
	}
	if to, err := os.Readlink(filepath.Join(dir, name, "device/driver")); err == nil {
		driver = filepath.Base(to)
	}
	return driver, pci(dir, name), true
}

// pci is the place of the card on the bus: the nearest directory above the
// interface's that has the form of one, as a virtio card has one device more.
func pci(dir, name string) string {
	at, err := filepath.EvalSymlinks(filepath.Join(dir, name, "device"))
	if err != nil {
		return ""
	}
	for ; len(at) > 1; at = filepath.Dir(at) {
		if base := filepath.Base(at); len(base) == len("0000:00:1f.0") && base[4] == ':' && base[7] == ':' && base[10] == '.' {
			return base
		}
	}
	return ""
}
