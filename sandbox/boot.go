// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// Start starts the machine, which ends with ctx at the latest, and what it boots from.
func (b *Box) Start(ctx context.Context) error {
	ctx, b.end = context.WithCancel(ctx)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler, err := registry.Handler(b.dir.File("registry"))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	served := httpserver.Options{Log: func(r httpserver.Request) { b.fetched.Add(r.Bytes) }}
	go func() { _ = httpserver.Serve(ctx, l, handler, served) }() // the loader says who does not answer
	o, err := b.options(ctx, l.Addr().String())
	if err != nil {
		return err
	}
	b.machine, err = machine.Start(ctx, o)
	return err
}

// LogIn waits until root can log in. A node that does not come up is a [DownError].
func (b *Box) LogIn(ctx context.Context) error {
	return b.step("boot", func() error { return b.logIn(ctx, b.o.Secure) })
}

// options describe the machine.
func (b *Box) options(ctx context.Context, registry string) (machine.Options, error) {
	o := machine.Options{Name: b.node.Name, Arch: b.arch, MAC: b.plug.MACs[0], MoreMACs: b.plug.MACs[1:], Network: b.plug.Network,
		Memory: cmp.Or(b.o.Memory, memoryFor(b.layer.Bytes())), KVM: b.noKVM == nil, Kernel: b.dir.File("boot/kernel"),
		Initrd: b.dir.File("loader.img"), Forwards: map[string]string{b.plug.Registry.String(): registry}, Credentials: b.credentials(),
		Log: b.o.Console}
	if b.plug.Between != nil {
		var err error
		if o.Cables, err = b.plug.Between.Listen(ctx, len(b.plug.MACs)); err != nil {
			return o, err
		}
	}
	if o.KVM {
		o.Processors = min(2, runtime.NumCPU())
	}
	words := slices.Concat([]string{b.bootCard()}, b.line, b.console())
	if uuids := b.node.Match.UUIDs; len(uuids) > 0 {
		o.UUID = uuids[0]
	}
	if b.nameOnly() {
		words = append(words, "caisson.node="+b.node.Name)
	}
	o.Append = strings.Join(words, " ")
	if b.road() != byKernel {
		if err := b.fromMedium(&o); err != nil {
			return o, err
		}
	}
	if b.o.Disk && b.road() != byDisk {
		o.Disk = b.dir.File("state.raw")
		err := b.makeDisk(ctx, &o)
		return o, err
	}
	return o, nil
}

// bootCard is the word for the card that the node boots by, and is asked by: the first one. A
// boot network says it, too; of several cards on one network another would have its address.
func (b *Box) bootCard() string {
	return "BOOTIF=01-" + strings.ReplaceAll(b.plug.MACs[0], ":", "-")
}

// nameOnly reports whether nothing but its name says which node the machine is.
func (b *Box) nameOnly() bool { return len(b.node.Match.UUIDs)+len(b.node.Match.MACs) == 0 }

// console is the word that the site's kernel arguments lack, for somebody to see the boot.
func (b *Box) console() []string {
	console := "console=" + machine.SerialLine(b.arch)
	if slices.ContainsFunc(b.line, func(word string) bool { return strings.HasPrefix(word, console) }) {
		return nil
	}
	return []string{console}
}

// memoryFor returns how much memory a machine has, in MiB: a gigabyte, and the images of its
// layer, which it keeps there.
func memoryFor(layer int64) int {
	const step = 256
	return (1024 + int(layer>>20) + step - 1) / step * step
}

// makeDisk makes the state disk, or an empty disk where the site has its nodes make one.
// One with a key is made here in any case. All of it is taken at once: a disk that is full later would be the guest's trouble.
func (b *Box) makeDisk(ctx context.Context, o *machine.Options) (err error) {
	wanted := b.newStateDisk()
	size := b.diskRoom()
	if wanted != nil {
		size = max(size, wanted.AtLeast)
	}
	if err := enlarge(o.Disk, size); err != nil {
		return err
	}
	if wanted == nil || b.o.Key != "" {
		content, err := b.keep()
		if err != nil {
			return err
		}
		if err := machine.MakeStateDisk(ctx, o.Disk, int(size>>20), content); err != nil {
			return err
		}
	}
	if wanted != nil && len(wanted.Disks) > 0 { // by the first serial number that the site names
		o.Extra = []string{"-drive", "if=none,id=state,format=raw,cache=writethrough,file=" + o.Disk, "-device",
			"virtio-blk-pci,drive=state,serial=" + wanted.Disks[0]}
		o.Disk = ""
	}
	return nil
}

// keep writes the node's key into a directory that a state disk is made of, and returns that,
// "" where there is none.
func (b *Box) keep() (string, error) {
	if b.o.Key == "" {
		return "", nil
	}
	content := b.dir.File("state")
	name := filepath.Join(content, paths.SecretsKey)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	return content, os.WriteFile(name, []byte(b.o.Key), 0o600)
}

// diskRoom returns how much room a state disk has, in bytes: whole mebibytes.
func (b *Box) diskRoom() int64 { return cmp.Or(b.o.diskSize, 3<<30+3*(b.layer.Bytes()>>20+1)<<20) }

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
	return enlarge(file, info.Size()+b.diskRoom())
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
