// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/dt"
)

// iomem is that of a guest with a gigabyte: a device, memory with the kernel and what it keeps, and tables
// between two parts of the memory.
const iomem = `09000000-09000fff : ARMH0011:00
  09000000-09000fff : ARMH0011:00 ARMH0011:00
40000000-7be2ffff : System RAM
  40010000-4001ffff : reserved
  74400000-75caffff : Kernel code
  75cb0000-75ecffff : reserved
7be30000-7beeffff : reserved
7bef0000-7fffffff : System RAM
  7ff00000-7fffffff : reserved
4010000000-401fffffff : PCI ECAM
`

// stub writes a tree with a /chosen, as the EFI stub leaves it.
func stub(t testing.TB, chosen ...dt.Property) []byte {
	t.Helper()
	root := dt.NewNode("", dt.WithProperty(dt.PropertyU32("#address-cells", 2), dt.PropertyU32("#size-cells", 2)),
		dt.WithChildren(dt.NewNode("chosen", dt.WithProperty(chosen...))))
	var b bytes.Buffer
	if _, err := (&dt.FDT{Header: dt.Header{Magic: dt.Magic, Version: 17, LastCompVersion: 16}, RootNode: root}).Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// aKernel is the head of an Image that wants 32 MiB.
func aKernel() []byte {
	b := make([]byte, 4096)
	copy(b, "MZ@\xfa")
	binary.LittleEndian.PutUint64(b[0x10:], 32<<20)
	binary.LittleEndian.PutUint64(b[0x18:], 0xa)
	copy(b[0x38:], "ARMd")
	return b
}

// All parts are in free memory and apart, the kernel where kernels begin; the tree has what the next kernel
// starts with and still no node but /chosen; and the jump knows both.
func TestKernel(t *testing.T) {
	m := Machine{stub(t, dt.PropertyU64(uefi, 0x7fe30018), dt.PropertyString("bootargs", "before"), dt.PropertyU64("kaslr-seed", 7)), iomem}
	initrd := bytes.Repeat([]byte("initrd"), 1<<20)
	segments, entry, err := Place(m, aKernel(), initrd, "quiet panic=30")
	if err != nil {
		t.Fatal(err)
	}
	starts, parts := map[string]uint64{}, map[string][]byte{}
	for i, s := range segments {
		first, last := uint64(s.Phys.Start), uint64(s.Phys.Start)+uint64(s.Phys.Size)
		if first < 0x40000000 || last > 0x7be30000 || first < 0x40020000 && last > 0x40010000 {
			t.Errorf("a part at %#x to %#x", first, last)
		}
		for _, other := range segments[:i] {
			if s.Phys.Overlaps(other.Phys) {
				t.Errorf("%s and %s", s.Phys, other.Phys)
			}
		}
		head := string(s.Buf[:4])
		starts[head], parts[head] = first, s.Buf
	}
	const image, tree, jump = "MZ@\xfa", "\xd0\x0d\xfe\xed", "\xc4\x00\x00\x58"
	if at := starts[image]; len(parts) != 4 || at%granule != 0 || starts[tree]%8 != 0 || uint64(entry) != starts[jump] {
		t.Errorf("parts at %#x, entry %#x", starts, entry)
	}
	if want := between(starts[image], starts[tree]); !bytes.Equal(parts[jump], want) {
		t.Errorf("the jump is %x, want %x", parts[jump], want)
	}
	fdt, err := dt.ReadFDT(bytes.NewReader(parts[tree]))
	if err != nil || len(fdt.RootNode.Children) != 1 {
		t.Fatalf("%v, %v", fdt, err)
	}
	var from, to uint64
	said := ""
	for _, p := range fdt.RootNode.Children[0].Properties {
		said += p.Name + " "
		switch p.Name {
		case "linux,initrd-start":
			from = binary.BigEndian.Uint64(p.Value)
		case "linux,initrd-end":
			to = binary.BigEndian.Uint64(p.Value)
		case "bootargs":
			said += string(p.Value)
		}
	}
	if !strings.Contains(said, uefi) || !strings.Contains(said, "quiet panic=30\x00") || strings.Contains(said, "before") || strings.Contains(said, "kaslr") {
		t.Errorf("/chosen is %q", said)
	}
	if from != starts["init"] || to-from != uint64(len(initrd)) {
		t.Errorf("initrd from %#x to %#x, it is at %#x", from, to, starts["init"])
	}
}

func TestKernelRefuses(t *testing.T) {
	known := stub(t, dt.PropertyU64(uefi, 1))
	small := "40000000-40ffffff : System RAM\n"
	for want, c := range map[string]struct {
		m      Machine
		kernel []byte
	}{
		"no UEFI started this machine": {Machine{stub(t, dt.PropertyString("bootargs", "quiet")), iomem}, aKernel()},
		"read the device tree":         {Machine{[]byte("not one"), iomem}, aKernel()},
		"names no memory":              {Machine{known, "00000000-00000000 : System RAM\n"}, aKernel()},
		"read the kernel":              {Machine{known, iomem}, []byte("\x1f\x8b")},
		"place the kernel":             {Machine{known, small}, aKernel()},
	} {
		if _, _, err := Place(c.m, c.kernel, []byte("initrd"), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func FuzzFree(f *testing.F) {
	f.Add(iomem)
	f.Add("0-ffffffffffffffff : System RAM\n-\n : \n ff-0 : reserved\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range free(text).RAM() {
			if r.Size == 0 {
				t.Errorf("an empty range %s in %q", r, text)
			}
		}
	})
}
