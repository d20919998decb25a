// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/durable"
)

// IPXEDir is where Debian's package ipxe has its programs.
const IPXEDir = "/usr/lib/ipxe"

// ipxePrograms are what firmware loads by TFTP or HTTP: for BIOS and for UEFI.
var ipxePrograms = []string{"ipxe.efi", "undionly.kpxe"}

// CarryIPXE copies the iPXE programs of a directory beside boot.ipxe and returns
// their names. What is not there is left out: firmware that is iPXE itself needs
// none of them.
func CarryIPXE(from, dir string) ([]string, error) {
	var carried []string
	for _, name := range ipxePrograms {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = durable.WriteFile(filepath.Join(dir, name), data, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("include %s: %w", name, err)
		}
		carried = append(carried, name)
	}
	return carried, nil
}
