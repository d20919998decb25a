// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
)

// A module that is named is loaded: no device may ask for it, as for that of a file system
// or of reserved memory. Groups load what devices ask for.
func TestNamedModulesAreLoaded(t *testing.T) {
	m, err := readModules(layer(t, nil), release)
	if err != nil {
		t.Fatal(err)
	}
	policy := []string{"network", "sd-mod"}
	files, err := m.Select(policy)
	if err != nil {
		t.Fatal(err)
	}
	a := cpio.New()
	if err := m.pack(t.Context(), a, files, policy, &Report{}); err != nil {
		t.Fatal(err)
	}
	if got := unpacked(t, a.Bytes())[paths.ModulesLoad]; got != "overlay\nsd_mod\n" {
		t.Errorf("loaded first: %q", got)
	}
}

// What a module depends on softly by an alias comes along, each driver of it: ext4 asks for
// crypto-crc32c, which is not the name of a module.
func TestSoftDependenciesByAlias(t *testing.T) {
	const in = "usr/lib/modules/" + release + "/"
	m, err := readModules(layer(t, map[string]string{
		in + "modules.alias":   "alias crypto-crc crc-soft\nalias crypto-crc gpu\nalias crypto-other wifi\n",
		in + "modules.softdep": "softdep sd_mod pre: crypto-crc\n",
	}), release)
	if err != nil {
		t.Fatal(err)
	}
	files, err := m.Select([]string{"sd-mod"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"kernel/lib/crc-soft.ko.xz": true, "kernel/drivers/gpu/gpu.ko.xz": true, "kernel/drivers/net/wireless/wifi.ko.xz": false} {
		if slices.Contains(files, name) != want {
			t.Errorf("%s: want it there %v, of %v", name, want, files)
		}
	}
}

// A module out of the tree is chosen as the one that it takes the place of: depmod names it alone.
func TestReplacedModule(t *testing.T) {
	const in = "usr/lib/modules/" + release + "/"
	m, err := readModules(layer(t, map[string]string{
		in + "modules.dep":   "updates/dkms/virtio_net.ko:\nupdates/dkms/own.ko:\nkernel/fs/overlayfs/overlay.ko.xz:\n",
		in + "modules.order": "kernel/drivers/net/virtio_net.ko\nkernel/fs/overlayfs/overlay.ko\n",
	}), release)
	if err != nil {
		t.Fatal(err)
	}
	for want, policy := range map[string][]string{"updates/dkms/virtio_net.ko": {"network"}, "updates/dkms/own.ko": {"own"}, "": {"storage"}} {
		files, err := m.Select(policy)
		got := ""
		for _, file := range files {
			if strings.HasPrefix(file, "updates/") {
				got += file
			}
		}
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", policy, got, err, want)
		}
	}
}
