// SPDX-License-Identifier: Apache-2.0

// Here ext4 file systems are made, repaired and grown: with the programs of e2fsprogs,
// where the loader has them, and by the kernel. Whose a disk is was decided before.

package disk

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
)

// E2fsLimit ends a program. It is less than the time in which a loader must make progress, as
// each of them is; a disk whose check takes longer is set aside.
const E2fsLimit = 5 * time.Minute

// E2fsPrograms are mke2fs and e2fsck, where [paths] says that they are.
type E2fsPrograms struct{}

// E2fsInstalled reports whether they are there: a layer that was built without
// layer.stateDisk has a loader without them.
func E2fsInstalled() bool {
	return !slices.ContainsFunc(paths.DiskPrograms, func(name string) bool { _, err := os.Stat(name); return err != nil })
}

// Make makes an ext4 file system in the bytes of a device from offset on.
func (E2fsPrograms) Make(device, label string, offset, bytes int64) error {
	// No block is kept for root, who is the only one to write; nothing is discarded, since
	// the disk is empty. What mke2fs leaves to the kernel, the kernel does once it is mounted.
	code, said, err := callE2fs(paths.Mke2fs, "-q", "-F", "-t", "ext4", "-m", "0", "-L", label, "-E",
		fmt.Sprintf("offset=%d,nodiscard", offset), device, fmt.Sprintf("%dk", bytes>>10))
	if err == nil && code != 0 {
		err = fmt.Errorf("mke2fs ended with %d: %s", code, said)
	}
	return err
}

// Preen runs e2fsck as a boot does: 0 is a file system that was well, 1 and 2 one that
// is now, 4 one that needs a person. 8 alone says that e2fsck could not do its work, as on a
// disk that takes no writes: the mount says what becomes of that.
func (E2fsPrograms) Preen(device string, force bool) (string, error) {
	args := []string{"-p", device}
	if force {
		args = append([]string{"-f"}, args...)
	}
	code, said, err := callE2fs(paths.E2fsck, args...)
	switch {
	case err != nil:
		return "", err
	case code == 0, code == 8:
		return "", nil
	case code <= 3:
		return said, nil
	}
	return "", fmt.Errorf("e2fsck could not repair it by itself, and ended with %d: %s", code, said)
}

// callE2fs runs a program and returns the end of what it said.
func callE2fs(name string, args ...string) (code int, said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), E2fsLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = 5 * time.Second
	out := &ext4End{}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	said = strings.Join(strings.FieldsFunc(string(out.text), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), said, nil
	}
	if err != nil {
		return 0, said, fmt.Errorf("run %s: %w", name, errors.Join(err, ctx.Err()))
	}
	return 0, said, nil
}

// ext4End keeps the last of what is written to it.
type ext4End struct{ text []byte }

const kept = 600

func (e *ext4End) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	if len(e.text) > kept {
		e.text = append([]byte("…"), e.text[len(e.text)-kept:]...)
	}
	return len(p), nil
}

// setUUID is EXT4_IOC_SETFSUUID of linux/ext4.h (6.0); x/sys has no name for it.
const setUUID = 0x4008662c

// RenewExt4 gives a mounted ext4 file system a random identifier, where it has the one that is
// given: that of an image, which every copy has.
func RenewExt4(device, at, image string) error {
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

// resizeFS is EXT4_IOC_RESIZE_FS of linux/ext4.h; x/sys has no name for it.
const resizeFS = 0x40086610

// GrowExt4 has a mounted ext4 file system take what its device has more, where that is at
// least much bytes. Of any other file system it changes nothing.
func GrowExt4(device, at string, much int64) error {
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

// IsExt4 reports whether a device says that it has an ext file system.
func IsExt4(device string) bool {
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
