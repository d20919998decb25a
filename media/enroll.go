// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"debug/pe"
	"fmt"
	"os"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/media/format"
)

// Enrollment is a CD, and the same as a USB stick, whose systemd-boot puts keys into firmware that
// has none (setup mode), and starts the machine again. Firmware that has keys does not start it.
type Enrollment struct {
	Manager []byte                     // systemd-boot 252 or newer, unsigned
	Date    time.Time                  // of its files
	Updates map[efivar.Variable][]byte // of Platform, Exchange and Allowed
}

// enrolls are the settings of systemd-boot, see loader.conf(5), by which it asks nobody: it counts
// down on the screen, and a key press ends it.
const enrolls = "secure-boot-enroll force\nauto-firmware no\neditor no\n"

// Write writes the medium to a file, or leaves the file as it was.
func (e Enrollment) Write(ctx context.Context, name string) error {
	arch, err := architecture(e.Manager)
	if err != nil {
		return fmt.Errorf("systemd-boot: %w", err)
	}
	// It has identifiers of its own: no loader takes it for one of the fleet's media.
	m := Medium{Loader: &Loader{Arch: arch, Date: e.Date.UTC()}, Node: "keys of firmware"}
	files := []format.FATFile{held(m.Loader.fallback(), e.Manager), held("loader/loader.conf", []byte(enrolls))}
	for _, v := range []efivar.Variable{efivar.Platform, efivar.Exchange, efivar.Allowed} {
		files = append(files, held("loader/keys/auto/"+string(v)+".auth", e.Updates[v]))
	}
	if err := durable.Fill(name, 0o644, func(f *os.File) error { return m.cd(ctx, f, files) }); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// architecture returns Debian's name of that which a program is for.
func architecture(program []byte) (string, error) {
	f, err := pe.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("not a program for firmware: %w", err)
	}
	switch f.Machine {
	case pe.IMAGE_FILE_MACHINE_AMD64:
		return "amd64", nil
	case pe.IMAGE_FILE_MACHINE_ARM64:
		return "arm64", nil
	}
	return "", cli.Usage("amd64 and arm64 are known", "a program for machines of type %#x", f.Machine)
}
