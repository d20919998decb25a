// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"testing"
)

func TestQuiesce(t *testing.T) {
	sys := t.TempDir()
	driver := filepath.Join(sys, "bus/virtio/drivers/virtio_net")
	device := filepath.Join(sys, "devices/pci0/virtio0")
	for _, dir := range []string{driver, device, filepath.Join(sys, "class/net/eth0"), filepath.Join(sys, "class/net/lo")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(driver, "unbind"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{filepath.Join(device, "driver"): driver, filepath.Join(sys, "class/net/eth0/device"): device} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := Quiesce(sys); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(driver, "unbind")); string(got) != "virtio0" {
		t.Errorf("unbind was told %q", got)
	}
	if err := os.Remove(filepath.Join(device, "driver")); err != nil {
		t.Fatal(err)
	}
	if err := Quiesce(sys); err == nil {
		t.Error("a card whose driver could not be taken off counts as quiet")
	}
}
