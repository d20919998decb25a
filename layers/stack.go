// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-os/caisson/internal/mediatype"

	"golang.org/x/sys/unix"
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
		if err := mountImage(image, at); err != nil {
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
	if err := unix.Mount("caisson", s.Target, "overlay", 0, options); err != nil {
		return fmt.Errorf("stack %d images on %s: %w", len(lowers), s.Target, err)
	}
	return nil
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
func (image Image) Mount(at string) error { return mountImage(image, at) }

func mountImage(image Image, at string) error {
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
	if err := unix.Mount(device.Name(), at, fstype, unix.MS_RDONLY|partFlags, ""); err != nil {
		return fmt.Errorf("mount image %s: %w", image.Path, err)
	}
	return nil
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
	if err := unix.Unmount(at, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}
