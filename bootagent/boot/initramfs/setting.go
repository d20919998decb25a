// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"os"
)

// setting is a file below /proc/sys that the loader changes for as long as it
// runs; the layer finds it as the kernel had it.
type setting struct {
	file, value string
	was         []byte // nil while it is unchanged
}

// devkmsgOn has the kernel take all that a process writes to /dev/kmsg. It drops
// what is written in a hurry, else, and with it the reason why a machine does not
// boot.
func devkmsgOn() setting { return setting{file: "/proc/sys/kernel/printk_devkmsg", value: "on"} }

// oopsPanics has a kernel that oopses in the loader start over: nothing runs yet that
// could be saved, and a loader whose thread the kernel has killed hangs.
func oopsPanics() setting { return setting{file: "/proc/sys/kernel/panic_on_oops", value: "1"} }

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
