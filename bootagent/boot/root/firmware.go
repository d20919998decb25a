// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/cms"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec/refusal"
)

// largest is more than any kernel or variable has.
const largest = 256 << 20

// CheckKexec refuses every kernel where the running one, of an architecture, enters none: Debian's for arm64
// have kexec_load(2) alone, which lockdown denies, and they are locked down where firmware verifies.
// variables is [efivar.Dir].
func CheckKexec(variables, arch string) error {
	on, err := verifies(variables)
	if err != nil || !on || arch != "arm64" {
		return err
	}
	return refusal.New(refusal.Kernel, "the running kernel is locked down, and those for arm64 enter no other then, whoever signed it")
}

// CheckKernel refuses a kernel, a file, that the firmware would not start. Where variables are not
// shown, or say that nothing is verified, every kernel is entered.
//
// A kernel under lockdown asks for less: whom its distribution trusts counts there beside the
// firmware's db, so that Debian's own kernels are entered whose loader the firmware would refuse.
// And it says no more than "key rejected", when the node has left what ran.
func CheckKernel(variables, kernel string) error {
	on, err := verifies(variables)
	if err != nil || !on {
		return err
	}
	var trusts cms.TrustsImage
	db, err := variable(variables, efivar.Allowed)
	if err == nil {
		trusts.Allowed, trusts.Digests, _, err = efivar.Entries(db)
	}
	if err != nil {
		return fmt.Errorf("read the firmware's db: %w", err)
	}
	dbx, err := variable(variables, efivar.Forbidden)
	if err == nil {
		trusts.ForbiddenBy, trusts.Forbidden, trusts.Revoked, err = efivar.Entries(dbx)
	}
	if err != nil {
		return fmt.Errorf("read the firmware's dbx: %w", err)
	}
	program, err := ownfiles.ReadPublic(kernel, largest)
	if err != nil {
		return err
	}
	if err := trusts.Verify(program); err != nil {
		return refusal.New(refusal.Kernel, "the firmware, which verifies, would not start the layer's kernel: %w", err)
	}
	return nil
}

func verifies(variables string) (bool, error) {
	on, err := variable(variables, efivar.SecureBoot)
	return bytes.Equal(on, []byte{1}), err
}

// variable returns the content of a variable, nothing where it is not there.
func variable(dir string, v efivar.Variable) ([]byte, error) {
	data, err := ownfiles.ReadPublic(filepath.Join(dir, v.File()), largest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(data) < 4 {
		return nil, err
	}
	return data[4:], nil // behind its attributes
}
