// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"fmt"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item/ifreq"
)

// maxWords is how many words a mask of link modes may have; Linux has four.
const maxWords = 127

// linkSettings is struct ethtool_link_settings with its three masks: supported,
// advertised, and the partner's.
type linkSettings struct {
	cmd, speed                                          uint32
	duplex, port, phy, autoneg, mdio, mdix, mdixControl uint8
	words                                               int8
	transceiver, master, masterState, rate              uint8
	_                                                   [7]uint32
	masks                                               [3 * maxWords]uint32
}

// unknown is SPEED_UNKNOWN, of a link that is down.
const unknown = 1<<32 - 1

// link asks for the settings: the kernel answers the first time with the length of
// its masks alone, below zero.
func link(iface string) (*linkSettings, error) {
	s := &linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS}
	if err := ifreq.Ethtool(iface, unsafe.Pointer(s)); err != nil {
		return nil, err
	}
	words := -s.words
	if words <= 0 {
		return nil, fmt.Errorf("the kernel says that masks of link modes have %d words", words)
	}
	s = &linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS, words: words}
	err := ifreq.Ethtool(iface, unsafe.Pointer(s))
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
	return ifreq.Ethtool(iface, unsafe.Pointer(s))
}

// flags are the private flags of a driver.
type flags struct {
	names []string
	bits  uint32
}

const setPrivate = 2 // ETH_SS_PRIV_FLAGS

func private(iface string) (flags, error) {
	names, err := ifreq.Names(iface, setPrivate)
	if err != nil {
		return flags{}, err
	}
	value := struct{ cmd, bits uint32 }{cmd: unix.ETHTOOL_GPFLAGS}
	if len(names) > 0 {
		err = ifreq.Ethtool(iface, unsafe.Pointer(&value))
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
	return ifreq.Ethtool(iface, unsafe.Pointer(&value))
}
