// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

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

// say is how a part of the loader speaks, see [console.say].
type say func(format string, args ...any)

// maxRecord is below what the kernel takes in one write; more of it is refused as
// a whole.
const maxRecord = 900

// say prints each line as a record; what comes from outside forges none. <3> is "error": lower ones are hidden by
// "quiet", and a loader that says nothing looks like one that hangs.
func (c *console) say(format string, args ...any) {
	for line := range strings.SplitSeq(plain.Sprintf(format, args...), "\n") {
		for len(line) > maxRecord {
			fmt.Fprintf(c.w, "<3>caisson: %s\n", line[:maxRecord])
			line = line[maxRecord:]
		}
		fmt.Fprintf(c.w, "<3>caisson: %s\n", line)
	}
}

// setting is a file below /proc/sys that the loader changes for as long as it
// runs; the layer finds it as the kernel had it.
type setting struct {
	file, value string
	without     string // what may happen while it is not changed
	was         []byte // nil while it is unchanged
}

// changeAll changes each of a list, and says what may happen where it cannot.
func changeAll(say say, list ...*setting) []*setting {
	for _, s := range list {
		if err := s.change(); err != nil {
			say("%s: %v", s.without, err)
		}
	}
	return list
}

// change sets the value. The newline is part of what is written: printk_devkmsg
// takes a value without one for invalid. A setting that has the value already is
// left alone: "printk.devkmsg=on" on the command line locks it.
func (s *setting) change() error {
	was, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(was)) == s.value {
		return nil
	}
	if err := os.WriteFile(s.file, []byte(s.value+"\n"), 0); err != nil {
		return err
	}
	s.was = was
	return nil
}

// restore puts back what change found.
func (s *setting) restore() error {
	if s.was == nil {
		return nil
	}
	return os.WriteFile(s.file, s.was, 0)
}
