// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/mediatype"
)

// Image is one file system in a file.
type Image struct {
	Path string
	Type string // media type, a key of fileSystems
	Tree *Tree  // nil: nothing checks what is read; the caller has read all of it
}

// fileSystems maps the media types of images to what mount(2) calls the file
// system in them.
var fileSystems = map[string]string{
	mediatype.Squashfs: "squashfs",
}

// Stack is a root made of read-only images under one writable upper.
//
// A lower image shows what one above it hides, closes or takes set-user-ID from,
// and so do the upper's directories: only root can enter Mounts and Upper, and
// no program there runs as its owner. Through Target it does: overlayfs asks its
// own mount for that, not those that it is made of.
type Stack struct {
	Images []Image // bottom first
	Mounts string  // directory for the images' mount points, made by Mount
	Upper  string  // directory for the tmpfs with upper and work, made by Mount
	Target string  // where the stacked root goes, must exist
	Size   string  // of the upper's tmpfs, for example "50%"; empty is the kernel's half of memory
}

// What keeps users out of the parts of a stack; variables for the test that takes
// them away.
var (
	partMode  os.FileMode = 0o700
	partFlags uintptr     = unix.MS_NOSUID | unix.MS_NODEV
)

// closed makes dir where it is missing and lets only root enter it.
func closed(dir string) error {
	if err := os.MkdirAll(dir, partMode); err != nil {
		return err
	}
	return os.Chmod(dir, partMode)
}

// Mount mounts the images and stacks them. When it fails nothing stays mounted.
func (s Stack) Mount() (err error) {
	var undo []string
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, unmount(undo[i]))
		}
	}()
	if err := closed(s.Mounts); err != nil {
		return err
	}
	lowers := make([]string, len(s.Images))
	for i, image := range s.Images {
		at := filepath.Join(s.Mounts, fmt.Sprint(i))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := image.Mount(at); err != nil {
			return err
		}
		undo = append(undo, at)
		lowers[len(lowers)-1-i] = at // overlayfs wants the topmost first
	}
	if err := closed(s.Upper); err != nil {
		return err
	}
	options := fmt.Sprintf("mode=%#o", partMode)
	if s.Size != "" {
		options += ",size=" + s.Size
	}
	if err := unix.Mount("caisson-upper", s.Upper, "tmpfs", partFlags, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", s.Upper, err)
	}
	undo = append(undo, s.Upper)
	upper, work := filepath.Join(s.Upper, "upper"), filepath.Join(s.Upper, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil { // the root of the stack has this mode
			return err
		}
	}
	// redirect_dir and metacopy stay off: a lower is an image that others mount too.
	options = "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + upper + ",workdir=" + work +
		",redirect_dir=off,metacopy=off,index=off,xino=off"
	return fault.In(unix.Mount("caisson", s.Target, "overlay", 0, options), "stack %d images on %s", len(lowers), s.Target)
}

// Unmount takes the stack down, topmost first.
func (s Stack) Unmount() error {
	err := errors.Join(unmount(s.Target), unmount(s.Upper))
	for i := range s.Images {
		err = errors.Join(err, unmount(filepath.Join(s.Mounts, fmt.Sprint(i))))
	}
	return err
}

// Mount mounts the image on a directory, read-only; no program in it runs as its owner.
func (image Image) Mount(at string) error {
	fstype := fileSystems[image.Type]
	if fstype == "" {
		return fmt.Errorf("image %s: the media type %q names no file system known here", image.Path, image.Type)
	}
	f, err := os.Open(image.Path)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	defer f.Close() // only read; the loop device holds the file
	device, err := image.device(f)
	if err != nil {
		return fmt.Errorf("image %s: %w", image.Path, err)
	}
	defer device.Close() // the mount holds the device
	return fault.In(unix.Mount(device.Name(), at, fstype, unix.MS_RDONLY|partFlags, ""), "mount image %s", image.Path)
}

// device opens the device that an image's file is mounted from.
func (image Image) device(f *os.File) (*os.File, error) {
	if image.Tree == nil {
		return Attach(f, 0)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if device, err := shared(image, info); device != nil || err != nil {
		return device, err
	}
	loop, err := Attach(f, 0)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // the device above it holds it
	return checked(image, info.Size(), loop)
}

func unmount(at string) error {
	return fault.In(unix.Unmount(at, 0), "unmount %s", at)
}

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
