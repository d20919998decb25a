// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// keys are the keys of secrets on the state disk.
func (d *stateDisk) keys() secrets.Keys {
	return secrets.Keys{State: d.folder.Path(), Memory: paths.RunUnlocked, TPM: d.machine.tpm}
}

// unlock opens the keys of secrets that are sealed to the machine's TPM, while its register has what this
// loader is: the root's systemd extends it. No boot waits for that, or ends by it.
func (d *stateDisk) unlock() {
	if d.device == "" {
		return
	}
	err := mountRAM(paths.RunUnlocked)
	if err == nil {
		err = d.keys().Unlock(secrets.Loader{Approvals: spec.ApprovalsFile, Key: spec.ApprovalKeyFile, Carried: paths.Unlocked,
			Trial: !d.machine.trial.IsZero()})
	}
	if err != nil {
		d.say("keys of secrets that are sealed stay closed: %v", err)
	}
}

// mountRAM mounts memory that is never swapped, for root alone.
func mountRAM(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type == unix.RAMFS_MAGIC {
		return err
	}
	return unix.Mount("ramfs", dir, "ramfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
}

// carryKeys adds what is open to an archive for the next loader, which the stub gives nothing.
func (d *stateDisk) carryKeys(to *cpio.Archive) error {
	data, err := ownfiles.ReadSecret(filepath.Join(paths.RunUnlocked, secrets.OpenedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		to.File(paths.Unlocked+"/"+secrets.OpenedFile, data, 0o600)
	}
	return err
}
