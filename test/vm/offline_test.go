// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// deadCable gives a machine one card, at the end of whose cable nobody listens.
func deadCable(o machine.Options, mac string) machine.Options {
	o.NoCard, o.MAC = true, ""
	o.Extra = append(o.Extra, "-netdev", "socket,id=dead,udp=127.0.0.1:9,localaddr=127.0.0.1:0", "-device", "virtio-net-pci,netdev=dead,mac="+mac)
	return o
}

// tells has a unit print on the console what a command says once it has the words wanted: nobody
// can log in to a machine without a network, and systemd is silent on a console with a login.
func tells(command string) map[string]string {
	return map[string]string{
		"systemd.unit-dropin.multi-user.target": "[Unit]\nWants=told.service\n",
		"systemd.extra-unit.told.service":       "[Service]\nExecStart=/bin/sh -c 'until { " + command + "; } >/dev/console; do sleep 5; done'\n",
	}
}

// TestLongInstallOffline installs a machine from a USB stick that carries its layer, with no
// network: its empty disk becomes one that it starts from, and it does, without the stick. The
// kernel is the usual one, whose loader reads the layer from the stick itself.
func TestLongInstallOffline(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mdir", "sgdisk")
	f := fleet(t, append([]string{"linux-image-cloud-amd64", "linux-image-amd64"}, bootsFromDisk...)...)
	f.installsOffline(t, f.medium("offline", ""))
}

// installsOffline is the way of one from a medium with a layer onto its empty disk. Nobody logs in.
func (f *Fleet) installsOffline(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	number := f.publishLoader(t, more...)
	o = deadCable(o, "52:54:00:00:00:0a")
	o.Memory, o.UUID, o.Disk = 2048, uuidOfDisk, filepath.Join(f.Dir, "state.raw")
	sh(t, `truncate -s 4G "$1"`, o.Disk)
	o.Stick = f.image(t, "boot.iso", append(more, "--with-layer")...)
	o.Credentials = tells(fmt.Sprintf(`journalctl -b -q --no-pager -u caisson-agent -o cat | grep -F "disk starts loader %d" && caisson-agent status && systemctl poweroff`, number))
	m := f.start(t, o)
	waitFor(t, m, 0, "caisson: asking the medium, which carries a layer")
	waitFor(t, m, 0, "caisson: overlay of node alpha, generation")
	waitFor(t, m, 0, "caisson: entering the layer")
	waitFor(t, m, 0, fmt.Sprintf("this machine's disk starts loader %d", number))
	waitFor(t, m, 0, "health      ok")
	if err := m.WaitOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh(t, `sgdisk -v "$1" | grep -q 'No problems found'`, o.Disk)
	if n := strings.Count(loaders(t, o.Disk), fmt.Sprintf("caisson-%d-", number)); n != 1 {
		t.Errorf("%d loaders are on the disk", n)
	}
	o.Stick, o.Credentials = "", tells("caisson-agent status")
	m = f.start(t, o)
	for _, said := range []string{"caisson: state disk /dev/vda1", "caisson: booting the last good overlay, generation", "caisson: entering the layer",
		"node        alpha of fleet quickstart", "health      ok"} {
		waitFor(t, m, 0, said)
	}
	return nil
}
