// SPDX-License-Identifier: Apache-2.0

// Package netboot makes and serves the files that machines boot over the network: the loader's
// kernel and initrd, site.cpio with the trust anchor, and the iPXE script that loads the three; see
// [Serve].
//
// It takes a loader out of a released layer and adds what the site's nodes trust.
// It is not the registry that nodes ask afterwards, and it signs nothing: the
// loader is as safe as the wire or the firmware that brings it. Only cmd/caisson
// and package sandbox import it.
package netboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// Files are the names of what [Write] writes, sorted.
var Files = []string{"boot.ipxe", "initrd", "kernel", "site.cpio"}

// Loader says what a directory holds.
type Loader struct {
	Layer     release.Layer  // whose kernel and initrd load
	Bootstrap spec.Bootstrap // whom the nodes trust
	URL       string         // where the directory is served; empty is beside the script
	Args      []string       // further arguments of the loader's kernel
}

// Line is the command line that the loader's kernel is started with, but for the card that
// it came by.
func (l Loader) Line() []string {
	return spec.KernelLine(slices.Concat(l.Bootstrap.KernelArgs, l.Args))
}

// Write fetches the loader's blobs and writes the directory. All blobs come first,
// under other names: a kernel beside the initrd of another layer boots nothing.
func Write(ctx context.Context, r *registry.Registry, dir string, l Loader) error {
	l.Bootstrap.SetNeeds()
	if err := l.Layer.Boots(&l.Bootstrap); err != nil {
		return fmt.Errorf("layer %s: %w", l.Layer.Digest, err)
	}
	cpio, err := boot.SiteCPIO(l.Bootstrap)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	blobs := map[string]string{"kernel": l.Layer.Kernel.Digest, "initrd": l.Layer.Initrd.Digest}
	for name, digest := range blobs {
		fresh := filepath.Join(dir, "."+name+".new")
		defer os.Remove(fresh) // when it did not come to the renames
		if err := release.Save(ctx, r, digest, fresh); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name := range blobs {
		if err := os.Rename(filepath.Join(dir, "."+name+".new"), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(filepath.Join(dir, "site.cpio"), cpio, 0o644); err != nil {
		return err
	}
	script := ipxeScript(l.URL, l.Line())
	return durable.WriteFile(filepath.Join(dir, "boot.ipxe"), []byte(script), 0o644)
}

// ipxeScript loads the two archives one after the other: the kernel unpacks both
// into one tree. BIOS and UEFI differ in how they learn of them, this does for both.
func ipxeScript(url string, line []string) string {
	if url != "" {
		url = strings.TrimRight(url, "/") + "/"
	}
	return fmt.Sprintf(`#!ipxe
kernel %[1]skernel initrd=initrd initrd=site.cpio BOOTIF=01-${netX/mac:hexhyp} %[2]s || goto failed
initrd --name initrd %[1]sinitrd || goto failed
initrd --name site.cpio %[1]ssite.cpio || goto failed
boot || goto failed

:failed
echo caisson: could not load the node's loader, trying again in 10 seconds
sleep 10
chain --replace %[1]sboot.ipxe || goto failed
`, url, strings.Join(line, " "))
}

// IPXEDir is where Debian's package ipxe has its programs.
const IPXEDir = "/usr/lib/ipxe"

// ipxePrograms lists the programs that firmware loads by TFTP or HTTP: for BIOS and for UEFI.
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
