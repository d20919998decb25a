// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/release"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

// Options say how a node is tried.
type Options struct {
	Build    release.Build                                   // how its layer is built
	First    func(context.Context, *registry.Registry) error // brings what overlays name beside layers; nil is nothing
	Dir      string                                          // takes a directory for as long as the sandbox lives
	Tool     string                                          // version of the program
	Now      time.Time                                       // of the signatures
	Memory   int                                             // MiB; 0 is what the layer takes, and a gigabyte
	Cards    int                                             // at least so many; a node has those that its site names
	Disk     bool                                            // with a state disk
	diskSize int64                                           // bytes; 0 is 3 GiB and room for three layers
	Console  io.Writer                                       // gets the console
}

// Step is a part of the way, for those who wonder what took so long.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Box is a sandbox: one node, with all that it boots from.
type Box struct {
	site       *site.Site
	node       inventory.Node
	o          Options
	dir        *directory
	keys       signers
	login      loginKey
	plug       plug
	registry   *registry.Registry
	layer      release.Layer
	generation uint64
	overlay    string             // digest
	line       []string           // of the kernel
	noKVM      error              // why the processor is emulated; nil is KVM
	end        context.CancelFunc // of the machine and what it boots from; nil before
	machine    *machine.Machine
	session    *machine.Session
	steps      []Step
}

// Open builds the node's layer, signs and publishes it and its overlay in a registry of its
// own, and writes the files that boot it. The caller closes what it returns.
func Open(ctx context.Context, s *site.Site, node string, o Options) (b *Box, err error) {
	overlay, err := s.Overlay(node, "")
	if err != nil {
		return nil, err
	}
	if !s.HasLayer() {
		return nil, site.ErrNoLayer
	}
	if arch := s.DefaultRecipe().Arch; arch != "amd64" {
		return nil, cli.Usage("", "a node of %s cannot be tried: the machine is one of amd64", arch)
	}
	b = &Box{site: s, o: o}
	b.node = s.Nodes()[slices.IndexFunc(s.Nodes(), func(n inventory.Node) bool { return n.Name == node })]
	if b.plug, err = plugFor(overlay, o.Cards); err != nil {
		return nil, err
	}
	var disk []string
	if o.Disk {
		disk = []string{"sgdisk", "mkfs.ext4"}
	}
	if err := machine.CheckTools(disk...); err != nil {
		return nil, err
	}
	if b.dir, err = newDirectory(ctx, o.Dir); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx, overlay); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// prepare is what comes before the machine. KVM is probed meanwhile: that takes a while
// where it does not work.
func (b *Box) prepare(ctx context.Context, overlay *spec.Overlay) (err error) {
	if b.keys, err = newSigners(); err != nil {
		return err
	}
	if b.login, err = newLoginKey(b.dir.file("id")); err != nil {
		return err
	}
	if err := b.openRegistry(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	probed := make(chan error, 1)
	go func() { probed <- machine.ProbeKVM(ctx, b.dir.name) }()
	defer func() {
		if err != nil {
			cancel()
		}
		b.noKVM = <-probed
		cancel()
	}()
	err = b.step("build", func() error {
		b.o.Build.Node = b.node.Name
		built, err := release.Bake(ctx, b.site, b.o.Build)
		if err != nil {
			return err
		}
		if b.layer, err = b.push(ctx, built); err != nil {
			return err
		}
		return b.layer.Suits(overlay)
	})
	if err != nil {
		return err
	}
	return b.step("publish, write boot files", func() error {
		if err := b.publish(ctx); err != nil {
			return err
		}
		if b.line, err = b.writeLoader(ctx); err != nil {
			return err
		}
		return machine.JoinInitrd(b.dir.file("loader.img"), b.dir.file("boot/initrd"), b.dir.file("boot/site.cpio"))
	})
}

// step does a part of the way and notes how long it took.
func (b *Box) step(name string, do func() error) error {
	begun := time.Now()
	err := do()
	b.steps = append(b.steps, Step{name, float64(time.Since(begun).Milliseconds()) / 1000})
	return err
}

// Steps are the parts of the way so far.
func (b *Box) Steps() []Step { return b.steps }

// Layer is the digest of the node's layer.
func (b *Box) Layer() string { return b.layer.Digest }

// Emulated returns why the processor is emulated, nil where KVM runs the machine.
func (b *Box) Emulated() error { return b.noKVM }

// Used is the processor time that the machine has had.
func (b *Box) Used() (time.Duration, error) {
	if b.machine == nil {
		return 0, nil
	}
	return b.machine.Used()
}

// Close ends the machine and removes what the sandbox made.
func (b *Box) Close() error {
	if b.session != nil {
		_ = b.session.Close() // the machine ends
	}
	if b.end != nil {
		b.end()
	}
	if b.machine != nil {
		b.machine.PowerCut()
	}
	return b.dir.remove()
}
