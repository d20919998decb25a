// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongIOErrors boots a node whose state disk answers with I/O errors: to each write, to
// each from the 16th on, and to a read in the middle of an image. A newer generation is
// there, and nobody touches the node.
func TestLongIOErrors(t *testing.T) {
	require.Long(t)
	require.Tool(t, "filefrag")
	f := fleet(t)
	node, first := f.proven(t)
	t.Run("an image cannot be read", func(t *testing.T) {
		o := copyOf(t, node, "unreadable image")
		spoil(t, o, "rm -f store/sound") // or nothing reads all of it
		failing(t, &o, fmt.Sprintf("[inject-error]\nevent = \"read_aio\"\niotype = \"read\"\nerrno = \"5\"\nsector = \"%d\"\n", inLargest(t, o)))
		m := f.start(t, o)
		waitFor(t, m, 0, "I/O error, dev vda")
		s := f.login(t, m)
		if st := status(t, s); st.Overlay != first.Overlay || st.Layer != first.Layer || st.Sync != spec.SyncCurrent {
			t.Errorf("%+v", st)
		}
	})
	f.edit(t, "kernel.panic: 30", "kernel.panic: 40")
	f.publish(t)
	for _, writes := range []int{0, 15} { // fewer than it takes to count an attempt
		t.Run(fmt.Sprintf("no write after %d", writes), func(t *testing.T) {
			o := copyOf(t, node, fmt.Sprintf("no write after %d", writes))
			failing(t, &o, failsAfter(writes))
			m := f.start(t, o)
			waitFor(t, m, 0, "I/O error, dev vda")
			waitFor(t, m, 0, "caisson: booting the last good overlay, generation 1")
			s := f.login(t, m)
			st := status(t, s)
			if st.Overlay != first.Overlay || st.Health != spec.HealthDegraded || st.Sync != spec.SyncBehind {
				t.Errorf("%+v", st)
			}
			if why := run(t, s, "sudo caisson-agent why || [ $? -eq 3 ]"); !strings.Contains(why, "state") {
				t.Errorf("why: %s", why)
			}
			if got := run(t, s, "cat /proc/sys/kernel/panic"); got != "30" {
				t.Errorf("kernel.panic is %s, which is of a generation that could not be counted", got)
			}
		})
	}
}

// failing puts QEMU's blkdebug below the disk.
func failing(t *testing.T, o *machine.Options, rules string) {
	t.Helper()
	config := o.Disk + ".blkdebug"
	if err := os.WriteFile(config, []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	o.Extra = append(o.Extra, "-drive", "if=virtio,cache=writethrough,driver=raw,file.driver=blkdebug,file.config="+config+",file.image.driver=file,file.image.filename="+o.Disk)
	o.Disk = ""
}

// failsAfter has each write fail after so many that did not.
func failsAfter(writes int) string {
	var rules strings.Builder
	for n := range writes {
		fmt.Fprintf(&rules, "[set-state]\nevent = \"write_aio\"\nstate = \"%d\"\nnew_state = \"%d\"\n\n", n+1, n+2)
	}
	fmt.Fprintf(&rules, "[inject-error]\nevent = \"write_aio\"\niotype = \"write\"\nerrno = \"5\"\nstate = \"%d\"\n", writes+1)
	return rules.String()
}

// inLargest is a sector of the disk in the middle of the largest blob of its store.
func inLargest(t *testing.T, o machine.Options) int64 {
	t.Helper()
	at := o.Disk + ".d"
	sh(t, `mkdir "$2"; mount -o loop,offset=1048576 "$1" "$2"`, o.Disk, at)
	defer sh(t, `umount "$1"; rmdir "$1"`, at)
	largest, size := "", int64(0)
	names, err := filepath.Glob(filepath.Join(at, "store/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err != nil {
			t.Fatal(err)
		} else if info.Size() > size {
			largest, size = name, info.Size()
		}
	}
	out, err := exec.CommandContext(t.Context(), "filefrag", "-b512", "-v", largest).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	extent := regexp.MustCompile(`(?m)^ +0: +0\.\. +(\d+): +(\d+)\.\.`).FindSubmatch(out)
	if extent == nil {
		t.Fatalf("no first extent in %s", out)
	}
	length, err1 := strconv.ParseInt(string(extent[1]), 10, 64)
	start, err2 := strconv.ParseInt(string(extent[2]), 10, 64)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return start + length/2 + 1048576/512
}
