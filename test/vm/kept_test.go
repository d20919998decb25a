// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongKept: what a user's podman has in a home that a state disk keeps, and what is in MariaDB's
// databases, is there after a reboot, and on another layer.
func TestLongKept(t *testing.T) {
	require.Long(t)
	f := fleet(t, "layer:\n", "layer:\n  persist: [/home]\n", "net.ifnames=0]", "net.ifnames=0, caisson.patience=600]", "systemd.mask=user@.service, ", "",
		"      - name: tree\n", "      - name: tree\n      - name: mariadb-server\n      - name: podman\n      - name: aardvark-dns\n      - name: nftables\n"+
			"      - name: uidmap\n      - name: passt\n      - name: busybox-static\n")
	o := f.byHand(t, machine.Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: uuidOfDisk, Memory: 3072, Disk: filepath.Join(f.Dir, "state.raw")})
	if err := machine.MakeStateDisk(t.Context(), o.Disk, 3072, ""); err != nil {
		t.Fatal(err)
	}
	m := f.start(t, o)
	s := f.login(t, m)
	run(t, s, "mkdir -p box/bin && cp /bin/busybox box/bin && tar -C box -c . | podman import - localhost/box && podman create --name kept localhost/box /bin/busybox echo 42")
	run(t, s, "sudo mariadb -e 'create database kept; create table kept.t (n int); insert into kept.t values (42)'")
	kept := []Check{
		{"a user's container", "podman start -a kept", "42"},
		{"a user's image", "podman run --rm localhost/box /bin/busybox echo 42", "42"},
		{"a row", "sudo mariadb -NBe 'select n from kept.t'", "42"},
		{"no failed units", "systemctl --failed --no-legend --plain", ""},
		{"status", "sudo caisson-agent status", "~health      ok"},
	}
	look(t, s, kept...)
	s = f.reboot(t, m, s)
	look(t, s, kept...)

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync >&2")
	s = f.leaps(t, m, s)
	look(t, s, append(kept, Check{"another layer", "echo 6*7 | bc", "42"})...)
}
