// SPDX-License-Identifier: Apache-2.0

package e2fs

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resizeFS is EXT4_IOC_RESIZE_FS of linux/ext4.h; x/sys has no name for it.
const resizeFS = 0x40086610

// Grow has a mounted ext4 file system take what its device has more, where that is at
// least much bytes. Of any other file system it changes nothing.
func Grow(device, at string, much int64) error {
	d, err := os.Open(device)
	if err != nil {
		return err
	}
	defer d.Close() // only read
	size, err := d.Seek(0, 2)
	if err != nil {
		return err
	}
	has, block, err := extent(d)
	if err != nil || size < has*block+much {
		return err
	}
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	defer dir.Close() // only asked
	count := uint64(size / block)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resizeFS, uintptr(unsafe.Pointer(&count))); errno != 0 {
		return fmt.Errorf("grow the file system from %d to %d bytes: %w", has*block, size, errno)
	}
	return nil
}

// extent returns how many blocks an ext file system has, and how large one is; 0 of any
// other file system is the device.
func extent(d *os.File) (blocks, block int64, err error) {
	super := make([]byte, 1024)
	if _, err := d.ReadAt(super, 1024); err != nil {
		return 0, 0, err
	}
	le := binary.LittleEndian
	if !isExt(super) || le.Uint32(super[0x18:]) > 6 {
		return 1 << 40, 1, nil // as large as its device, as far as this is concerned
	}
	return int64(le.Uint32(super[4:])) | int64(le.Uint32(super[0x150:]))<<32, 1024 << le.Uint32(super[0x18:]), nil
}

// On reports whether a device says that it has an ext file system.
func On(device string) bool {
	d, err := os.Open(device)
	if err != nil {
		return false // the mount says what is wrong
	}
	defer d.Close() // only read
	super := make([]byte, 1024)
	_, err = d.ReadAt(super, 1024)
	return err == nil && isExt(super)
}

// isExt reports whether a superblock is of an ext file system.
func isExt(super []byte) bool { return super[0x38] == 0x53 && super[0x39] == 0xef }
