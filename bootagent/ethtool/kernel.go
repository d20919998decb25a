// SPDX-License-Identifier: Apache-2.0

package ethtool

import (
	"errors"
	"fmt"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"
)

// Kernel is the Device of this network namespace, by the SIOCETHTOOL ioctl.
type Kernel struct{}

var _ Device = Kernel{}

// Index implements Device.
func (Kernel) Index(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); errors.Is(err, unix.ENODEV) {
		return 0, ErrMissing
	} else if err != nil {
		return 0, err
	}
	return int(request.Uint32()), nil
}

// Features implements Device.
func (Kernel) Features(name string) (map[string]State, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	raw, err := e.FeaturesWithState(name)
	if errors.Is(err, unix.ENODEV) {
		return nil, ErrMissing
	}
	if err != nil {
		return nil, err
	}
	states := make(map[string]State, len(raw))
	for feature, s := range raw {
		states[feature] = State{Changeable: s.Available && !s.NeverChanged, Requested: s.Requested, Active: s.Active}
	}
	return states, nil
}

// Change implements Device.
func (Kernel) Change(name string, want map[string]bool) error {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Change(name, want)
}
