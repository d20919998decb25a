// SPDX-License-Identifier: Apache-2.0

package root

import (
	"os"
	"path/filepath"
	"testing"
)

// What udev wants for devices that are ready is started in the next root, each unit once, however often that is made.
func TestStartWanted(t *testing.T) {
	n := &Next{under: t.TempDir(), Say: t.Logf}
	if err := n.startWanted(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(n.path(wantedThere)); err != nil || string(text) != "[Unit]\nWants=\n" {
		t.Errorf("nothing is wanted: %q, %v", text, err)
	}
	for name, text := range map[string]string{
		"c10:242":        "I:4193\nE:SYSTEMD_WANTS=systemd-rfkill.socket\nG:systemd\nQ:systemd\nV:1\n",
		"+sound:card0":   "E:SYSTEMD_WANTS=sound.target mdmonitor.service\nG:systemd\n",
		"b9:127":         "E:SYSTEMD_WANTS=mdmonitor.service\nG:seat\nG:systemd\n",
		"b9:126":         "E:SYSTEMD_WANTS=grow.service\nE:SYSTEMD_READY=0\nG:systemd\n",
		"+usb:1-1":       "E:SYSTEMD_WANTS=untagged.service\n",
		"+infiniband:m0": "E:SYSTEMD_WANTS=rdma-hw.target mdadm-last-resort@md0.timer of-device@.service ../evil.service\nG:systemd\n",
		"n2":             "E:ID_NET_DRIVER=virtio_net\nG:systemd\n",
	} {
		file := n.path(udevData + "/" + name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := n.startWanted(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(n.path(wantedThere))
	if want := "[Unit]\nWants=mdmonitor.service rdma-hw.target sound.target systemd-rfkill.socket\n"; err != nil || string(text) != want {
		t.Errorf("%q, want %q, %v", text, want, err)
	}
}
