// SPDX-License-Identifier: Apache-2.0

// Place decides where in memory the next kernel of a machine of arm64 goes, for kexec_load(2): there
// a program, not the kernel, places kernel, initrd and device tree, and jumps by instructions of its own. See
// the kernel's Documentation/arch/arm64/booting.rst and arch/arm/uefi.rst.
//
// Its machines have UEFI. Their device tree is the stub's: no node but /chosen, with what UEFI told of itself,
// from which the next kernel learns where memory is. It stays so, or that kernel would take no ACPI.
//
// It loads nothing, and runs anywhere.

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/u-root/u-root/pkg/boot/image"
	"github.com/u-root/u-root/pkg/boot/kexec"
	"github.com/u-root/u-root/pkg/dt"
)

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
