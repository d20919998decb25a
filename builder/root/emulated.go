// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
)

// binfmt is where a kernel says which programs it hands to an emulator.
const binfmt = "/proc/sys/fs/binfmt_misc"

// Emulates has a root that holds nothing else run a static program of an architecture, where it is another
// than the host's. Only that says whether packages' scripts would run: which emulator there is, and whether
// the kernel has opened it before it enters a root without one, is not for us to know. Work is as [Root.Work].
func Emulates(ctx context.Context, work, program, arch string) error {
	if arch == runtime.GOARCH {
		return nil
	}
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	r, err := empty(work)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.Work) // the next build empties work
	err = r.RunWith(ctx, filepath.Dir(program), Command{Args: []string{filepath.Join(Bind, filepath.Base(program)), "version"}})
	if err == nil || ctx.Err() != nil {
		return err
	}
	hint := "on Debian: apt install qemu-user-static (qemu-user-binfmt from Debian 13 on), on the host where this is a container; or build on " + arch
	if _, missing := os.Stat(binfmt + "/register"); errors.Is(missing, fs.ErrNotExist) {
		hint = "binfmt_misc, by which a kernel finds an emulator, is not mounted: mount -t binfmt_misc binfmt_misc " + binfmt + "; then, " + hint
	} else if strings.Contains(err.Error(), "no such file") {
		hint = "the kernel opens the emulator too late, in the layer's root: its entry in " + binfmt + " needs the flag F; " + hint
	}
	return cli.WithHint(fmt.Errorf("a layer for %s on a host of %s: %w", arch, runtime.GOARCH, Said(err)), hint)
}

// empty returns a root without any program, in a directory of its own that is also its Work.
func empty(work string) (*Root, error) {
	dir, err := os.MkdirTemp(work, "try-")
	if err != nil {
		return nil, err
	}
	r := &Root{Lowers: []string{filepath.Join(dir, "lower")}, Work: dir}
	for _, sub := range []string{"proc", "sys", "dev", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(r.Lowers[0], sub), 0o755); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	return r, nil
}
