// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// errSlow is returned where what the registry named did not arrive in time.
var errSlow = errors.New("not fetched within")

// preparer brings what a generation needs into the store, and starts its kernel.
type preparer struct {
	say     say
	made    func() // notes progress
	trace   *uptime.Recorder
	machine *machine
	disk    *stateDisk
	notes   *notes
	ways    *ways
	attempt *attempt
	log     *tpm.Log
	brought spec.Bytes // by the last try
}

// prepared is a generation of which all is verified and in the store.
type prepared struct {
	generation state.Generation
	layer      spec.Layer
	images     record.Images
	whenRead   map[string]verity.Hash // roots of the images that the kernel checks while they are read
}

// prepareInTime is prepare with a deadline: soon, where there is a generation to
// fall back on. What was fetched until then stays, and the next attempt resumes it.
func (p *preparer) prepareInTime(ctx context.Context, from oci.Source, found *track.Found) (*prepared, error) {
	limit := p.machine.limits.only
	if p.disk.hasGood() {
		limit = p.machine.limits.soon
	}
	p.made()
	late := fmt.Errorf("generation %d: %w %s", found.Generation.Generation, errSlow, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	r, err := p.prepare(ctx, from, found)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errStartOver) {
		err = context.Cause(ctx)
	}
	return r, err
}

// prepare brings what the overlay's layer needs into the store and enters its
// kernel where another one runs. from may be nil: then all must be in the store.
//
// On a diskless node the kernel comes first, since a kexec would throw fetched
// images away. On a disk they outlive it, and all come first: a loader behind a
// kexec that waits for images could not go back to another kernel.
func (p *preparer) prepare(ctx context.Context, from oci.Source, found *track.Found) (_ *prepared, err error) {
	p.brought = spec.Bytes{}
	end := p.trace.Begin("layer")
	defer func() { end(err); p.trace.Bytes(p.brought) }()
	staged := p.disk.stager(from)
	staged.Bytes = &p.brought
	layer, err := staged.Describe(ctx, found.Generation.Layer)
	if err != nil {
		return nil, err
	}
	if err := trust.ForMachine(layer, p.machine.bootstrap, runtime.GOARCH); err != nil {
		return nil, err
	}
	p.notes.of = found.Generation
	if err := p.fitsMemory(layer); err != nil {
		return nil, err
	}
	if _, another := p.machine.commandLine(found, &layer); another && p.disk.lasting() {
		if err := staged.Missing(ctx, stage.Images(layer)...); err != nil { // the rest is verified below
			return nil, err
		}
	}
	if err := p.enterKernel(ctx, from, found, &layer); err != nil {
		return nil, err
	}
	r := &prepared{generation: found.Generation, layer: layer}
	if r.whenRead, r.images, err = root.Check(ctx, staged, layer, p.disk.takeTrees); err != nil {
		return nil, err
	}
	if p.disk.lasting() && from != nil {
		// Without network, a loader that has changed since can only enter a kernel that is
		// on the disk. It is verified when it is used.
		fault.Say(p.say, fault.In(staged.Missing(ctx, stage.Kernel(layer)...), "the kernel is not kept"))
	}
	return r, nil
}

// fitsMemory asks, before any of it is fetched, whether images that no disk takes fit into
// memory: a machine that runs out of it dies without a word.
func (p *preparer) fitsMemory(layer spec.Layer) error {
	if p.disk.lasting() {
		return nil
	}
	has, err := stage.ReadMemory(p.machine.proc + "/meminfo")
	if err != nil {
		p.say("whether the images fit into memory is not known: %v", err)
		return nil
	}
	var missing []spec.Blob
	for _, part := range stage.Images(layer) {
		if !p.disk.store.Has(part.Digest, part.Size) {
			missing = append(missing, part.Blob)
		}
	}
	return has.Boots(missing)
}

// readAll reads all images of a layer and fetches again what differs, since the kernel found
// fault with one of them when it was mounted.
func (p *preparer) readAll(layer spec.Layer, why error) error {
	p.disk.trouble("images are not checked while they are read: %v", why)
	p.made()
	ctx, cancel := context.WithTimeout(context.Background(), p.machine.limits.only)
	defer cancel()
	return p.disk.stager(p.ways.source).Verified(ctx, stage.Images(layer)...)
}

