// SPDX-License-Identifier: Apache-2.0

// Package nics sets what network interfaces have: their offload features, see [Features], lengths
// of rings, numbers of channels, coalescing, flow control, speed and private flags of
// the driver, as ethtool(8) -G, -L, -C, -A, -s and --set-priv-flags do, and puts the
// originals back.
//
// Interfaces are found by name, address, driver or place on the PCI bus, at each
// look: one that comes later is set then. A value above what the driver says it can
// do is refused before anything is written. Only bootagent/items imports it.
package nics

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/items/item/netif"
	"github.com/caisson-os/caisson/bootagent/items/tunable"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "nics"

// New returns the item for want; sys is /sys.
func New(want []spec.NIC, sys string, j item.Journal) *tunable.Item {
	var settings []tunable.Setting
	for _, n := range want {
		names := netif.Find(sys, n.Match)
		if len(names) == 0 {
			names = []string{n.Match.String()} // which no interface is called
		}
		for _, name := range names {
			for _, s := range n.Settings {
				if s.Group == spec.NICFeatures {
					continue // kind ethtool's
				}
				settings = add(settings, tunable.Setting{Key: name + "/" + s.Group + "/" + s.Name, Value: s.Value, Invalid: rules.NIC(n)})
			}
		}
	}
	return tunable.New(tunable.Kind{Name: Name, Files: kernel{}, Same: same, Refuse: above, Keep: keep,
		Coupled: func(key string) []string { return kernel{}.beside(key) }}, settings, j)
}

// keep adds an interface with one setting.
func keep(items *spec.Items, key, value string) {
	parts := strings.SplitN(key, "/", 3) // interface, group and name
	items.NICs = append(items.NICs, spec.NIC{ID: key, Match: spec.NICMatch{Name: parts[0]},
		Settings: []spec.NICSetting{{Group: parts[1], Name: parts[2], Value: value}}})
}

// add adds a setting, unless another entry means the same interface: then it is the
// first one, which is refused when they differ.
func add(settings []tunable.Setting, s tunable.Setting) []tunable.Setting {
	at := slices.IndexFunc(settings, func(other tunable.Setting) bool { return other.Key == s.Key })
	if at < 0 {
		return append(settings, s)
	}
	if !same(s.Key, settings[at].Value, s.Value) {
		settings[at].Invalid = errors.Join(settings[at].Invalid, fmt.Errorf("two entries mean this interface: %s and %s",
			settings[at].Value, s.Value))
	}
	return settings
}

// same reports whether two values mean the same.
func same(_, a, b string) bool {
	return strings.EqualFold(a, b) || tunable.Same(a, b)
}

// above says that the driver cannot do as much as value, where it says how much.
func above(key, value string) error {
	most, ok := kernel{}.most(key)
	n, err := number(value)
	if !ok || err != nil || n <= most {
		return nil
	}
	return fmt.Errorf("the driver takes at most %d", most)
}

// maxWords is how many words a mask of link modes may have; Linux has four.
const maxWords = 127

// linkSettings is struct ethtool_link_settings with its three masks: supported,
// advertised, and the partner's.
type linkSettings struct {
	cmd, speed                 uint32
	duplex, port, phy, autoneg uint8
	mdi                        [3]uint8 // mdio, mdix, and who decides about that
	words                      int8
	others                     [4 + 7*4]uint8 // transceiver, master, its state, rate, and what is reserved
	masks                      [3 * maxWords]uint32
}

// unknown is SPEED_UNKNOWN, of a link that is down.
const unknown = 1<<32 - 1

// link asks for the settings: the kernel answers the first time with the length of
// its masks alone, below zero.
func link(iface string) (*linkSettings, error) {
	s := &linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS}
	if err := netif.Ethtool(iface, unsafe.Pointer(s)); err != nil {
		return nil, err
	}
	words := -s.words
	if words <= 0 {
		return nil, fmt.Errorf("the kernel says that masks of link modes have %d words", words)
	}
	s = &linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS, words: words}
	err := netif.Ethtool(iface, unsafe.Pointer(s))
	return s, err
}

func readLink(iface, name string) (string, error) {
	s, err := link(iface)
	if err != nil {
		return "", err
	}
	switch name {
	case "autoneg":
		return onOff(s.autoneg != 0), nil
	case "speed":
		if s.speed == unknown {
			return "unknown", nil
		}
		return strconv.FormatUint(uint64(s.speed), 10), nil
	case "duplex":
		if d := map[uint8]string{0: "half", 1: "full"}[s.duplex]; d != "" {
			return d, nil
		}
		return "unknown", nil
	}
	return "", fmt.Errorf("there is no setting %s of link", name)
}

func writeLink(iface, name, value string) error {
	s, err := link(iface)
	if err != nil {
		return err
	}
	s.cmd = unix.ETHTOOL_SLINKSETTINGS
	switch name {
	case "autoneg":
		if s.autoneg = 0; value == "on" {
			s.autoneg = 1
			n := int(s.words)
			copy(s.masks[n:2*n], s.masks[:n]) // all that it can do is offered
		}
	case "speed":
		n, err := strconv.ParseUint(value, 10, 32)
		if value == "unknown" {
			n, err = unknown, nil
		}
		if err != nil {
			return err
		}
		s.speed = uint32(n)
	case "duplex":
		s.duplex = map[string]uint8{"half": 0, "full": 1, "unknown": 0xff}[value]
	}
	return netif.Ethtool(iface, unsafe.Pointer(s))
}

// flags are the private flags of a driver.
type flags struct {
	names []string
	bits  uint32
}

const setPrivate = 2 // ETH_SS_PRIV_FLAGS

func private(iface string) (flags, error) {
	names, err := netif.Names(iface, setPrivate)
	if err != nil {
		return flags{}, err
	}
	value := struct{ cmd, bits uint32 }{cmd: unix.ETHTOOL_GPFLAGS}
	if len(names) > 0 {
		err = netif.Ethtool(iface, unsafe.Pointer(&value))
	}
	return flags{names, value.bits}, err
}

// bit is the flag's; the kernel has a word of them.
func (f flags) bit(name string) (uint32, error) {
	for n, have := range f.names {
		if have == name && n < 32 {
			return 1 << n, nil
		}
	}
	return 0, fmt.Errorf("the driver has no private flag %q, but %q", name, f.names)
}

func (f flags) read(name string) (string, error) {
	bit, err := f.bit(name)
	return onOff(f.bits&bit != 0), err
}

func (f flags) write(iface, name string, on bool) error {
	bit, err := f.bit(name)
	if err != nil {
		return err
	}
	value := struct{ cmd, bits uint32 }{unix.ETHTOOL_SPFLAGS, f.bits &^ bit}
	if on {
		value.bits |= bit
	}
	return netif.Ethtool(iface, unsafe.Pointer(&value))
}
