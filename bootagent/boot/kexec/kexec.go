// SPDX-License-Identifier: Apache-2.0

// Package kexec starts the layer's own kernel from the loader, see
// kexec_file_load(2). The loader's kernel, whatever the network served, only has
// to come this far; what runs is the kernel that the signed layer names, with
// the arguments that the signed overlay names.
//
// Only the initramfs stage imports it.
package kexec

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Marker is on the command line of a kernel that this package started, so that
// a difference that a kexec did not remove is not tried again for ever.
const Marker = "caisson.kexec=1"

// Arguments returns the command line that the kernel should have had, and
// whether that differs from the one it has. loader are the site's arguments as
// the loader was born with them, want those of the overlay; words that belong to
// neither (BOOTIF, caisson.node, what the boot loader adds) are kept.
func Arguments(running, loader, want []string) (line []string, differs bool) {
	for _, w := range running {
		stale := slices.Contains(loader, w) && !slices.Contains(want, w)
		loaders := w == Marker || strings.HasPrefix(w, "initrd=") || strings.HasPrefix(w, "BOOT_IMAGE=")
		switch {
		case stale:
			differs = true
		case loaders, slices.Contains(want, w):
		default:
			line = append(line, w)
		}
	}
	for _, w := range want {
		if !slices.Contains(running, w) {
			differs = true
		}
		line = append(line, w)
	}
	return append(line, Marker), differs
}

// Start loads kernel and initrd and jumps. It returns only with an error.
func Start(kernel, initrd *os.File, line []string) error {
	if err := unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), strings.Join(line, " "), 0); err != nil {
		return fmt.Errorf("load kernel for kexec: %w", err)
	}
	if err := Quiesce("/sys"); err != nil {
		return err
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC); err != nil {
		return fmt.Errorf("kexec: %w", err)
	}
	return nil
}
