// SPDX-License-Identifier: Apache-2.0

// The kernel is asked by ioctl, as netdevice(7) says, for the number of an interface, and for all
// that SIOCETHTOOL knows.

package netif

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
