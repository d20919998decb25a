// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"fmt"
	"os"

	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/sandbox/scratch"
	"github.com/caisson-os/caisson/spec"
)

// road is how the machine comes to its loader.
type road int

const (
	byKernel road = iota // QEMU starts it, as a boot network would
	byCD                 // firmware starts it from a disc
	byDisk               // firmware starts it from the machine's own disk
)

func (r road) String() string { return [...]string{"kernel", "cd", "disk"}[r] }

// Road returns how the machine comes to its loader: kernel, cd or disk.
func (b *Box) Road() string { return b.road().String() }

// medium is the file of the road's medium; its name says its format.
func (r road) medium() string { return [...]string{"", "medium.iso", "disk.raw"}[r] }

// road returns what the options ask for. A disk that the node makes itself, or that has no room
// for what firmware would start, is beside a kernel.
func (b *Box) road() road {
	switch {
	case b.o.ISO:
		return byCD
	case b.o.Disk && b.newStateDisk() == nil && b.layer.UEFI != nil:
		return byDisk
	case b.o.Secure:
		return byCD
	}
	return byKernel
}

// newStateDisk returns the disk that the loader is to make, nil for none. A node with something
// kept had its disk before, and its layer may lack the programs that make one.
func (b *Box) newStateDisk() *spec.NewStateDisk {
	if b.o.Kept != nil {
		return nil
	}
	return b.site.Bootstrap().NewStateDisk
}

// writeMedium writes what 'caisson image' does, with two arguments more: where the console is,
// and which card the node is asked by.
func (b *Box) writeMedium(ctx context.Context, anchor spec.Bootstrap) error {
	source := media.Source{Layer: b.layer, Bootstrap: anchor, Args: append(b.console(), b.bootCard()),
		Key: b.o.Build.Options.Boot}
	if b.nameOnly() {
		source.Node = b.node.Name
	}
	loader, err := media.Fetch(ctx, b.registry, source)
	if err != nil {
		return err
	}
	content, err := b.keep()
	if err != nil {
		return err
	}
	return media.Medium{Loader: loader, Node: source.Node, Fleet: b.site.Name(), State: 2*b.layer.Bytes() + 256<<20,
		Content: content}.Write(ctx, b.dir.File(b.road().medium()))
}

// fromMedium has firmware start the machine.
func (b *Box) fromMedium(o *machine.Options) error {
	file := b.dir.File(b.road().medium())
	o.UEFI, o.Kernel, o.Initrd, o.Append = b.dir.File("firmware"), "", "", ""
	if b.o.Secure {
		o.Secure = true
		if err := b.enroll(o.UEFI); err != nil {
			return fmt.Errorf("enroll the boot key: %w", err)
		}
	}
	if b.road() == byCD {
		o.CD = file
		return nil
	}
	o.Disk = file
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return scratch.Enlarge(file, info.Size()+b.diskRoom())
}

// enroll writes variables of firmware that knows the site's boot key, and no other. Nobody changes
// them, so that no further pair is needed for PK and KEK.
func (b *Box) enroll(file string) error {
	image, err := machine.Variables(b.arch)
	if err != nil {
		return err
	}
	key := efivar.Certificate(b.o.Build.Options.Boot.Certificate())
	image, err = efivar.Fill(image, map[efivar.Variable][]byte{efivar.Platform: key, efivar.Exchange: key, efivar.Allowed: key})
	if err != nil {
		return err
	}
	return os.WriteFile(file, image, 0o600)
}
