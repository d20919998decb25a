// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Attach binds what file has from a byte on to a free loop device, read-only and gone when
// the last user goes, and returns the open device. The mount holds it once it is mounted.
func Attach(file *os.File, from int64) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close() // nothing is written through it
	config := unix.LoopConfig{Fd: uint32(file.Fd())}
	config.Info.Offset = uint64(from)
	config.Info.Flags = unix.LO_FLAGS_READ_ONLY | unix.LO_FLAGS_AUTOCLEAR
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		_ = device.Close()               // it was never set up
		if !errors.Is(err, unix.EBUSY) { // another process took it first
			return nil, fmt.Errorf("set up /dev/loop%d: %w", n, err)
		}
	}
}
