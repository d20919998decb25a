// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// TestLongNewStateDisk is the life of a disk that came empty: the loader makes it a state
// disk, the next boot uses it, a larger one is filled, a damaged one repaired or set aside.
func TestLongNewStateDisk(t *testing.T) {
	require.Long(t)
	require.Tool(t, "dumpe2fs", "debugfs", "e2fsck")
	f := fleet(t, "layer:\n", "layer:\n  stateDisk: {create: true}\n")
	o := f.byHand(t, Options{Name: "alpha", MAC: "52:54:00:00:00:0a", UUID: "4c4c4544-0000-2010-8020-80c04f202020", Disk: filepath.Join(f.Dir, "state.raw")})
	sh(t, `truncate -s 1100M "$1"`, o.Disk)
	var id string
	t.Run("made", func(t *testing.T) {
		m := f.start(t, o)
		waitFor(t, m, 0, "caisson: made a state disk of /dev/vda, which was empty")
		s := f.login(t, m)
		if st := status(t, s); st.Health != "ok" || st.Sync != "current" {
			t.Errorf("%+v", st)
		}
		id = run(t, s, "cat /etc/machine-id")
		if got := run(t, s, "sudo cat /var/lib/caisson/owner.json"); !strings.Contains(got, "quickstart") || !strings.Contains(got, "4c4c4544-0000-2010-8020-80c04f202020") {
			t.Errorf("the disk is of %s", got)
		}
		f.shutDown(t, m, s, o)
	})
	t.Run("grown", func(t *testing.T) {
		sh(t, `truncate -s 2300M "$1"`, o.Disk)
		m := f.start(t, o)
		s := f.login(t, m)
		if strings.Contains(m.Console.String(), "made a state disk") {
			t.Error("it was made again")
		}
		if got := run(t, s, "cat /etc/machine-id"); got != id {
			t.Errorf("the node is another one: %s, before %s", got, id)
		}
		if st := status(t, s); st.Health != "ok" {
			t.Errorf("%+v", st)
		}
		if got := run(t, s, "test $(df --output=size -k /var/lib/caisson | tail -n1) -gt 2000000 && echo grown || df -k /var/lib/caisson"); got != "grown" {
			t.Errorf("the file system: %s", got)
		}
		f.shutDown(t, m, s, o)
		sh(t, `sgdisk -v "$1" | grep -q 'No problems found'`, o.Disk)
	})
	t.Run("repaired", func(t *testing.T) {
		o := o.copyOf(t, "repaired")
		o.onPartition(t, `debugfs -w -R 'ssv free_blocks_count 7' "$1" 2>/dev/null; debugfs -w -R 'ssv state 2' "$1" 2>/dev/null`)
		m := f.start(t, o)
		waitFor(t, m, 0, "caisson: state disk /dev/vda1 was damaged, and is repaired")
		s := f.login(t, m)
		if got := run(t, s, "cat /etc/machine-id; sudo caisson-agent status || true"); !strings.HasPrefix(got, id) || !strings.Contains(got, "was damaged, and is repaired") {
			t.Errorf("the node says\n%s", got)
		}
	})
	t.Run("set aside", func(t *testing.T) {
		o := o.copyOf(t, "aside")
		o.onPartition(t, `dd if=/dev/urandom of="$1" bs=4096 seek=$(dumpe2fs "$1" 2>/dev/null | sed -n 's/.*Inode table at \([0-9]*\)-.*/\1/p' | head -n1) count=4 conv=notrunc status=none`)
		m := f.start(t, o)
		waitFor(t, m, 0, "e2fsck could not repair it by itself")
		waitFor(t, m, 0, "caisson: no state disk is made: /dev/vda1 is one, and is not used")
		s := f.login(t, m)
		if st := status(t, s); st.Health != "degraded" || st.Sync != "current" {
			t.Errorf("%+v", st)
		}
		if got := run(t, s, "sudo caisson-agent why || true"); !strings.Contains(got, "e2fsck could not repair it by itself") {
			t.Errorf("why says\n%s", got)
		}
	})
}

// shutDown switches a machine off as an operator does, and looks at the disk that it
// leaves.
func (f *Fleet) shutDown(t *testing.T, m *Machine, s *Session, o Options) {
	t.Helper()
	last(t, s, "sudo systemctl poweroff")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := m.Off(ctx); err != nil {
		t.Fatal(err)
	}
	part := o.partition(t)
	out, err := exec.CommandContext(ctx, "dumpe2fs", "-h", part).CombinedOutput()
	if err != nil || strings.Contains(string(out), "needs_recovery") || !strings.Contains(string(out), "Filesystem state:         clean") {
		t.Errorf("after a shutdown: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(ctx, "e2fsck", "-fn", part).CombinedOutput(); err != nil {
		t.Errorf("after a shutdown: %v\n%s", err, out)
	}
}

// partition copies what the one partition of the disk has into a file.
func (o Options) partition(t *testing.T) string {
	t.Helper()
	part := o.Disk + ".part"
	sh(t, `dd if="$1" of="$2" bs=1M skip=1 conv=sparse status=none`, o.Disk, part)
	return part
}

// onPartition runs a script on a copy of the partition, $1, and puts it back.
func (o Options) onPartition(t *testing.T, script string) {
	t.Helper()
	part := o.partition(t)
	sh(t, script, part)
	sh(t, `dd if="$2" of="$1" bs=1M seek=1 conv=sparse,notrunc status=none`, o.Disk, part)
}
