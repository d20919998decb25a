// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// Release returns the release of the kernel that runs.
func Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// ArmPanic has the kernel start over when it panics, if it was started without the
// word that says so: by an older boot file, or by hand. It stays so when the new
// root's init takes over, which may be what panics. What the command line says
// counts: panic=0 leaves a dead machine as it is.
func ArmPanic(proc string) error {
	line, _ := os.ReadFile(proc + "/cmdline") // an unreadable one names nothing
	words := identity.CommandLine(string(line))
	for _, word := range spec.KernelLine(words)[len(words):] {
		if seconds, ok := strings.CutPrefix(word, "panic="); ok {
			return fault.In(os.WriteFile(proc+"/sys/kernel/panic", []byte(seconds), 0), "after a panic this machine stays as it is")
		}
	}
	return nil
}

// Setting is a file below /proc/sys that the loader changes for as long as it
// runs; the layer finds it as the kernel had it.
type Setting struct {
	File, Value string
	Without     string // what may happen while it is not changed
	was         []byte // nil while it is unchanged
}

// Change changes each of a list, and says what may happen where it cannot.
func Change(say func(format string, args ...any), list ...*Setting) []*Setting {
	for _, s := range list {
		fault.Say(say, fault.In(s.change(), "%s", s.Without))
	}
	return list
}

// change sets the value. The newline is part of what is written: printk_devkmsg
// takes a value without one for invalid. A setting that has the value already is
// left alone: "printk.devkmsg=on" on the command line locks it.
func (s *Setting) change() error {
	was, err := os.ReadFile(s.File)
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(was)) == s.Value {
		return nil
	}
	if err := os.WriteFile(s.File, []byte(s.Value+"\n"), 0); err != nil {
		return err
	}
	s.was = was
	return nil
}

// Restore puts back what Change found.
func (s *Setting) Restore() error {
	if s.was == nil {
		return nil
	}
	return os.WriteFile(s.File, s.was, 0)
}
