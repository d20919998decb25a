// SPDX-License-Identifier: Apache-2.0

package rehearsal

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// marks tell one run of a machine from another.
type marks struct{ boot, root, kernel string }

// marks reads the id of the boot, the device of the root, and the kernel with its arguments.
func (w *walk) marks(ctx context.Context) (m marks, err error) {
	out, err := w.box.Run(ctx, "cat /proc/sys/kernel/random/boot_id; stat -c %d /; uname -r; cat /proc/cmdline")
	if err != nil {
		return m, err
	}
	lines := strings.SplitN(out, "\n", 3)
	if len(lines) != 3 {
		return m, fmt.Errorf("the machine does not say what it runs: %q", out)
	}
	return marks{lines[0], lines[1], lines[2]}, nil
}

// happened returns the class of what lies between two marks.
func happened(was, is marks) string {
	switch {
	case is.boot == was.boot && is.root == was.root:
		return spec.ClassLive
	case is.boot == was.boot:
		return spec.ClassSoftReboot
	case is.kernel != was.kernel:
		return spec.ClassKexec
	}
	return spec.ClassReboot
}

// seen returns the class as which one can be seen.
func seen(class string) string {
	switch {
	case spec.Live(class):
		return spec.ClassLive
	case class == spec.ClassCold:
		return spec.ClassReboot
	}
	return class
}
