// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kernel is the Device of this network namespace, by the SIOCETHTOOL ioctl; the
// structures are those of linux/ethtool.h. It asks for the features' names once:
// they are the kernel's, the same for every interface.
type Kernel struct {
	mu    sync.Mutex
	names []string
}

var _ Device = (*Kernel)(nil)

// NewKernel is the kernel as it runs.
func NewKernel() *Kernel { return &Kernel{} }

// Index implements Device.
func (*Kernel) Index(name string) (int, error) {
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

// block is ETHTOOL_GFEATURES' answer for 32 features.
type block struct{ available, requested, active, neverChanged uint32 }

const (
	maxBlocks   = 32 // 1024 features; Linux has some 64
	setFeatures = 4  // ETH_SS_FEATURES
	nameLength  = 32 // ETH_GSTRING_LEN
)

// Features implements Device.
func (k *Kernel) Features(name string) (map[string]State, error) {
	var states map[string]State
	err := withSocket(func(fd int) error {
		names, err := k.featureNames(fd, name)
		if err != nil {
			return err
		}
		answer := struct {
			cmd, size uint32
			blocks    [maxBlocks]block
		}{cmd: unix.ETHTOOL_GFEATURES, size: blocks(names)}
		if err := ethtool(fd, name, unsafe.Pointer(&answer)); err != nil {
			return err
		}
		states = make(map[string]State, len(names))
		for n, feature := range names {
			b, bit := answer.blocks[n/32], uint32(1)<<(n%32)
			states[feature] = State{
				Changeable: b.available&^b.neverChanged&bit != 0,
				Requested:  b.requested&bit != 0,
				Active:     b.active&bit != 0,
			}
		}
		return nil
	})
	return states, err
}

// Change implements Device.
func (k *Kernel) Change(name string, want map[string]bool) error {
	return withSocket(func(fd int) error {
		names, err := k.featureNames(fd, name)
		if err != nil {
			return err
		}
		request := struct {
			cmd, size uint32
			blocks    [maxBlocks]struct{ valid, requested uint32 }
		}{cmd: unix.ETHTOOL_SFEATURES, size: blocks(names)}
		found := 0
		for n, feature := range names {
			on, asked := want[feature]
			if !asked {
				continue
			}
			found++
			request.blocks[n/32].valid |= 1 << (n % 32)
			if on {
				request.blocks[n/32].requested |= 1 << (n % 32)
			}
		}
		if found != len(want) {
			return fmt.Errorf("%s has no such feature among %v", name, sorted(want))
		}
		return ethtool(fd, name, unsafe.Pointer(&request))
	})
}

func blocks(names []string) uint32 { return uint32(len(names)+31) / 32 }

// featureNames are all the kernel knows, in the order of their bits.
func (k *Kernel) featureNames(fd int, name string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names != nil {
		return k.names, nil
	}
	count := struct {
		cmd, _ uint32
		mask   uint64
		data   uint32
		_      uint32
	}{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << setFeatures}
	if err := ethtool(fd, name, unsafe.Pointer(&count)); err != nil {
		return nil, err
	}
	if count.mask == 0 || count.data == 0 || count.data > 32*maxBlocks {
		return nil, fmt.Errorf("the kernel says that there are %d features", count.data)
	}
	list := struct {
		cmd, set, length uint32
		text             [32 * maxBlocks][nameLength]byte
	}{cmd: unix.ETHTOOL_GSTRINGS, set: setFeatures, length: count.data}
	if err := ethtool(fd, name, unsafe.Pointer(&list)); err != nil {
		return nil, err
	}
	names := make([]string, min(list.length, count.data))
	for n := range names {
		names[n] = unix.ByteSliceToString(list.text[n][:])
	}
	k.names = names
	return names, nil
}

// ethtool is one SIOCETHTOOL ioctl: data is a structure that starts with its command.
func ethtool(fd int, name string, data unsafe.Pointer) error {
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq's union
	}{data: data}
	if len(name) >= len(request.name) {
		return unix.EINVAL
	}
	copy(request.name[:], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return missingOr(errno)
	}
	return nil
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
