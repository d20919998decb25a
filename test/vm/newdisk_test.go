// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongNewStateDisk is the life of a disk that came empty: the loader makes it a state
// disk, the next boot uses it, a larger one is filled, a damaged one repaired or set aside.
// The registry is dead until the last boot, so the others need no more than the loader.
// What looks at the disk between them looks at a copy: each boot has what the cut left.
func TestLongNewStateDisk(t *testing.T) {
	require.Long(t)
	require.Tool(t, "dumpe2fs", "debugfs", "e2fsck")
	f := fleet(t, "layer:\n", "layer:\n  stateDisk: {create: true}\n", "      - name: tree\n", "      - name: tree\n      - name: e2fsprogs\n")
	o := f.byHand(t, machine.Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: "4c4c4544-0000-2010-8020-80c04f202020", Disk: filepath.Join(f.Dir, "state.raw")})
	sh(t, `truncate -s 2100M "$1"`, o.Disk)
	const dead = "THIS NODE DOES NOT COME UP: the registry does not answer"
	const settle = `e2fsck -p "$1" || [ $? -eq 1 ]; ` // what its log has is in its place
	alone := o
	alone.Forwards = map[string]string{guestRegistry: "127.0.0.1:1"} // nobody listens there
	t.Run("made", func(t *testing.T) {
		m := f.start(t, alone)
		waitFor(t, m, 0, "caisson: made a state disk of /dev/vda, which was empty")
		waitFor(t, m, 0, "caisson: state disk /dev/vda1")
		waitFor(t, m, 0, dead)
		m.PowerCut()
		sh(t, settle+`debugfs -R 'cat owner.json' "$1" 2>/dev/null | tr -d '\n ' | grep 'quickstart.*4c4c4544-0000-2010-8020-80c04f202020'`, partition(t, o))
	})
	t.Run("grown", func(t *testing.T) {
		sh(t, `truncate -s 3300M "$1"`, o.Disk)
		m := f.start(t, alone)
		waitFor(t, m, 0, "no generation on state disk /dev/vda1 has proved itself yet")
		if strings.Contains(m.Console.String(), "made a state disk") || strings.Contains(m.Console.String(), "does not grow") {
			t.Error("it was made again, or did not grow")
		}
		m.PowerCut()
		sh(t, `sgdisk -v "$1" | grep -q 'No problems found'`, o.Disk)
		sh(t, settle+`test "$(dumpe2fs -h "$1" 2>/dev/null | sed -n 's/^Block count: *//p')" -gt 550000`, partition(t, o))
	})
	t.Run("repaired", func(t *testing.T) {
		o := copyOf(t, alone, "repaired")
		onPartition(t, o, settle+`debugfs -w -R 'ssv free_blocks_count 7' "$1" 2>/dev/null; debugfs -w -R 'ssv state 2' "$1" 2>/dev/null`)
		m := f.start(t, o)
		waitFor(t, m, 0, "caisson: state disk /dev/vda1 was damaged, and is repaired")
		waitFor(t, m, 0, "no generation on state disk /dev/vda1 has proved itself yet")
		m.PowerCut()
	})
	t.Run("set aside", func(t *testing.T) {
		o := copyOf(t, alone, "aside")
		onPartition(t, o, settle+`dd if=/dev/urandom of="$1" bs=4096 seek=$(dumpe2fs "$1" 2>/dev/null | sed -n 's/.*Inode table at \([0-9]*\)-.*/\1/p' | head -n1) count=4 conv=notrunc status=none`)
		m := f.start(t, o)
		waitFor(t, m, 0, "e2fsck could not repair it by itself")
		waitFor(t, m, 0, "caisson: no state disk is made: /dev/vda1 is one, and is not used")
		waitFor(t, m, 0, "there is no state disk, so nothing that ran before is known")
		m.PowerCut()
	})
	t.Run("used and shut down", func(t *testing.T) {
		m := f.start(t, o)
		s := f.login(t, m)
		if st := status(t, s); st.Health != "ok" || st.Sync != "current" {
			t.Errorf("%+v", st)
		}
		shutDown(t, m, s)
		isClean(t, o)
	})
}

// shutDown switches a machine off as an operator does.
func shutDown(t *testing.T, m *machine.Machine, s *machine.Session) {
	t.Helper()
	replays(t, s)
	from := m.Console.Len()
	last(t, m, s, "sudo systemctl poweroff")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := m.WaitOff(ctx); err != nil {
		t.Fatal(err)
	}
	if said := m.Console.String()[from:]; strings.Contains(said, "Failed unmounting") {
		t.Errorf("a shutdown tries to unmount what it cannot:\n%s", said)
	}
}

// isClean looks whether a shutdown has left the file system of the disk as one that
// needs neither its log nor a repair.
func isClean(t *testing.T, o machine.Options) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	part := partition(t, o)
	out, err := exec.CommandContext(ctx, "dumpe2fs", "-h", part).CombinedOutput()
	if err != nil || strings.Contains(string(out), "needs_recovery") || !strings.Contains(string(out), "Filesystem state:         clean") {
		t.Errorf("after a shutdown: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(ctx, "e2fsck", "-fn", part).CombinedOutput(); err != nil {
		t.Errorf("after a shutdown: %v\n%s", err, out)
	}
}

// firstMiB says at which MiB of the disk "$1" its one partition begins: behind the room for
// an ESP, where caisson has made it.
const firstMiB = `sgdisk -i 1 "$1" | awk '/^First sector/ {print $3 / 2048}'`

// partition copies what the one partition of the disk has into a file.
func partition(t *testing.T, o machine.Options) string {
	t.Helper()
	part := o.Disk + ".part"
	sh(t, `dd if="$1" of="$2" bs=1M skip=$(`+firstMiB+`) conv=sparse status=none`, o.Disk, part)
	return part
}

// onPartition runs a script on a copy of the partition, $1, and puts it back.
func onPartition(t *testing.T, o machine.Options, script string) {
	t.Helper()
	part := partition(t, o)
	sh(t, script, part)
	sh(t, `dd if="$2" of="$1" bs=1M seek=$(`+firstMiB+`) conv=sparse,notrunc status=none`, o.Disk, part)
}
