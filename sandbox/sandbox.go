// SPDX-License-Identifier: Apache-2.0

// Package sandbox boots one node of a site in a virtual machine that reaches nothing,
// before anything of the site is published.
//
//	box, err := sandbox.Open(ctx, site, "node1", sandbox.Options{…}) // build, sign, publish, boot files
//	defer box.Close()
//	err = box.Start(ctx)            // QEMU, from the kernel, the initrd and the site.cpio that metal gets, or from a medium
//	err = box.LogIn(ctx)            // it is up, or says why not
//	verdict, err := box.Settle(ctx) // what the node's agent says: health, gates
//	check, err := box.Check(ctx, "systemctl is-active nginx")
//
// With [Options].Kept the machine runs what a registry keeps for the node in place of what the
// site says; Offer and GoBack then publish something else for it while it runs.
//
// The layer is the one that a build makes, the overlay byte for byte the one that a publish
// makes. What differs is said here, in one place: the keys, which are made for this one
// boot; the registry, which is in this process on the loopback; the first console, which is
// the serial one; and a key with which root logs in, given to systemd as a credential and so
// part of neither. Nobody is told: the machine's network has no way out, and the loader is
// not given the fleet's service.
//
// It holds no keys of the site, and it is not a test of the hardware: drivers, firmware and
// cards are QEMU's. cmd/caisson, sandbox/culprit and sandbox/rehearsal import it; how a machine
// is run is internal/machine's.
package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/sandbox/plug"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

// MaxCards is how many cards a machine has at most.
const MaxCards = plug.MaxCards

// Options say how a node is tried.
type Options struct {
	Build    release.Build                                   // how its layer is built
	Kept     *Kept                                           // what it runs; nil is what the site says
	First    func(context.Context, *registry.Registry) error // brings what overlays name beside layers; nil is nothing
	Dir      string                                          // takes a directory for as long as the sandbox lives
	Tool     string                                          // version of the program
	Now      time.Time                                       // of the signatures
	Memory   int                                             // MiB; 0 is what the layer takes, and a gigabyte
	Cards    int                                             // at least so many; a node has those that its site names
	Disk     bool                                            // with a state disk; firmware starts from it where it can
	Key      string                                          // of secrets, which the node finds on that disk; "" has it make one
	ISO      bool                                            // firmware starts from a disc
	Secure   bool                                            // firmware starts only what the boot key of Build signs, from a medium
	diskSize int64                                           // bytes; 0 is 3 GiB and room for three layers
	Console  io.Writer                                       // gets the console
}

// Step is a part of the way, for those who wonder what took so long.
type Step struct {
	Name             string  `json:"name"`
	Seconds          float64 `json:"seconds"`
	ProcessorSeconds float64 `json:"processorSeconds"` // of this process, of those that it waited for, and of the machine
}

// Box is a sandbox: one node, with all that it boots from.
type Box struct {
	site *site.Site
	node inventory.Node
	o    Options
	dir  *scratch
	offer
	plug  plug.Plug
	probe *plug.Probe // nil where nothing is kept
	line  []string    // of the kernel
	guest
	fetched atomic.Int64 // bytes
	steps   []Step
}

// Open builds the node's layer or fetches the kept one, signs and publishes it and its overlay
// in a registry of its own, and writes the files that boot it. The caller closes what it returns.
func Open(ctx context.Context, s *site.Site, node string, o Options) (b *Box, err error) {
	n, _ := s.Fleet().Get(node) // else the layer says its architecture
	b = &Box{site: s, o: o, guest: guest{arch: s.Layer().Arch(n)}, offer: offer{fleet: s.Name(), tool: o.Tool, now: o.Now}}
	if o.Kept != nil {
		b.want, b.arch = o.Kept.Overlay, o.Kept.Layer.Arch
	} else if b.want, err = s.Overlay(node, ""); err != nil {
		return nil, err
	}
	if !s.HasLayer() {
		return nil, site.ErrNoLayer
	}
	b.node = inventory.Node{Name: node, Match: b.want.Match}
	rows := s.Bootstrap().Network
	if o.Kept != nil && o.Kept.Boot != nil {
		rows = o.Kept.Boot
	}
	if b.plug, err = plug.For(b.want, rows, o.Cards); err != nil {
		return nil, err
	}
	if o.Kept != nil {
		if b.probe, err = b.plug.Probe(); err != nil {
			return nil, err
		}
	}
	var more []string
	if o.Disk {
		more = []string{"sgdisk", "mkfs.ext4"}
	}
	if err := machine.CheckTools(b.arch, more...); err != nil {
		return nil, err
	}
	if o.ISO || o.Secure || b.arch == "arm64" {
		if err := machine.CheckFirmware(b.arch); err != nil {
			return nil, err
		}
	}
	if b.dir, err = newScratch(ctx, o.Dir); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// prepare is what comes before the machine. KVM is probed meanwhile: that takes a while
// where it does not work, and the node's own kernel once that is there.
func (b *Box) prepare(ctx context.Context) (err error) {
	if b.login, err = machine.NewKey(b.dir.File("id")); err != nil {
		return err
	}
	if err = b.offer.open("oci:" + b.dir.File("registry")); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	probed := make(chan error, 1)
	go func() { probed <- machine.ProbeKVM(ctx, b.arch, b.dir.Name) }()
	defer func() {
		if err != nil {
			cancel()
		}
		b.noKVM = <-probed
		if err == nil && b.noKVM == nil {
			b.noKVM = machine.ProbeKernel(ctx, b.arch, b.dir.File("boot/kernel"))
		}
		cancel()
	}()
	if err := b.Offer(ctx, b.o.Kept); err != nil {
		return err
	}
	return b.step("write boot files", func() error { return b.writeLoader(ctx) })
}

// step does a part of the way and notes how long it took.
func (b *Box) step(name string, do func() error) error {
	begun, before := time.Now(), b.processor()
	err := do()
	b.steps = append(b.steps, Step{name, seconds(time.Since(begun)), seconds(b.processor() - before)})
	return err
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// processor is the processor time that all of this took so far: on a machine that has other
// work it says more than a clock.
func (b *Box) processor() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err == nil { // it fails for other words only
			sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	guest, err := b.Used()
	if err != nil {
		return sum // it has just gone, and is among the children
	}
	return sum + guest
}

// Steps are the parts of the way so far.
func (b *Box) Steps() []Step { return b.steps }

// Machine describes the machine as it is started.
func (b *Box) Machine(ctx context.Context) (m evidence.Machine, err error) {
	m = evidence.Machine{Arch: b.arch, Memory: cmp.Or(b.o.Memory, memoryFor(b.layer.Bytes())), KVM: b.noKVM == nil}
	m.QEMU, err = machine.Version(ctx, b.arch)
	return m, err
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
	return b.dir.Remove()
}
