// SPDX-License-Identifier: Apache-2.0

// Package kernel does what the loader alone asks of kernels: it loads modules into the one that
// runs, has a watchdog start the machine over when the loader hangs, and starts the layer's own
// kernel by kexec, on arm64 at a place in memory that it decides itself.
//
// The service may do none of that: its unit denies the calls. Only bootagent/boot/initramfs
// imports it.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/spec"
)

// KexecMarker is on the command line of a kernel that this package started, so that
// a difference that a kexec did not remove is not tried again for ever. See [RanKexec].
const KexecMarker = spec.KexecMarker

// KexecCounted is the word, before its value, by which a loader tells the one behind its
// kexec for which overlay this boot was counted, see [CountedFor].
const KexecCounted = "caisson.counted="

// CountedFor returns for which overlay the loader before this kexec counted the boot:
// its digest, "" where it counted for none. ok is false where it did not say.
func CountedFor(running []string) (overlay string, ok bool) {
	for _, word := range running {
		if overlay, ok = strings.CutPrefix(word, KexecCounted); ok {
			return overlay, true
		}
	}
	return "", false
}

// passed are the parameters that firmware and boot loaders legitimately add: which
// card and which node this is, where its consoles are, and how it reaches its network. Any
// other word on the running line that the overlay does not name was signed by nobody.
var passed = append([]string{"BOOTIF", "caisson.node", "console", "earlycon", "earlyprintk"}, table.Names...)

// KexecLine is a command line beside the one that runs.
type KexecLine struct {
	Words   []string // what the kernel must be started with
	Dropped []string // words of the running line that do not belong to it
	Differs bool     // the running line is another one
}

// KexecArguments returns the command line that the kernel should have had. site are the
// arguments in the loader's bootstrap, want those of the overlay. Of the running
// line only what a loader may pass is kept, and nothing that the site has since
// taken away. A default such as panic=30 that is missing alone does not count as a difference:
// the loader has set what it stands for.
func KexecArguments(running, site, want []string) KexecLine {
	var l KexecLine
	full := spec.KernelLine(want)
	for _, word := range running {
		switch {
		case word == KexecMarker, strings.HasPrefix(word, KexecCounted), strings.HasPrefix(word, "initrd="), strings.HasPrefix(word, "BOOT_IMAGE="):
		case slices.Contains(full, word):
		case isPassedOn(word) && !slices.Contains(site, word):
			l.Words = append(l.Words, word)
		default:
			l.Dropped = append(l.Dropped, word)
		}
	}
	missing := func(word string) bool { return !slices.Contains(running, word) }
	l.Differs = len(l.Dropped) > 0 || slices.ContainsFunc(want, missing)
	l.Words = append(append(l.Words, full...), KexecMarker)
	return l
}

func isPassedOn(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	return slices.Contains(passed, name)
}

// loaderType is the type that kexec_file_load(2) leaves in the boot parameters of an x86
// kernel, where firmware's loaders have numbers of their own.
const loaderType = 0xd

// RanKexec reports whether the running kernel was started by this package. The marker
// alone does not say so: anyone who writes the first command line can write it,
// and would have the comparison of arguments skipped. proc is /proc; a kernel that
// does not tell its loader is taken at the marker's word.
func RanKexec(running []string, proc string) bool {
	if !slices.Contains(running, KexecMarker) {
		return false
	}
	data, err := os.ReadFile(proc + "/sys/kernel/bootloader_type")
	if err != nil {
		return true // not x86
	}
	var kind int
	_, err = fmt.Sscan(string(data), &kind)
	return err == nil && kind>>4 == loaderType
}

// Load gives the running kernel the one that [Enter] starts, see kexec_file_load(2), and kexec_load(2)
// for kernels of arm64 without it. The loader's kernel, whatever the network served, only has to come
// this far: what runs is the kernel that the signed layer names, with the arguments that the signed
// overlay names. An error is the running kernel's, and leaves the loader all that it works with.
func Load(kernel, initrd *os.File, line []string) error {
	if err := loadKexec(kernel, initrd, strings.Join(line, " ")); err != nil {
		return fmt.Errorf("load kernel for kexec: %w", err)
	}
	return nil
}

// Enter calls last, which may take away what the loader works with, and jumps into the loaded
// kernel. It returns only with an error.
func Enter(last func()) error {
	if err := Quiesce("/sys"); err != nil {
		return err
	}
	unix.Sync()
	last()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC); err != nil {
		return fmt.Errorf("kexec: %w", err)
	}
	return nil
}

// Quiesce takes the drivers off the network cards below sys (/sys). A card that
// is left alone goes on writing what arrives into the buffers that the old kernel
// gave it, which are the new kernel's memory: virtio-net has no shutdown of its
// own before Linux 6.15, and a guest that was spoken to during a kexec died of it.
// Unbinding resets the device; the new kernel finds it as after power-on.
func Quiesce(sys string) error {
	cards, err := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range cards {
		device, err := filepath.EvalSymlinks(link)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		unbind := filepath.Join(device, "driver", "unbind")
		if err := os.WriteFile(unbind, []byte(filepath.Base(device)), 0); err != nil {
			errs = append(errs, fmt.Errorf("take the driver off %s: %w", filepath.Base(filepath.Dir(link)), err))
		}
	}
	return errors.Join(errs...)
}
