// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Stack is a root made of read-only images under one writable upper.
type Stack struct {
	Images []string // image files, bottom first
	Mounts string   // folder for the images' mount points, made by Mount
	Upper  string   // folder for the tmpfs with upper and work, made by Mount
	Target string   // where the stacked root goes, must exist
	Size   string   // of the upper's tmpfs, for example "50%"; empty is the kernel's half of memory
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
	if err := os.MkdirAll(s.Upper, 0o755); err != nil {
		return err
	}
	options := "mode=0755"
	if s.Size != "" {
		options += ",size=" + s.Size
	}
	if err := unix.Mount("caisson-upper", s.Upper, "tmpfs", unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", s.Upper, err)
	}
	undo = append(undo, s.Upper)
	upper, work := filepath.Join(s.Upper, "upper"), filepath.Join(s.Upper, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
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

func mountImage(image, at string) error {
	f, err := os.Open(image)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	defer f.Close() // only read; the loop device holds the file
	device, err := attach(f)
	if err != nil {
		return fmt.Errorf("image %s: %w", image, err)
	}
	defer device.Close() // the mount holds the device
	if err := unix.Mount(device.Name(), at, "squashfs", unix.MS_RDONLY|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mount image %s: %w", image, err)
	}
	return nil
}

func unmount(at string) error {
	if err := unix.Unmount(at, 0); err != nil {
		return fmt.Errorf("unmount %s: %w", at, err)
	}
	return nil
}
