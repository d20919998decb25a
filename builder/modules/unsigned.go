// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/root"
)

// own is the directory of the modules that a kernel's package brings.
const own = "kernel"

// Unsigned lists the modules of a kernel's release that nobody signed, below the release's directory.
// The kernel's own are signed together, so that the first stands for all of them: "kernel".
func Unsigned(ctx context.Context, r *root.Root, release string) (names []string, err error) {
	w := walk{ctx: ctx, r: r, dir: "/usr/lib/modules/" + release}
	if err := w.at(""); err != nil {
		return nil, fmt.Errorf("modules of kernel %s: %w", release, err)
	}
	return w.unsigned, nil
}

type walk struct {
	ctx      context.Context
	r        *root.Root
	dir      string
	looked   bool // at one of the kernel's own
	unsigned []string
}

// at looks at a module, or at all that a directory has.
func (w *walk) at(name string) error {
	ours := strings.HasPrefix(name, own+"/")
	if ours && w.looked {
		return nil
	}
	info, err := w.r.Lstat(path.Join(w.dir, name))
	switch {
	case err != nil:
		return err
	case info.IsDir():
		below, err := w.r.ReadDir(path.Join(w.dir, name))
		for _, b := range below {
			if err == nil {
				err = w.at(path.Join(name, b))
			}
		}
		return err
	case !info.Mode().IsRegular() || !strings.Contains(path.Base(name), ".ko"):
		return nil
	}
	data, err := w.r.ReadFile(path.Join(w.dir, name))
	if err == nil {
		data, err = boot.Unpack(w.ctx, name, data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if w.looked = w.looked || ours; bytes.HasSuffix(data, []byte(mark)) {
		return nil
	}
	if ours {
		name = own
	}
	w.unsigned = append(w.unsigned, name)
	return nil
}
