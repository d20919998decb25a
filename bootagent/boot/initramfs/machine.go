// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/boot/loader"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// machine holds the facts of this machine, and of this loader: no stage changes them after the
// one that has found them.
type machine struct {
	say       say
	build     time.Time
	version   string
	proc      string   // /proc
	variables string   // of the firmware, [efivar.Dir]
	words     []string // kernel command line
	bootstrap spec.Bootstrap
	limits    limits
	modules   *kernel.Modules
	trial     time.Time // until when this loader has to find what to boot; zero where it is not on trial
	id        trust.Identity
	epochs    track.Epochs // nil: none are kept
	tpm       tpm.TPM
}

// armPanic has the kernel start over when it panics, if it was started without the
// word that says so: by an older boot file, or by hand. It stays so when the new
// root's init takes over, which may be what panics. What the command line says
// counts: panic=0 leaves a dead machine as it is.
func (m *machine) armPanic() {
	line, _ := os.ReadFile(m.proc + "/cmdline") // an unreadable one names nothing
	words := identity.CommandLine(string(line))
	for _, word := range spec.KernelLine(words)[len(words):] {
		if seconds, ok := strings.CutPrefix(word, "panic="); ok {
			fault.Say(m.say, fault.In(os.WriteFile(m.proc+"/sys/kernel/panic", []byte(seconds), 0), "after a panic this machine stays as it is"))
		}
	}
}

// takeBootstrap acts on nothing that a later release has narrowed, and says so.
func (m *machine) takeBootstrap(data []byte) (err error) {
	var notes []string
	if m.bootstrap, notes, err = spec.DecodeBootstrap(data); err != nil {
		return fmt.Errorf("read site.cpio: %w", err)
	}
	for _, note := range notes {
		m.say("site.cpio: %s", note)
	}
	return nil
}

// coldplug loads what the devices ask for that are there now, and says whether
// that was anything.
func (m *machine) coldplug() (some bool) {
	for m.modules != nil { // else they are not there yet
		n, err := m.modules.Coldplug("/sys")
		fault.Say(m.say, err)
		if n == 0 {
			break
		}
		some = true
	}
	return some
}

// booted reads the firmware's variable, and shows those before where they are not shown yet.
func (m *machine) booted(variables string) (string, error) {
	if _, err := os.Stat(filepath.Dir(variables)); err != nil {
		return "", nil // not started by UEFI
	}
	if err := m.modules.Load("efivarfs"); err != nil {
		return "", err
	}
	// The firmware keeps why a kernel died, of this boot and of the one before. Some keep nothing.
	fault.Say(m.say, m.modules.Load("efi_pstore"))
	if err := unix.Mount("efivarfs", variables, "efivarfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil && !errors.Is(err, unix.EBUSY) {
		return "", fmt.Errorf("mount %s: %w", variables, err)
	}
	return loader.Booted(variables)
}

// bootMAC is the address of the card that the machine booted by, "" where nobody said so.
func (m *machine) bootMAC() string {
	if identity.Option(m.words, "BOOTIF") == "" || len(m.id.MACs) == 0 {
		return ""
	}
	return m.id.MACs[0]
}

// afterKexec reports whether this loader is the second one of its boot.
func (m *machine) afterKexec() bool { return kernel.RanKexec(m.words, m.proc) }

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// limits are how long the loader waits. Whatever waits has one.
type limits struct {
	ask   time.Duration // for the registry's answer
	soon  time.Duration // for a newer layer, where a good one is on the disk
	only  time.Duration // for the only layer there is, before everything is asked again
	pause time.Duration // before the second try; it grows
	hang  time.Duration // without any progress, before the machine starts over; more than all of the above
	trial time.Duration // for a loader on trial to find what to boot, before the machine starts over
	talk  time.Duration // between two lines about the same wait
	hint  time.Duration // between two hints to the fleet's service
}

// usual holds the limits of a machine's boot. In a minute an ordinary line brings an
// ordinary layer; a slower one is the service's business, not the boot's.
var usual = limits{ask: time.Minute, soon: time.Minute, only: 10 * time.Minute, pause: 2 * time.Second,
	hang: 15 * time.Minute, trial: 10 * time.Minute, talk: 5 * time.Second, hint: 15 * time.Minute}

// from returns the limits with what the command line says of them. No wait may be
// longer than the silence that starts the machine over.
func (l limits) from(words []string) limits {
	l.soon = min(identity.Seconds(words, "caisson.patience", l.soon), l.only)
	l.trial = identity.Seconds(words, "caisson.trial", l.trial)
	return l
}

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
		fault.Say(say, fault.In(s.change(), "%s", s.without))
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
