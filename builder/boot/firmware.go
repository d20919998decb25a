// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/plain"
)

// firmwarePackages are the packages of Debian 13, component non-free-firmware, that
// bring what modules of the loader ask for, by how the names of the files begin;
// from the archive's Contents-all. Debian 12 has e100 and intel/ice in
// firmware-misc-nonfree.
var firmwarePackages = []struct{ prefix, name string }{
	{"3com/", "firmware-misc-nonfree"}, {"advansys/", "firmware-misc-nonfree"}, {"cxgb3/", "firmware-misc-nonfree"},
	{"cxgb4/", "firmware-misc-nonfree"},
	{"ene-ub6250/", "firmware-misc-nonfree"}, {"kaweth/", "firmware-misc-nonfree"}, {"microchip/", "firmware-misc-nonfree"},
	{"tehuti/", "firmware-misc-nonfree"}, {"tigon/", "firmware-misc-nonfree"},
	{"bnx2/", "firmware-bnx2"}, {"bnx2x/", "firmware-bnx2x"}, {"liquidio/", "firmware-cavium"},
	{"e100/", "firmware-intel-misc"}, {"intel/ice/", "firmware-intel-misc"},
	{"myri10ge_", "firmware-myricom"}, {"netronome/", "firmware-netronome"}, {"phanfw", "firmware-netxen"},
	{"cbfw-", "firmware-qlogic"}, {"ct2fw-", "firmware-qlogic"}, {"ctfw-", "firmware-qlogic"},
	{"qed/", "firmware-qlogic"}, {"ql2", "firmware-qlogic"},
	{"qlogic/", "firmware-qlogic"}, {"rtl_nic/", "firmware-realtek"},
}

// packFirmware adds the firmware that modules name and the layer has, and reports
// the modules that find none of theirs.
func (m *modules) packFirmware(ctx context.Context, a *cpio.Archive, wants map[string][]string, report *Report) error {
	packed := map[string]bool{}
	for _, module := range slices.Sorted(maps.Keys(wants)) {
		found := len(wants[module]) == 0
		for _, name := range wants[module] {
			if packed[name] {
				found = true
				continue
			}
			data, err := m.readFirmware(ctx, name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			a.File("lib/firmware/"+name, data, 0o644)
			packed[name], found = true, true
			report.Firmware++
			report.FirmwareBytes += int64(len(data))
		}
		if !found {
			report.lacks(module, wants[module][0])
		}
	}
	return nil
}

// readFirmware reads a file of firmware as a driver gets it: the loader's kernel may have no
// decompressor for how the distribution packed it.
func (m *modules) readFirmware(ctx context.Context, name string) ([]byte, error) {
	for _, packed := range []string{"", ".zst", ".xz"} {
		at, err := m.root.Follow("/usr/lib/firmware/" + name + packed) // packages link names to versions
		if err != nil {
			return nil, err
		}
		data, err := m.root.ReadFile(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			data, err = Unpack(ctx, packed, data)
		}
		if err != nil {
			return nil, fmt.Errorf("firmware %s: %w", name+packed, err)
		}
		return data, nil
	}
	return nil, fs.ErrNotExist
}

func (r *Report) lacks(module, file string) {
	if r.Lacking == nil {
		r.Lacking = map[string][]string{}
	}
	name := ""
	for _, p := range firmwarePackages {
		if strings.HasPrefix(file, p.prefix) {
			name = p.name
		}
	}
	r.Lacking[name] = append(r.Lacking[name], module)
}

// wantsFirmware lists the firmware files that a module names.
func wantsFirmware(module []byte) []string {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil
	}
	info, err := s.Data()
	if err != nil {
		return nil
	}
	return plain.Pick(strings.Split(string(info), "\x00"), func(field string) (string, bool) { return strings.CutPrefix(field, "firmware=") })
}

// UEFIDir is where Debian's package systemd-boot-efi has its programs.
const UEFIDir = "/usr/lib/systemd/boot/efi"

// Program is a program for firmware.
type Program struct {
	Name string
	Data []byte
}

// suffixes are how UEFI calls machines, by Debian's names of them.
var suffixes = map[string]string{"amd64": "x64", "arm64": "aa64"}

// UEFI reads the layer's stub and its boot manager, in this order; nil where the layer has
// not the package.
func UEFI(r *root.Root, arch string) ([]Program, error) {
	var programs []Program
	for _, name := range []string{"linux" + suffixes[arch] + ".efi.stub", "systemd-boot" + suffixes[arch] + ".efi"} {
		data, err := r.ReadFile(path.Join(UEFIDir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		programs = append(programs, Program{name, data})
	}
	return programs, nil
}

// microcode collects the processor updates that the layer has, one blob a
// vendor, in the place where the kernel looks before it unpacks anything, see
// the kernel's microcode.rst. It is nil when there are none.
func microcode(r *root.Root) (*cpio.Archive, error) {
	a := cpio.New()
	found := false
	for vendor, dir := range map[string]string{
		"GenuineIntel": "/usr/lib/firmware/intel-ucode", "AuthenticAMD": "/usr/lib/firmware/amd-ucode",
	} {
		names, err := r.ReadDir(dir)
		if err != nil {
			continue // the layer has no package of this vendor
		}
		var all bytes.Buffer
		for _, name := range names {
			if vendor == "AuthenticAMD" && path.Ext(name) != ".bin" {
				continue
			}
			data, err := r.ReadFile(path.Join(dir, name))
			if err != nil {
				return nil, err
			}
			all.Write(data)
		}
		if all.Len() > 0 {
			found = true
			a.File("kernel/x86/microcode/"+vendor+".bin", all.Bytes(), 0o644)
		}
	}
	if !found {
		return nil, nil
	}
	return a, nil
}