// enterKernel starts the layer's kernel with the overlay's arguments, unless that
// is what runs already. It returns when there is nothing to do.
func (p *preparer) enterKernel(ctx context.Context, from oci.Source, found *track.Found, layer *spec.Layer) error {
	line, another := p.machine.commandLine(found, layer)
	if !another {
		return nil
	}
	running := kernel.Release()
	if len(line.Dropped) > 0 {
		p.say("kernel arguments that the overlay does not name: %s", strings.Join(line.Dropped, " "))
	}
	if p.machine.afterKexec() {
		// Once is enough: what a kexec did not change another one will not.
		if running != layer.Kernel.Release {
			return fmt.Errorf("%w: %s runs after a kexec, the layer has %s", errStartOver, running, layer.Kernel.Release)
		}
		if counted, _ := kernel.CountedFor(p.machine.words); counted != "" && counted != found.Generation.Overlay {
			// Those of another generation, which may be what keeps it from the network: it counts as
			// begun, and the loader before any kexec runs the good one once that has failed too often.
			return fmt.Errorf("%w: the arguments of %s, which could not be run, are not those of generation %d", errStartOver, counted,
				found.Generation.Generation)
		}
		p.say("kernel arguments still differ after a kexec, going on: have %s", strings.Join(p.machine.words, " "))
		return nil
	}
	if p.ways.net != nil && !p.ways.net.Table.Plain() && !slices.Contains(layer.Features, spec.BootNetworkFeature) {
		return fmt.Errorf("layer %s: its loader, behind a kexec, would ask by DHCP on each card: %s says otherwise", found.Generation.Layer,
			p.ways.net.Table.Source)
	}
	p.say("kexec: kernel %s, arguments %s", layer.Kernel.Release, strings.Join(line.Words, " "))
	err := p.disk.stager(from).Verified(ctx, stage.Kernel(*layer)...)
	if err == nil {
		err = root.CheckKexec(p.machine.variables, runtime.GOARCH)
	}
	if err == nil {
		err = root.CheckKernel(p.machine.variables, p.disk.store.Path(layer.Kernel.Digest))
	}
	if err == nil {
		err = p.load(found, layer, line.Words)
	}
	if err != nil {
		if running != layer.Kernel.Release || !found.Unchanged {
			return err
		}
		// It came up before. The right kernel runs, only its arguments are others: better that than
		// no boot, and it stands on the console.
		p.say("kernel arguments differ and the kernel cannot be fetched or entered, going on: %v", err)
		return nil
	}
	p.notes.note(about(found.Generation,
		spec.Event{Event: spec.EventKexec, Transition: p.notes.transition, Why: "kernel " + layer.Kernel.Release}))
	return fmt.Errorf("%w: %w", errStartOver, kernel.Enter(p.disk.settle))
}

// load has the running kernel take the layer's. The boot counts before, as the next loader's line has
// it, and does not where the kernel is not taken.
func (p *preparer) load(found *track.Found, layer *spec.Layer, words []string) error {
	k, err := os.Open(p.disk.store.Path(layer.Kernel.Digest))
	if err != nil {
		return err
	}
	defer k.Close() // only read
	event, err := measured(spec.MeasuredKexec, &found.Overlay, found.Generation)
	if err != nil {
		return err
	}
	event.Kernel, event.Initrd, event.Line = layer.Kernel.Digest, layer.Initrd.Digest, strings.Join(words, " ")
	p.log.Add(event)
	initrd, err := p.nextInitrd(layer)
	if err != nil {
		return err
	}
	defer initrd.Close() // a memory file that kexec has read
	p.attempt.begin(found.Generation, p.ways.heard)
	if err := kernel.Load(k, initrd, append(words, p.attempt.counted(found.Generation.Overlay))); err != nil {
		p.attempt.takeBack()
		return err
	}
	return nil
}

// commandLine returns the line that the layer's kernel must have, and whether it, or
// the kernel, is another than the one that runs.
func (m *machine) commandLine(found *track.Found, layer *spec.Layer) (line kernel.KexecLine, another bool) {
	line = kernel.KexecArguments(m.words, m.bootstrap.KernelArgs, found.Overlay.KernelArgs)
	return line, line.Differs || kernel.Release() != layer.Kernel.Release
}

// errStartOver is returned when only a restart through the firmware is left: a kexec did not
// lead to the wanted kernel, or this loader has waited too long.
var errStartOver = errors.New("only a restart of the machine is left")

// measured holds what is extended into the TPM before a generation is gone on with.
func measured(event spec.MeasuredEvent, o *spec.Overlay, g state.Generation) (spec.Measured, error) {
	core, err := spec.RootID(o, g.Layer)
	return spec.Measured{Event: event, Layer: g.Layer, Core: core}, err
}

// nextInitrd is the layer's generic initrd with this loader's bootstrap behind it.
func (p *preparer) nextInitrd(layer *spec.Layer) (*os.File, error) {
	generic, err := os.Open(p.disk.store.Path(layer.Initrd.Digest))
	if err != nil {
		return nil, err
	}
	defer generic.Close() // only read
	bootstrap, err := p.disk.handDown(layer)
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
		fault.Say(p.say, fault.In(p.log.Carry(site), "the next loader has no log of what was measured"))
		fault.Say(p.say, fault.In(p.disk.carryKeys(site), "the next loader has no key of secrets"))
		_, err = w.Write(append(cpio.Pad(n, 4), site.Bytes()...))
		return err
	}); err != nil {
		return nil, err
	}
	next, err := os.Open(name)
	return next, errors.Join(err, os.Remove(name)) // where there is no kexec after all, nothing of it stays in the root
}
