// SPDX-License-Identifier: Apache-2.0

// Package kernel does what the loader alone asks of kernels: it loads modules into the one that
// runs, has a watchdog start the machine over when the loader hangs, changes settings for as long as the
// loader runs, and starts the layer's own kernel by kexec, on arm64 at a place in memory that it
// decides itself, or enters another root.
//
// The service may do none of that: its unit denies the calls. Only bootagent/boot/initramfs
// imports it.
package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/boot/image"
	"github.com/u-root/u-root/pkg/boot/kexec"
	"github.com/u-root/u-root/pkg/dt"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

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
		name, _, _ := strings.Cut(word, "=")
		switch {
		case word == spec.KexecMarker, strings.HasPrefix(word, KexecCounted), strings.HasPrefix(word, "initrd="),
			strings.HasPrefix(word, "BOOT_IMAGE="):
		case slices.Contains(full, word):
		case slices.Contains(passed, name) && !slices.Contains(site, word):
			l.Words = append(l.Words, word)
		default:
			l.Dropped = append(l.Dropped, word)
		}
	}
	missing := func(word string) bool { return !slices.Contains(running, word) }
	l.Differs = len(l.Dropped) > 0 || slices.ContainsFunc(want, missing)
	l.Words = append(append(l.Words, full...), spec.KexecMarker)
	return l
}

// loaderType is the type that kexec_file_load(2) leaves in the boot parameters of an x86
// kernel, where firmware's loaders have numbers of their own.
const loaderType = 0xd

// RanKexec reports whether the running kernel was started by this package. The marker
// alone does not say so: anyone who writes the first command line can write it,
// and would have the comparison of arguments skipped. proc is /proc; a kernel that
// does not tell its loader is taken at the marker's word.
func RanKexec(running []string, proc string) bool {
	if !slices.Contains(running, spec.KexecMarker) {
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
	return fault.In(loadKexec(kernel, initrd, strings.Join(line, " ")), "load kernel for kexec")
}

// Enter calls last, which may take away what the loader works with, and jumps into the loaded
// kernel. It returns only with an error.
func Enter(last func()) error {
	if err := Quiesce("/sys"); err != nil {
		return err
	}
	unix.Sync()
	last()
	return fault.In(unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC), "kexec")
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
		err = os.WriteFile(unbind, []byte(filepath.Base(device)), 0)
		errs = append(errs, fault.In(err, "take the driver off %s", filepath.Base(filepath.Dir(link))))
	}
	return errors.Join(errs...)
}

// Place decides where in memory the next kernel of a machine of arm64 goes, for kexec_load(2): there
// a program, not the kernel, places kernel, initrd and device tree, and jumps by instructions of its own. See
// the kernel's Documentation/arch/arm64/booting.rst and arch/arm/uefi.rst.
//
// Its machines have UEFI. Their device tree is the stub's: no node but /chosen, with what UEFI told of itself,
// from which the next kernel learns where memory is. It stays so, or that kernel would take no ACPI.
//
// It loads nothing, and runs anywhere.

// Machine describes the machine as its running kernel does.
type Machine struct {
	Tree  []byte // /sys/firmware/fdt
	Iomem string // /proc/iomem, as root reads it
}

// uefi is the property of /chosen by which a kernel knows that UEFI started its machine.
const uefi = "linux,uefi-system-table"

// stale are the properties of /chosen that were for the running kernel alone.
var stale = []string{"linux,elfcorehdr", "linux,usable-memory-range", "kaslr-seed", "rng-seed"}

// granule is where a kernel begins, and how far from there the other parts may.
const granule = 2 << 20

