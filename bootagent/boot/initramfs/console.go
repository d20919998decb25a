// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/screen"
	"github.com/caisson-os/caisson/internal/plain"
)

// console speaks to the people who stand before the machine: every console that
// the kernel knows, through its log, with the severity that gets past "quiet".
type console struct{ w io.Writer }

// kmsg is the kernel's log.
const kmsg = "/dev/kmsg"

func openConsole() console {
	f, err := os.OpenFile(kmsg, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return console{os.Stderr}
	}
	return console{f}
}

// maxRecord is below what the kernel takes in one write; more of it is refused as
// a whole.
const maxRecord = 900

// say prints each line as a record; what comes from outside forges none. <3> is "error": lower ones are hidden by
// "quiet", and a loader that says nothing looks like one that hangs.
func (c console) say(format string, args ...any) {
	for line := range strings.SplitSeq(plain.Sprintf(format, args...), "\n") {
		for len(line) > maxRecord {
			fmt.Fprintf(c.w, "<3>caisson: %s\n", line[:maxRecord])
			line = line[maxRecord:]
		}
		fmt.Fprintf(c.w, "<3>caisson: %s\n", line)
	}
}

// show says that this node does not come up, with what the loader knows of it.
func (b *boot) show(f screen.Failure) {
	f.Registry, f.Machine, f.Disk, f.Now = b.bootstrap.Registry, b.id, b.disk, time.Now()
	if b.lease != nil {
		f.Address = b.lease.Address.String()
	}
	for _, line := range f.Lines() {
		b.say("%s", line)
	}
}
