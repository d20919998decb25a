// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"path"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cpio"
)

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