// Place places an uncompressed kernel (Image) with its initrd and its command line, and returns what is to be
// loaded where, and where the jump goes.
func Place(m Machine, kernel, initrd []byte, line string) (segments kexec.Segments, entry uintptr, err error) {
	tree, err := dt.ReadFDT(bytes.NewReader(m.Tree))
	if err != nil {
		return nil, 0, fmt.Errorf("read the device tree: %w", err)
	}
	chosen, ok := tree.RootNode.LookupChildByName("chosen")
	if ok {
		_, ok = chosen.LookProperty(uefi)
	}
	if !ok {
		return nil, 0, errors.New("no UEFI started this machine: its next kernel cannot be told where memory is")
	}
	memory := kexec.Memory{Phys: free(m.Iomem)}
	if len(memory.Phys) == 0 {
		return nil, 0, errors.New("/proc/iomem names no memory; only root sees addresses")
	}
	parsed, err := image.ParseFromBytes(kernel)
	if err != nil {
		return nil, 0, fmt.Errorf("read the kernel: %w", err)
	}
	at, err := memory.AddKexecSegmentExplicit(kernel, uint(max(parsed.Header.ImageSize, uint64(len(kernel)))),
		uint(parsed.Header.TextOffset), granule)
	if err != nil {
		return nil, 0, fmt.Errorf("place the kernel: %w", err)
	}
	disk, err := memory.AddKexecSegment(initrd)
	if err != nil {
		return nil, 0, fmt.Errorf("place the initrd: %w", err)
	}
	for _, name := range stale {
		chosen.RemoveProperty(name)
	}
	chosen.UpdateProperty("bootargs", append([]byte(line), 0))
	chosen.UpdateProperty("linux,initrd-start", number(uint64(disk.Start)))
	chosen.UpdateProperty("linux,initrd-end", number(uint64(disk.Start)+uint64(len(initrd))))
	var out bytes.Buffer
	if _, err := tree.Write(&out); err != nil {
		return nil, 0, fmt.Errorf("write the device tree: %w", err)
	}
	given, err := memory.AddKexecSegment(out.Bytes())
	if err != nil {
		return nil, 0, fmt.Errorf("place the device tree: %w", err)
	}
	jump, err := memory.AddKexecSegment(between(uint64(at.Start), uint64(given.Start)))
	if err != nil {
		return nil, 0, fmt.Errorf("place the jump: %w", err)
	}
	return memory.Segments, jump.Start, nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// between are the instructions that the running kernel jumps to: the tree's address in x0, nothing in x1 to x3,
// and on to the kernel.
func between(kernel, tree uint64) []byte {
	var b []byte
	for _, word := range []uint32{
		0x580000c4, // ldr x4, the first number behind the instructions
		0x580000e0, // ldr x0, the second
		0xaa1f03e1, // mov x1, xzr
		0xaa1f03e2, // mov x2, xzr
		0xaa1f03e3, // mov x3, xzr
		0xd61f0080, // br x4
	} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, kernel), tree)
}

// free reads of proc_iomem(5) the kernel's memory without what is reserved in it: tables of firmware and of
// interrupt controllers. The running kernel itself is not: the next one may take its place.
func free(iomem string) (memory kexec.MemoryMap) {
	var taken []kexec.TypedRange
	for line := range strings.Lines(iomem) {
		var first, last uint64
		span, name, _ := strings.Cut(strings.TrimSpace(line), " : ")
		if n, err := fmt.Sscanf(span, "%x-%x", &first, &last); err != nil || n != 2 || last <= first || last-first == 1<<64-1 {
			continue
		}
		r := kexec.TypedRange{Range: kexec.Range{Start: uintptr(first), Size: uint(last - first + 1)}, Type: kexec.RangeReserved}
		switch {
		case name == "System RAM" && line[0] != ' ':
			r.Type = kexec.RangeRAM
			memory = append(memory, r)
		case name == "reserved":
			taken = append(taken, r)
		}
	}
	if len(memory) == 0 {
		return nil
	}
	for _, r := range taken {
		memory.Insert(r)
	}
	return memory
}

// SwitchRoot makes root the root and runs its init. It returns only with an
// error. What the loader unpacked into memory is deleted first: nobody could
// reach it afterwards.
func SwitchRoot(root, init string) error {
	for _, m := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := os.MkdirAll(root+m, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m, root+m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", m, err)
		}
	}
	if err := emptyRoot(root); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root to /: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", init, unix.Exec(init, []string{init}, []string{"TERM=linux"}))
}

// emptyRoot frees the memory of the loader's own files. It never leaves the
// file system it begins in.
func emptyRoot(keep string) error {
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		return err
	}
	if root.Type != unix.RAMFS_MAGIC && root.Type != unix.TMPFS_MAGIC {
		return errors.New("the loader's root is not in memory; its files are not deleted")
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := "/" + e.Name()
		var there, here unix.Stat_t
		if unix.Lstat(name, &there) != nil || unix.Lstat("/", &here) != nil || there.Dev != here.Dev || name == keep {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("free the loader's memory: %w", err)
		}
	}
	return nil
}
