// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"errors"
	"io/fs"
	"path"

	"github.com/caisson-os/caisson/builder/root"
)

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
