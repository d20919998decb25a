// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongSoftReboot goes to a layer that has one package more, back, and to the same
// root without caisson's doing, all on one kernel. It takes about ten minutes.
func TestLongSoftReboot(t *testing.T) {
	require.Long(t)
	f := fleet(t, "layer:\n", "layer:\n  persist: [/home]\n")
	o := f.byHand(t, f.withDisk(t))
	o.Extra = append(o.Extra, "-device", "i6300esb")
	m := f.start(t, o)
	s := f.login(t, m)
	first := status(t, s)
	if first.Health != "ok" || first.Sync != "current" {
		t.Fatalf("first boot: %+v", first)
	}
	const same = "cat /proc/sys/kernel/random/boot_id /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub; ip -4 -o addr show eth0 | grep -o 'inet [^ ]*'; cat note"
	run(t, s, "echo kept >note; sync")
	before := run(t, s, same)

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	base := f.overVerity(t, s)[0]
	device := run(t, s, "cat /sys/class/block/dm-*/dm/name | grep "+base)
	there := softReboot(t, m, s, "caisson-agent reboot")
	s = f.login(t, m)
	second := status(t, s)
	if second.Layer == first.Layer || second.Overlay == first.Overlay || second.Health != "ok" || second.Sync != "current" || second.RootID == first.RootID || second.Staged != "" {
		t.Errorf("after the soft-reboot: %+v", second)
	}
	checkedByKernel(t, s)
	if got := run(t, s, same); got != before {
		t.Errorf("after the soft-reboot the node is\n%s\nbefore\n%s", got, before)
	}
	if got := run(t, s, "echo 6*7 | bc; cat /proc/sys/vm/swappiness; systemctl show -P RuntimeWatchdogUSec; stat -f -c %T /var/lib/caisson /home; sudo test -e /run/caisson/deadline || echo proven; systemctl --failed --plain --no-legend"); got != "42\n10\n1min\next2/ext3\next2/ext3\nproven" {
		t.Errorf("the new root: %q", got)
	}
	if got := run(t, s, "systemctl soft-reboot 2>&1 || true"); !strings.Contains(got, "refused") && !strings.Contains(got, "Access denied") {
		t.Errorf("one by hand: %s", got)
	}

	run(t, s, "sudo caisson-agent rollback >&2 || [ $? -eq 3 ]")
	back := softReboot(t, m, s, "caisson-agent reboot")
	s = f.login(t, m)
	checkedByKernel(t, s)
	if st := status(t, s); st.Layer != first.Layer || st.Overlay != first.Overlay || st.Health != "ok" {
		t.Errorf("after the way back: %+v", st)
	}
	if got := run(t, s, same+"; ! bc --version 2>/dev/null"); got != before {
		t.Errorf("after the way back the node is\n%s\nbefore\n%s", got, before)
	}
	if got := run(t, s, "cat /sys/class/block/dm-*/dm/name | grep "+base); got != device {
		t.Errorf("the base, which both layers have, is device %q, before %q", got, device)
	}
	run(t, s, "sudo rm -r /etc/systemd/system/soft-reboot.target.d; sudo systemctl daemon-reload")
	bare := softReboot(t, m, s, "systemctl soft-reboot") // which loses the state: only what systemd does is looked at
	t.Logf("of bare, in processor time, from when systemd ends units: %.2f there, %.2f back; with the root that is made before: %.2f and %.2f",
		there.systemd()/bare.systemd(), back.systemd()/bare.systemd(), there.all()/bare.all(), back.all()/bare.all())
	if slower := max(there.systemd(), back.systemd()) / bare.systemd(); slower > 1.6 { // it was 1.25 there, 1.13 back
		t.Errorf("a soft-reboot takes %.2f of a bare one", slower)
	}
}

// leap is the processor time, in seconds, that a machine had for a soft-reboot: until what
// runs began to end, until it had ended, and until people may log in. How long that lasts
// by the clock is for the host to say, which has other work.
type leap struct{ begin, end, up float64 }

func (l leap) all() float64 { return l.begin + l.systemd() }

// systemd is the part in which services do not run.
func (l leap) systemd() float64 { return l.end + l.up }

func softReboot(t *testing.T, m *machine.Machine, s *machine.Session, command string) leap {
	t.Helper()
	from, began := m.Console.Len(), time.Now() // no marker stands twice in what follows
	used := func() float64 {
		t.Helper()
		d, err := m.Used()
		if err != nil {
			t.Fatal(err)
		}
		return d.Seconds()
	}
	at := []float64{used()}
	run(t, s, "sudo sh -c '"+command+" >/run/said 2>&1 </dev/null &'")
	for _, marker := range []string{"Stopping ", "Soft-rebooting", "login:"} {
		if waitFor(t, m, from, marker, "caisson: entering the layer") != marker {
			t.Fatal("the machine was started over")
		}
		at = append(at, used())
	}
	if said := m.Console.String()[from:]; strings.Contains(said, "Failed unmounting") {
		t.Errorf("%s: what cannot be unmounted is tried: %s", command, said[strings.Index(said, "Failed unmounting"):][:80])
	}
	l := leap{at[1] - at[0], at[2] - at[1], at[3] - at[2]}
	t.Logf("%s: processor time %.1f s (%.1f until units end, %.1f until they have ended, %.1f to the login), by the clock %.0f s",
		command, l.all(), l.begin, l.end, l.up, time.Since(began).Seconds())
	return l
}

// checkedByKernel holds that the images of the root that runs, and of no other, are devices
// of dm-verity, and that the agent says so. None of them is seen as mounted any more.
func checkedByKernel(t *testing.T, s *machine.Session) {
	t.Helper()
	st := status(t, s)
	if st.ImageCheck != spec.ImagesWhenRead || st.ImageCheckDetail != "" {
		t.Errorf("images are checked %q: %s", st.ImageCheck, st.ImageCheckDetail)
	}
	var boot struct{ Layer spec.Layer }
	if err := json.Unmarshal([]byte(run(t, s, "sudo cat /run/caisson/boot.json")), &boot); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, i := range boot.Layer.Images {
		want = append(want, "caisson-"+strings.TrimPrefix(i.Digest, "sha256:"))
	}
	slices.Sort(want)
	got := run(t, s, "cat /sys/class/block/dm-*/dm/name | sed s/-loop.*// | sort")
	if len(want) == 0 || got != strings.Join(want, "\n") {
		t.Errorf("mapped devices:\n%s\nthe root that runs has\n%s", got, strings.Join(want, "\n"))
	}
}
