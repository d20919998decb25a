// SPDX-License-Identifier: Apache-2.0

package e2fs

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setUUID is EXT4_IOC_SETFSUUID of linux/ext4.h (6.0); x/sys has no name for it.
const setUUID = 0x4008662c

// Renew gives a mounted ext4 file system a random identifier, where it has the one that is
// given: that of an image, which every copy has.
func Renew(device, at, image string) error {
	was, err := hex.DecodeString(strings.ReplaceAll(image, "-", ""))
	if err != nil {
		return err
	}
	d, err := os.Open(device)
	if err != nil {
		return err
	}
	defer d.Close() // only read
	super := make([]byte, 1024)
	if _, err := d.ReadAt(super, 1024); err != nil {
		return err
	}
	if !isExt(super) || !bytes.Equal(super[0x68:0x78], was) {
		return nil
	}
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	defer dir.Close() // only asked
	request := struct {
		length, flags uint32
		uuid          [16]byte
	}{length: 16}
	rand.Read(request.uuid[:])
	request.uuid[6], request.uuid[8] = request.uuid[6]&0x0f|0x40, request.uuid[8]&0x3f|0x80
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), setUUID, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("set the identifier of the file system: %w", errno)
	}
	return nil
}
