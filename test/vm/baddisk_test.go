// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// TestLongBadDisks boots a node with a state disk that is not as it left it. It
// boots whatever is wrong with the disk, the console says what that is, and status
// shows it.
func TestLongBadDisks(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	node, first := f.proven(t)
	for _, test := range []struct {
		name   string
		script string // run in the file system of the disk
		raw    string // run on the image, $1
		usb    bool
		second bool // another disk of the same name beside it
		says   string
	}{
		{name: "unreadable state", script: "echo { | tee state.json >state.copy.json", says: "caisson: the state is rebuilt"},
		{name: "another fleet", script: `echo '{"fleet":"another"}' >owner.json`, says: `it belongs to fleet "another"`},
		{name: "another machine", script: `sed -i 's/4c4c4544/5c5c5544/' owner.json`, says: "it belongs to the machine with UUID 5c5c5544"},
		{name: "full", script: "dd if=/dev/zero of=filler bs=1M 2>/dev/null || true", says: "caisson: overlay of node alpha"},
		{name: "no file system", raw: `dd if=/dev/zero of="$1" bs=1M seek=1 count=1 conv=notrunc status=none`, says: "is not used"},
		{name: "on a USB stick", usb: true, says: "--state-disk"},
		{name: "two of them", second: true, says: "is not used"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := node.copyOf(t, test.name)
			if test.script != "" {
				sh(t, `mkdir "$1.d"; mount -o loop,offset=1048576 "$1" "$1.d"; cd "$1.d"; `+test.script+`; cd /; umount "$1.d"`, o.Disk)
			}
			if test.raw != "" {
				sh(t, test.raw, o.Disk)
			}
			if test.usb {
				o.Extra = []string{"-drive", "file=" + o.Disk + ",format=raw,if=none,id=stick", "-device", "qemu-xhci", "-device", "usb-storage,drive=stick,removable=on"}
				o.Disk = ""
			}
			if test.second {
				other := o.Disk + ".second"
				if err := StateDisk(t.Context(), other, 128); err != nil {
					t.Fatal(err)
				}
				o.Extra = []string{"-drive", "file=" + other + ",format=raw,if=virtio"}
			}
			m := f.start(t, o)
			waitFor(t, m, 0, test.says)
			s := f.login(t, m)
			if st := status(t, s); st.Source != "fetched" || st.Overlay != first.Overlay || st.Sync != "current" || len(st.Drift) == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
