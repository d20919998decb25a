// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func index(t *testing.T, dep, alias string, soft ...string) (*Modules, *[]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"modules.dep": dep, "modules.alias": alias} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range soft {
		if err := os.WriteFile(filepath.Join(dir, "modules.softdep"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	x, err := OpenModules(dir, words)
	if err != nil {
		t.Fatal(err)
	}
	var loaded []string
	x.load = func(file, parameters string) error {
		loaded = append(loaded, strings.TrimSpace(filepath.Base(file)+" "+parameters))
		if filepath.Base(file) == "bad.ko" {
			return errors.New("invalid format")
		}
		return nil
	}
	return x, &loaded
}

// words are of a kernel's command line.
var words = []string{"quiet", "virtio_net.napi_tx=0", "virtio-net.csum=0", "net.ifnames=0"}

const dep = `kernel/net/virtio-net.ko: kernel/net/failover.ko kernel/virtio/virtio.ko
kernel/net/failover.ko: kernel/virtio/virtio.ko
kernel/virtio/virtio.ko:
kernel/bad.ko:
kernel/net/bonding.ko:
`

func TestLoadTakesNeedsFirst(t *testing.T) {
	x, loaded := index(t, dep, "")
	for range 2 { // the second time there is nothing to do
		if err := x.Load("virtio_net"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"virtio.ko", "failover.ko", "virtio-net.ko napi_tx=0 csum=0"}, *loaded); diff != "" {
		t.Error(diff)
	}
	if err := x.Load("built_in"); err != nil {
		t.Errorf("a module that is built in: %v", err)
	}
}

// TestLoadOfBonds: bonding would make a bond of its own, by which nothing is reached.
func TestLoadOfBonds(t *testing.T) {
	x, loaded := index(t, dep, "")
	if err := x.Load("bonding"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"bonding.ko max_bonds=0"}, *loaded); diff != "" {
		t.Error(diff)
	}
}

func TestColdplug(t *testing.T) {
	x, loaded := index(t, dep, "alias virtio:d00000001v* virtio_net\nalias pci:v0000BEEFd* bad\n")
	sys := t.TempDir()
	for device, text := range map[string]string{"a": "virtio:d00000001v00001AF4\n", "b": "pci:v0000BEEFd00000001\n", "c": "unknown:x\n"} {
		dir := filepath.Join(sys, "devices", device)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "modalias"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	n, err := x.Coldplug(sys)
	if n != 4 || err == nil {
		t.Errorf("first pass: %d modules, error %v; want 4 and the one of bad.ko", n, err)
	}
	if n, err := x.Coldplug(sys); n != 0 || err != nil {
		t.Errorf("second pass: %d, %v; want nothing to do", n, err)
	}
	if len(*loaded) != 4 {
		t.Errorf("loaded %v", *loaded)
	}
	x.alias = append(x.alias, alias{pattern: "scsi:t-0x00*", module: "sd_mod"})
	x.files["sd_mod"] = "kernel/sd_mod.ko"
	if err := os.MkdirAll(filepath.Join(sys, "devices", "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "devices", "disk", "modalias"), []byte("scsi:t-0x00\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Coldplug(sys); n != 1 || err != nil {
		t.Errorf("a disk that appeared since: %d, %v; want its driver", n, err)
	}
}

// TestSoftDependencies: what a module asks the kernel's crypto for by an alias is there before it,
// whichever of its drivers the processor has. ext4 cannot be mounted without a crc32c.
func TestSoftDependencies(t *testing.T) {
	x, loaded := index(t, "kernel/ext4.ko:\nkernel/bad.ko:\nkernel/crc32c_generic.ko:\nkernel/soft.ko:\nkernel/later.ko:\n",
		"alias crypto-crc32c bad\nalias crypto-crc32c crc32c_generic\nalias crypto-* later\n",
		"# c\nsoftdep ext4 pre: crypto-crc32c so-ft soft gone post: later\n")
	if err := x.Load("ext4"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"bad.ko", "crc32c_generic.ko", "soft.ko", "ext4.ko"}, *loaded); diff != "" {
		t.Error(diff)
	}
}
