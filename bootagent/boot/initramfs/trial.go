// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/loader"
)

// onTrial finds out whether this loader is one that has to prove itself: systemd-boot counts
// its starts. Behind a kexec another one has started, and has decided.
func (b *boot) onTrial(context.Context) error {
	if b.afterKexec() {
		return nil
	}
	file, err := b.booted(loader.Variables)
	if err != nil {
		b.say("whether this loader is on trial is not known: %v", err)
	}
	if file != "" {
		b.trial = time.Now().Add(b.limits.trial)
		b.say("this loader is on trial: %s; within %s it finds what to boot, or the machine starts over", file, b.limits.trial)
	}
	return nil
}

// booted reads the firmware's variable, and shows those before where they are not shown yet.
func (b *boot) booted(variables string) (string, error) {
	if _, err := os.Stat(filepath.Dir(variables)); err != nil {
		return "", nil // not started by UEFI
	}
	if err := b.modules.Load("efivarfs"); err != nil {
		return "", err
	}
	// The firmware keeps why a kernel died, of this boot and of the one before. Some keep nothing.
	if err := b.modules.Load("efi_pstore"); err != nil {
		b.say("%v", err)
	}
	if err := unix.Mount("efivarfs", variables, "efivarfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return "", fmt.Errorf("mount %s: %w", variables, err)
	}
	return loader.Booted(variables)
}

// overdue says why a loader on trial gives up, "" where it does not: it has found nothing to
// boot for too long.
func (b *boot) overdue() string {
	if b.trial.IsZero() || time.Now().Before(b.trial) {
		return ""
	}
	return fmt.Sprintf("this loader is on trial and has found nothing to boot within %s", b.limits.trial)
}
