// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/boot/loader"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/fault"
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

// say is how a part of the loader speaks, see [screen.Console.Say].
type say func(format string, args ...any)
