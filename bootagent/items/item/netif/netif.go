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
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

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

// The kernel is asked by ioctl, as netdevice(7) says, for the number of an interface, and for all
// that SIOCETHTOOL knows.

// ErrMissing is the answer for an interface that is not there.
var ErrMissing = errors.New("there is no such interface")

// Index identifies an interface, also by an alternative name; one that was deleted and made again
// has another.
func Index(name string) (int, error) {
	var index int
	err := withSocket(func(fd int) error {
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
			return missingOr(err)
		}
		index = int(request.Uint32())
		return nil
	})
	return index, err
}

// Called returns the name that an interface has by now, by its number, "" where it is gone.
func Called(index int) string {
	at, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return at.Name
}

// Ethtool is one SIOCETHTOOL ioctl: data is a structure of linux/ethtool.h, which
// starts with its command.
func Ethtool(name string, data unsafe.Pointer) error {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq's union
	}{data: data}
	if len(name) >= len(request.name) {
		return unix.EINVAL
	}
	copy(request.name[:], name)
	return withSocket(func(fd int) error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return missingOr(errno)
		}
		return nil
	})
}

// nameLength is ETH_GSTRING_LEN.
const nameLength = 32

// maxNames caps the names of a set, of which the kernel has some hundred.
const maxNames = 1024

// Names returns a set of names that belong to an interface, by the numbers of enum
// ethtool_stringset, in the order of their bits.
func Names(name string, set uint32) ([]string, error) {
	count := struct {
		cmd, _ uint32
		mask   uint64
		data   uint32
		_      uint32
	}{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << set}
	if err := Ethtool(name, unsafe.Pointer(&count)); err != nil {
		return nil, err
	}
	if count.mask == 0 || count.data == 0 {
		return nil, nil
	}
	if count.data > maxNames {
		return nil, fmt.Errorf("the kernel says that there are %d names", count.data)
	}
	list := struct {
		cmd, set, length uint32
		text             [maxNames][nameLength]byte
	}{cmd: unix.ETHTOOL_GSTRINGS, set: set, length: count.data}
	if err := Ethtool(name, unsafe.Pointer(&list)); err != nil {
		return nil, err
	}
	names := make([]string, min(list.length, count.data))
	for n := range names {
		names[n] = unix.ByteSliceToString(list.text[n][:])
	}
	return names, nil
}

// Permanent returns the address that the hardware of an interface has, colon separated, and ""
// where the kernel knows of none.
func Permanent(name string) string {
	address := struct {
		cmd, size uint32
		data      [32]byte // MAX_ADDR_LEN
	}{cmd: unix.ETHTOOL_GPERMADDR, size: 32}
	if err := Ethtool(name, unsafe.Pointer(&address)); err != nil || address.size > 32 || address.data == [32]byte{} {
		return ""
	}
	return net.HardwareAddr(address.data[:address.size]).String()
}

func missingOr(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return ErrMissing
	}
	return err
}

func withSocket(do func(fd int) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd) // each ioctl has had its answer
	return do(fd)
}
