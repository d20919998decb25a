// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cpio"
)

// module is an ELF file that has only what modinfo(8) reads.
func module(t *testing.T, firmware ...string) []byte {
	t.Helper()
	info := "license=GPL\x00"
	for _, name := range firmware {
		info += "firmware=" + name + "\x00"
	}
	names := "\x00.modinfo\x00.shstrtab\x00"
	const head, section = 64, 64
	var b bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: head, Shentsize: section, Shnum: 3, Shstrndx: 2,
		Shoff: uint64(head + len(info) + len(names))}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	for _, part := range []any{header, []byte(info), []byte(names), elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: head, Size: uint64(len(info))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(head + len(info)), Size: uint64(len(names))}} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// Firmware is taken along under the name that the driver asks for, also where the
// package has a link there; a module that finds none is reported with the package.
func TestFirmware(t *testing.T) {
	dir := t.TempDir()
	firmware := filepath.Join(dir, "usr/lib/firmware")
	for name, text := range map[string]string{"intel/ice/ddp/ice-1.3.41.0.pkg": "ice", "tigon/tg3.bin": "tg3"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(firmware, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(firmware, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("ice-1.3.41.0.pkg", filepath.Join(firmware, "intel/ice/ddp/ice.pkg")); err != nil {
		t.Fatal(err)
	}
	m := &modules{root: &root.Root{Lowers: []string{dir}}}
	wants := map[string][]string{}
	for name, files := range map[string][]string{"ice": {"intel/ice/ddp/ice.pkg"}, "tg3": {"tigon/tg3_tso.bin", "tigon/tg3.bin"}, "r8169": {"rtl_nic/rtl8168h-2.fw"},
		"r8152": {"rtl_nic/rtl8156b-2.fw"}, "acenic": {"acenic/tg1.bin"}, "virtio_net": nil} {
		wants[name] = wantsFirmware(module(t, files...))
		if !slices.Equal(wants[name], files) {
			t.Fatalf("%s wants %q, want %q", name, wants[name], files)
		}
	}
	var report Report
	a := cpio.New()
	if err := m.packFirmware(t.Context(), a, wants, &report); err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if _, err := a.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	if got := unpacked(t, data.Bytes()); len(got) != 2 || got["/lib/firmware/intel/ice/ddp/ice.pkg"] != "ice" || got["/lib/firmware/tigon/tg3.bin"] != "tg3" || report.FirmwareBytes != 6 {
		t.Errorf("taken along: %q, %+v", got, report)
	}
	if want := map[string][]string{"firmware-realtek": {"r8152", "r8169"}, "": {"acenic"}}; !maps.EqualFunc(report.Lacking, want, slices.Equal) {
		t.Errorf("lacking are %q, want %q", report.Lacking, want)
	}
	for _, p := range firmwarePackages {
		if !strings.HasPrefix(p.name, "firmware-") {
			t.Errorf("%q is not a package of firmware", p.name)
		}
	}
}

// TestFirmwareCompressed: as Ubuntu and others pack it, and as a driver asks for it.
func TestFirmwareCompressed(t *testing.T) {
	dir := t.TempDir()
	for name, tool := range map[string]string{"bnx2x/e2.fw.zst": "zstd", "ice/ice-1.pkg.xz": "xz"} {
		at := filepath.Join(dir, "usr/lib/firmware", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var packed []byte
		var err error
		if tool == "zstd" {
			w, werr := zstd.NewWriter(nil)
			if werr != nil {
				t.Fatal(werr)
			}
			packed = w.EncodeAll([]byte("firmware of zstd"), nil)
		} else {
			cmd := exec.CommandContext(t.Context(), "xz", "--stdout")
			cmd.Stdin = strings.NewReader("firmware of xz")
			packed, err = cmd.Output()
		}
		if err == nil {
			err = os.WriteFile(at, packed, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("ice-1.pkg.xz", filepath.Join(dir, "usr/lib/firmware/ice/ice.pkg.xz")); err != nil {
		t.Fatal(err)
	}
	m, a := &modules{root: &root.Root{Lowers: []string{dir}}}, cpio.New()
	var report Report
	err := m.packFirmware(t.Context(), a, map[string][]string{"bnx2x": {"bnx2x/e2.fw"}, "ice": {"ice/ice.pkg"}}, &report)
	if want := int64(len("firmware of zstd") + len("firmware of xz")); err != nil || report.Firmware != 2 || report.FirmwareBytes != want || report.Lacking != nil {
		t.Errorf("%v: %+v, want %d bytes", err, report, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "usr/lib/firmware/bnx2x/e2.fw.zst"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.packFirmware(t.Context(), cpio.New(), map[string][]string{"bnx2x": {"bnx2x/e2.fw"}}, &report); err == nil || !strings.Contains(err.Error(), "bnx2x/e2.fw.zst") {
		t.Errorf("damaged firmware: %v", err)
	}
}
