// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
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
		stick  bool   // the disk is on a removable medium
		second bool   // another disk of the same name beside it
		says   string
	}{
		{name: "unreadable state", script: "echo { | tee state.json >state.copy.json", says: "caisson: the state is rebuilt"},
		{name: "another fleet", script: `echo '{"fleet":"another"}' >owner.json`, says: `it belongs to fleet "another"`},
		{name: "another machine", script: `sed -i 's/4c4c4544/5c5c5544/' owner.json`, says: `it belongs to the machine with UUID "5c5c5544`},
		{name: "no file system", raw: `dd if=/dev/zero of="$1" bs=1M seek=1 count=1 conv=notrunc status=none`, says: "is not used"},
		{name: "on a stick", stick: true, says: "--state-disk"},
		{name: "two of them", second: true, says: "is not used"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := copyOf(t, node, test.name)
			spoil(t, o, test.script)
			if test.raw != "" {
				sh(t, test.raw, o.Disk)
			}
			if test.stick { // by SCSI: Debian's cloud kernel knows no USB
				o.Extra = append(o.Extra, "-drive", "file="+o.Disk+",format=raw,if=none,id=stick", "-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=stick,removable=on")
				o.Disk = ""
			}
			if test.second {
				other := o.Disk + ".second"
				if err := machine.MakeStateDisk(t.Context(), other, 128, ""); err != nil {
					t.Fatal(err)
				}
				o.Extra = append(o.Extra, "-drive", "file="+other+",format=raw,if=virtio")
			}
			m := f.start(t, o)
			waitFor(t, m, 0, test.says)
			s := f.login(t, m)
			if st := status(t, s); st.Source != "fetched" || st.Overlay != first.Overlay || st.Sync != "current" || len(st.Drift) == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
	t.Run("full", func(t *testing.T) { f.fullDisk(t, node, first) })
}

// fullDisk has a newer generation, and no room to note it: what cannot be kept does
// not act.
func (f *Fleet) fullDisk(t *testing.T, node machine.Options, first spec.Status) {
	f.edit(t, "kernel.panic: 30", "kernel.panic: 40")
	f.publish(t)
	o := copyOf(t, node, "full")
	spoil(t, o, "dd if=/dev/zero of=filler bs=1M 2>/dev/null || dd if=/dev/zero of=filler2 bs=1k 2>/dev/null || true")
	m := f.start(t, o)
	waitFor(t, m, 0, "no space left on device")
	waitFor(t, m, 0, "caisson: booting the last good overlay, generation 1")
	s := f.login(t, m)
	if st := status(t, s); st.Source != "cached" || st.Overlay != first.Overlay || st.Sync != "behind" {
		t.Errorf("on a full disk: %+v", st)
	}
	if got := run(t, s, "cat /proc/sys/kernel/panic"); got != "30" {
		t.Errorf("kernel.panic is %s, which is of a generation that was not kept", got)
	}
}
