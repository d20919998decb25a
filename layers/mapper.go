// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapper is the open control device of the device mapper, see the kernel's
// include/uapi/linux/dm-ioctl.h. It names devices; what they are is their table.
type mapper struct{ control *os.File }

func openMapper() (*mapper, error) {
	f, err := os.OpenFile("/dev/mapper/control", os.O_RDWR|unix.O_CLOEXEC, 0)
	return &mapper{f}, err
}

func (m *mapper) close() { _ = m.control.Close() } // nothing is written through it

// answerRoom is how much an answer may have: a list of a few hundred devices. What does
// not fit is an error.
const answerRoom = 64 << 10

// do makes one call. It returns the device that it was about, and what the kernel says.
func (m *mapper) do(call uintptr, name string, flags, targets uint32, data []byte) (dev uint64, answer []byte, err error) {
	const start = (unix.SizeofDmIoctl + 7) &^ 7
	words := make([]uint64, (start+max(len(data), answerRoom))/8) // aligned as the kernel's struct is
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
	io := (*unix.DmIoctl)(unsafe.Pointer(&words[0]))
	io.Version = [3]uint32{unix.DM_VERSION_MAJOR, 0, 0}
	io.Data_size, io.Data_start, io.Flags, io.Target_count = uint32(len(raw)), start, flags, targets
	copy(io.Name[:len(io.Name)-1], name)
	copy(raw[start:], data)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, m.control.Fd(), call, uintptr(unsafe.Pointer(io))); errno != 0 {
		return 0, nil, errno
	}
	switch {
	case io.Flags&unix.DM_BUFFER_FULL_FLAG != 0:
		return 0, nil, fmt.Errorf("the device mapper's answer has more than %d bytes", answerRoom)
	case io.Data_start < start || io.Data_size < io.Data_start || int(io.Data_size) > len(raw):
		return io.Dev, nil, nil // nothing but the head
	}
	return io.Dev, raw[io.Data_start:io.Data_size], nil
}

// make makes a read-only device of one target, whose length is in bytes, and opens it.
// The kernel removes it with its last user.
func (m *mapper) make(name, target, table string, length int64) (*os.File, error) {
	if _, _, err := m.do(unix.DM_DEV_CREATE, name, unix.DM_READONLY_FLAG, 0, nil); err != nil {
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	device, err := m.start(name, target, table, length)
	// With its last user it goes, which after an error is at once.
	if _, _, gone := m.do(unix.DM_DEV_REMOVE, name, unix.DM_DEFERRED_REMOVE, 0, nil); gone != nil && err == nil {
		_ = device.Close() // only read
		err = fmt.Errorf("have device %s go with its last user: %w", name, gone)
	}
	return device, err
}

func (m *mapper) start(name, target, table string, length int64) (*os.File, error) {
	words := append([]byte(table), 0)
	words = append(words, make([]byte, -len(words)&7)...)
	spec := unix.DmTargetSpec{Length: uint64(length) / 512, Next: uint32(unix.SizeofDmTargetSpec + len(words))}
	copy(spec.Target_type[:len(spec.Target_type)-1], target)
	head := bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&spec)), unix.SizeofDmTargetSpec))
	if _, _, err := m.do(unix.DM_TABLE_LOAD, name, unix.DM_READONLY_FLAG, 1, append(head, words...)); err != nil {
		return nil, fmt.Errorf("load the table of device %s: %w", name, err)
	}
	dev, _, err := m.do(unix.DM_DEV_SUSPEND, name, 0, 0, nil) // without its flag, it resumes
	if err != nil {
		return nil, fmt.Errorf("start device %s: %w", name, err)
	}
	return openMapped(dev)
}

func openMapped(dev uint64) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/dev/dm-%d", unix.Minor(dev)), os.O_RDONLY|unix.O_CLOEXEC, 0)
}

// targets lists the kinds of targets that the kernel has now, those of modules that are
// not loaded left out.
func (m *mapper) targets() ([]string, error) {
	_, answer, err := m.do(unix.DM_LIST_VERSIONS, "", 0, 0, nil)
	return records(answer, 0, 16), err // next, version[3], name
}

// devices lists the names of all devices.
func (m *mapper) devices() ([]string, error) {
	_, answer, err := m.do(unix.DM_LIST_DEVICES, "", 0, 0, nil)
	return records(answer, 8, 12), err // dev, next, name
}

// records reads a list of the kernel's: each record has, at next, how far it is to the
// next one, and a name.
func records(list []byte, next, name int) (names []string) {
	for len(list) > name {
		text, _, _ := bytes.Cut(list[name:], []byte{0})
		if len(text) > 0 {
			names = append(names, string(text))
		}
		step := int(binary.NativeEndian.Uint32(list[next:]))
		if step < name || step > len(list) {
			break
		}
		list = list[step:]
	}
	return names
}

// status returns the status of the one target of a device.
func (m *mapper) status(name string) (string, error) {
	_, text, err := m.ask(name, 0)
	return text, err
}

// ask returns a device and its one target's status, or with DM_STATUS_TABLE_FLAG its table.
func (m *mapper) ask(name string, flags uint32) (dev uint64, text string, err error) {
	dev, answer, err := m.do(unix.DM_TABLE_STATUS, name, flags, 0, nil)
	if err != nil || len(answer) <= unix.SizeofDmTargetSpec {
		return 0, "", err
	}
	words, _, _ := bytes.Cut(answer[unix.SizeofDmTargetSpec:], []byte{0})
	return dev, string(words), nil
}

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
