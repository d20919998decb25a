// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/kernel/kexec"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// enterKernel starts the layer's kernel with the overlay's arguments, unless that
// is what runs already. It returns when there is nothing to do.
func (b *boot) enterKernel(ctx context.Context, from oci.Source, found *track.Found, layer *spec.Layer) error {
	line, another := b.commandLine(found, layer)
	if !another {
		return nil
	}
	running := release()
	if len(line.Dropped) > 0 {
		b.say("kernel arguments that the overlay does not name: %s", strings.Join(line.Dropped, " "))
	}
	if b.afterKexec() {
		// Once is enough: what a kexec did not change another one will not.
		if running != layer.Kernel.Release {
			return fmt.Errorf("%w: %s runs after a kexec, the layer has %s", errStartOver, running, layer.Kernel.Release)
		}
		if counted, _ := kexec.CountedFor(b.words); counted != "" && counted != found.Generation.Overlay {
			// Those of another generation, which may be what keeps it from the network: it counts as
			// begun, and the loader before any kexec runs the good one once that has failed too often.
			return fmt.Errorf("%w: the arguments of %s, which could not be run, are not those of generation %d", errStartOver, counted, found.Generation.Generation)
		}
		b.say("kernel arguments still differ after a kexec, going on: have %s", strings.Join(b.words, " "))
		return nil
	}
	if b.net != nil && !b.net.Table.Plain() && !slices.Contains(layer.Features, spec.BootNetworkFeature) {
		return fmt.Errorf("layer %s: its loader, behind a kexec, would ask by DHCP on each card: %s says otherwise", found.Generation.Layer, b.net.Table.Source)
	}
	b.say("kexec: kernel %s, arguments %s", layer.Kernel.Release, strings.Join(line.Words, " "))
	if err := b.stager(from).Verified(ctx, stage.Kernel(*layer)...); err != nil {
		if running != layer.Kernel.Release || !found.Unchanged {
			return err
		}
		// It came up before. The right kernel runs, only its arguments are others: better that than
		// no boot, and it stands on the console.
		b.say("kernel arguments differ and the kernel cannot be fetched, going on: %v", err)
		return nil
	}
	k, err := os.Open(b.store.Path(layer.Kernel.Digest))
	if err != nil {
		return err
	}
	defer k.Close() // only read
	initrd, err := b.nextInitrd(layer)
	if err != nil {
		return err
	}
	defer initrd.Close() // a memory file that kexec has read
	b.begin()
	b.note(about(found.Generation, spec.Event{Event: spec.EventKexec, Transition: b.transition, Why: "kernel " + layer.Kernel.Release}))
	return fmt.Errorf("%w: %w", errStartOver, kexec.Start(k, initrd, append(line.Words, b.counted()), b.settle))
}

// commandLine returns the line that the layer's kernel must have, and whether it, or
// the kernel, is another than the one that runs.
func (b *boot) commandLine(found *track.Found, layer *spec.Layer) (line kexec.Line, another bool) {
	line = kexec.Arguments(b.words, b.bootstrap.KernelArgs, found.Overlay.KernelArgs)
	return line, line.Differs || release() != layer.Kernel.Release
}

// afterKexec reports whether this loader is the second one of its boot.
func (b *boot) afterKexec() bool { return kexec.Ran(b.words, b.proc) }

// errStartOver is returned when only a restart through the firmware is left: a kexec did not
// lead to the wanted kernel, or this loader has waited too long.
var errStartOver = errors.New("only a restart of the machine is left")

// nextInitrd is the layer's generic initrd with this loader's bootstrap behind it.
func (b *boot) nextInitrd(layer *spec.Layer) (*os.File, error) {
	generic, err := os.Open(b.store.Path(layer.Initrd.Digest))
	if err != nil {
		return nil, err
	}
	defer generic.Close() // only read
	bootstrap, err := b.handDown(layer)
	if err != nil {
		return nil, err
	}
	name := paths.Run + "/initrd"
	if err := durable.Write(name, 0o600, func(w io.Writer) error {
		n, err := io.Copy(w, generic)
		if err != nil {
			return err
		}
		site := cpio.New()
		site.File(paths.Bootstrap, bootstrap, 0o600)
		_, err = w.Write(append(cpio.Pad(n, 4), site.Bytes()...))
		return err
	}); err != nil {
		return nil, err
	}
	return os.Open(name)
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
