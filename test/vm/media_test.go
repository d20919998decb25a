// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/test/require"
)

// withUEFI has a layer carry systemd's programs for firmware.
var withUEFI = []string{"      - name: tree\n", "      - name: tree\n      - name: systemd-boot-efi\n"}

// image writes a medium of the fleet, and returns its file.
func (f *Fleet) image(t *testing.T, name string, more ...string) string {
	t.Helper()
	f.must(t, append([]string{"image", "site.yaml", "--from", f.To(), "--out", name, "--registry", f.guest(), "--registry-plain-http"}, more...)...)
	return filepath.Join(f.Dir, name)
}

// medium are the options of a machine with UEFI that reaches the fleet's registry.
func (f *Fleet) medium(name, mac string) machine.Options {
	return machine.Options{Name: name, Arch: f.arch, MAC: mac, UEFI: filepath.Join(f.Dir, name+".vars"),
		Forwards: map[string]string{guestRegistry: f.registry}}
}

// arrives logs in to a machine that started from a medium, and wants it well.
func (f *Fleet) arrives(t *testing.T, o machine.Options) (*machine.Machine, *machine.Session) {
	t.Helper()
	m := f.start(t, o)
	s := f.login(t, m)
	if st := status(t, s); st.Health != "ok" || st.Sync != "current" {
		t.Errorf("%s: %+v", o.Name, st)
	}
	return m, s
}

// TestLongBookwormFromCD boots a machine with UEFI and two processors from the virtual disc of a
// BMC. Its node is the quickstart's on the release before: another kernel, systemd and AppArmor.
func TestLongBookwormFromCD(t *testing.T) {
	require.Long(t)
	f := fleet(t, append([]string{"suite: trixie", "suite: bookworm", "abi <abi/4.0>", "abi <abi/3.0>"}, withUEFI...)...)
	o := f.medium("beta", "52:54:00:00:00:0b")
	o.Processors, o.CD = 2, f.image(t, "boot.iso")
	_, s := f.arrives(t, o)
	look(t, s, Quickstart("beta", "1")...)
}

// TestLongStick boots the image that is a CD from a USB stick.
func TestLongStick(t *testing.T) {
	require.Long(t)
	f := fleet(t, withUEFI...)
	f.byStick(t, f.medium("stick", "52:54:00:00:00:0a"))
}

// byStick is the way of one that starts from the image on a USB stick.
func (f *Fleet) byStick(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	o.Stick = f.image(t, "boot.iso", more...)
	_, s := f.arrives(t, o)
	return s
}

// TestLongProgram boots the loader alone, from a file system that others made.
func TestLongProgram(t *testing.T) {
	require.Long(t)
	require.Tool(t, "mkfs.vfat", "mmd", "mcopy")
	f := fleet(t, withUEFI...)
	f.byProgram(t, f.medium("program", "52:54:00:00:00:0a"))
}

// byProgram is the way of one whose loader somebody copied into a file system.
func (f *Fleet) byProgram(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	o.Stick = filepath.Join(f.Dir, "esp.img")
	name := map[string]string{"": "BOOTX64.EFI", "arm64": "BOOTAA64.EFI"}[f.arch]
	sh(t, `truncate -s 192M "$1" && mkfs.vfat -F 32 "$1" >/dev/null && mmd -i "$1" ::/EFI ::/EFI/BOOT && mcopy -i "$1" "$2" "::/EFI/BOOT/$3"`,
		o.Stick, f.image(t, "boot.efi", more...), name)
	_, s := f.arrives(t, o)
	return s
}

// TestLongUEFINetwork has the firmware of a machine with UEFI fetch the loader by TFTP.
func TestLongUEFINetwork(t *testing.T) {
	require.Long(t)
	f := fleet(t, withUEFI...)
	f.byTFTP(t, f.medium("network", "52:54:00:00:00:0a"))
}

// byTFTP is the way of a machine whose firmware starts from a server of TFTP.
func (f *Fleet) byTFTP(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	o.TFTP, o.Bootfile = filepath.Join(f.Dir, "tftp"), "boot.efi"
	sh(t, `mkdir "$1" && mv "$2" "$1"`, o.TFTP, f.image(t, "boot.efi", more...))
	_, s := f.arrives(t, o)
	return s
}

// TestLongTwoCopies boots two machines from copies of one disk. Each fills its disk, and
// has identifiers of its own; each boots from it again while the registry is dead.
func TestLongTwoCopies(t *testing.T) {
	require.Long(t)
	require.Tool(t, "sgdisk", "cp")
	f := fleet(t, withUEFI...)
	raw := f.image(t, "boot.raw")
	seen := map[string]string{}
	for name, mac := range map[string]string{"alpha": "52:54:00:00:00:0a", "beta": "52:54:00:00:00:0b"} {
		o := f.medium(name, mac)
		o.Disk = filepath.Join(f.Dir, name+".raw")
		sh(t, `cp --sparse=always "$2" "$1" && truncate -s 3G "$1"`, o.Disk, raw)
		m, s := f.arrives(t, o)
		for what, command := range map[string]string{
			"disk":        "sudo blkid -s PTUUID -o value /dev/vda",
			"partition":   "sudo blkid -s PARTUUID -o value /dev/vda1",
			"file system": "sudo blkid -s UUID -o value /dev/vda1",
			"ESP":         "sudo blkid -s UUID -o value /dev/vda2",
			"machine":     "cat /etc/machine-id",
			"host key":    "cat /etc/ssh/ssh_host_ed25519_key.pub",
		} {
			id := strings.TrimSpace(run(t, s, command))
			if id == "" || seen[id] != "" || id == paths.ImageDisk || id == paths.ImageState {
				t.Errorf("%s of %s: %q, which %q has, too", what, name, id, seen[id])
			}
			seen[id] = name
		}
		shutDown(t, m, s)
		sh(t, `sgdisk -v "$1" | grep -q 'No problems found' && sgdisk -i 1 "$1" | grep -q 'Partition size:.*2.0 GiB'`, o.Disk)
		o.Forwards = map[string]string{guestRegistry: "127.0.0.1:1"} // nobody listens there
		waitFor(t, f.start(t, o), 0, "booting the last good overlay, generation 1")
	}
}

// TestLongAirGap boots a machine whose network is dead from a disc that carries its layer.
func TestLongAirGap(t *testing.T) {
	require.Long(t)
	f := fleet(t, withUEFI...)
	f.withoutNetwork(t, f.medium("airgap", ""))
}

// withoutNetwork is the way of one that has a medium with a layer and nothing else. Nobody logs in.
func (f *Fleet) withoutNetwork(t *testing.T, o machine.Options, more ...string) *machine.Session {
	t.Helper()
	o = deadCable(o, "52:54:00:00:00:0a")
	o.Memory, o.CD, o.Credentials = 1536, f.image(t, "boot.iso", append(more, "--with-layer")...), tells("caisson-agent status")
	m := f.start(t, o)
	waitFor(t, m, 0, "caisson: asking the medium, which carries a layer")
	waitFor(t, m, 0, "caisson: overlay of node alpha, generation")
	waitFor(t, m, 0, "caisson: entering the layer")
	for _, said := range []string{"node        alpha of fleet quickstart (netboot)", "health      ok", "sync        current"} {
		waitFor(t, m, 0, said)
	}
	return nil
}
