// SPDX-License-Identifier: Apache-2.0

// Package bootdisk makes and keeps a disk that this machine boots from: the running node
// brings the loader that fleet:current names onto it, beside the one before, and an operator
// installs one by hand.
//
// What a loader is called, and which of several firmware starts, is known by package loader;
// which disk may be written to, by package boot/disk. It needs an open session and nothing
// else of the node.
package bootdisk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/boot/loader"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec"
)

// Follow keeps what this node's disk starts: once the boot was good, the loader that it
// began with is no longer on trial, and the one that fleet:current names comes beside it. Where
// the site asks for that, a disk that starts nothing yet gets a partition for it.
//
// It returns what it has seen to, by which it does nothing the next time. The fetching holds
// no lock. What is wrong with the disk is noted for the status; the error is of the registry.
func Follow(ctx context.Context, o session.Options, seen string) (string, error) {
	now, err := toSee(o)
	if err != nil || now == "" || now == seen {
		return seen, err
	}
	n, err := session.Read(o, nil)
	if err != nil {
		return seen, err
	}
	defer n.Close() // only read
	if n.Tracker == nil {
		return seen, nil
	}
	want, err := namedLoader(n)
	if err != nil {
		return seen, err
	}
	l := &following{session: n, want: want, ctx: ctx}
	why, err := l.follow()
	if errors.Is(err, ErrBring) || ctx.Err() != nil {
		return seen, err
	}
	if err != nil {
		why, now = loader.Why{Text: err.Error()}, ""
	}
	return now, noteLoader(ctx, o, noted(&n.Boot.Live), why)
}

// toSee returns the digest of the kept fleet:current that is to be followed, "" for none.
// That is where the node has no disk, and while this boot has yet to show that it is good.
func toSee(o session.Options) (string, error) {
	boot, err := record.Load(o.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // caisson did not boot this host
	}
	if err != nil || boot.Disk == "" {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(o.Root, paths.RunDeadline)); err == nil {
		return "", nil
	}
	data, err := state.View(filepath.Join(o.Root, paths.State)).LoadFleet()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return digest.Of(data), nil
}

// namedLoader returns what fleet:current names for this machine, nil where that is nothing.
func namedLoader(n *session.Session) (*spec.Loader, error) {
	list, err := n.Tracker.Loaders()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(l spec.Loader) bool { return l.Arch == runtime.GOARCH })
	if i < 0 {
		return nil, nil
	}
	return &list[i], nil
}

// noteLoader keeps for the status why the disk does not start what is published, and says so
// then: who hears of it finds it there.
func noteLoader(ctx context.Context, o session.Options, was, why loader.Why) error {
	if was == why {
		return nil
	}
	if why.Text != "" {
		defer o.Say("%s", why.Text)
	}
	n, err := session.Open(ctx, o, nil)
	if err != nil {
		return err
	}
	noted := n.Owner.Note(func(l *record.Live) {
		if l.Loader, l.Ahead = why.Text, ""; why.Ahead {
			l.Loader, l.Ahead = "", why.Text
		}
	})
	return errors.Join(noted, n.Close())
}

// noted returns the reason that the live record holds.
func noted(live *record.Live) loader.Why {
	if live.Ahead != "" {
		return loader.Why{Text: live.Ahead, Ahead: true}
	}
	return loader.Why{Text: live.Loader}
}

// following is one look at what the disk starts.
type following struct {
	session *session.Session
	want    *spec.Loader
	ctx     context.Context
}

// ErrBring is returned for what the registry did not bring: the next look asks again.
var ErrBring = errors.New("fetch a loader")

func (l *following) follow() (why loader.Why, err error) {
	asked := l.session.Tracker.Bootstrap.BootFromDisk
	e, err := disk.ESPBeside(l.session.Path("/sys"), l.session.Path("/dev"), l.session.Boot.Disk)
	switch {
	case err != nil && !asked:
		return why, nil
	case err != nil:
		return loader.Why{Text: fmt.Sprintf("boot from disk: %v", err)}, nil
	case e.Device == "" && !asked:
		return why, nil
	case e.Device == "" && l.want == nil:
		return loader.Why{Text: fmt.Sprintf("boot from disk: cannot: fleet:current names no loader for %s: 'caisson loader' "+
			"publishes one", runtime.GOARCH)}, nil
	case e.Device == "":
		return why, l.install(e)
	}
	return l.update(e.Device)
}

// install gives the disk the partition.
func (l *following) install(e *disk.ESP) error {
	if err := loader.Check(*l.want); err != nil {
		return err
	}
	err := e.Make(l.session.Tracker.Bootstrap.Fleet, func(w io.WriterAt) error { return l.copyESP(io.NewOffsetWriter(w, 0)) })
	if err == nil {
		l.session.Say("this machine's disk starts loader %d", l.want.Number)
	}
	return err
}

func (l *following) copyESP(to io.Writer) error {
	body, err := l.bring(oci.TypeESP)(l.want.ESP)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, loader.Verified(body, l.want.ESP))
	return errors.Join(err, body.Close())
}

// update sees to the loaders on the disk.
func (l *following) update(device string) (why loader.Why, err error) {
	p, err := loader.Open(device)
	if err != nil {
		return why, fmt.Errorf("what this machine's disk starts stays as it is: %w", err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	booted, err := loader.Booted(l.session.Path(efivar.Dir))
	if err != nil {
		return why, fmt.Errorf("which loader this boot began with: %w", err)
	}
	kept, err := p.Keep(booted)
	if err != nil {
		return why, err
	}
	if kept != 0 {
		l.session.Say("loader %d has proved itself", kept)
	}
	if l.want == nil {
		return why, nil
	}
	came, why, err := p.Follow(*l.want, l.bring(oci.TypeUKI))
	if came != 0 {
		l.session.Say("loader %d is on this machine's disk, on trial", came)
	}
	return why, err
}

// bring fetches a part of a loader.
func (l *following) bring(kind string) func(spec.Blob) (io.ReadCloser, error) {
	return func(b spec.Blob) (io.ReadCloser, error) {
		d := oci.Descriptor{MediaType: kind, Digest: b.Digest, Size: b.Size}
		body, err := oci.Anywhere(l.ctx, l.session.Tracker.Source, func(place oci.Source) (io.ReadCloser, error) {
			return place.Blob(l.ctx, oci.RepoLoader, d, 0)
		})
		if err != nil {
			carried, mediumErr := l.carried(d)
			if mediumErr == nil {
				return carried, nil
			}
			return nil, fmt.Errorf("%w: %w", ErrBring, errors.Join(err, mediumErr))
		}
		return ofRegistry{body}, nil
	}
}

// carried reads a part of a loader from the first medium that carries it, as where no
// registry is.
func (l *following) carried(d oci.Descriptor) (io.ReadCloser, error) {
	media, err := loader.MountMedia(l.session.Path("/sys"), l.session.Path("/dev"), l.session.Path(paths.RunMedium))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := media.Close(); err != nil { // what is being read stays
			l.session.Say("%v", err)
		}
	}()
	return carriedBy(l.ctx, media.Layouts, media.Passed, d)
}

// carriedBy reads a blob from the first of layouts that has it. errs is why media were passed
// over.
func carriedBy(ctx context.Context, layouts []string, errs []error, d oci.Descriptor) (io.ReadCloser, error) {
	for _, layout := range layouts {
		from, err := pull.Open(oci.Ref{Layout: layout}, pull.Options{})
		if err == nil {
			var body io.ReadCloser
			if body, err = from.Blob(ctx, oci.RepoLoader, d, 0); err == nil {
				return body, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// ofRegistry tells errors of the registry from those of the disk.
type ofRegistry struct{ io.ReadCloser }

func (r ofRegistry) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrBring, err)
	}
	return n, err
}

// Installation is a disk that an operator wants this machine to boot from.
type Installation struct {
	Target *disk.Target
	Loader spec.Loader

	look *following
	own  *disk.ESP // the disk is this node's state disk, and has room
}

// Install looks at a disk, named by its path, serial number or WWN, and at what it would
// start. Nothing is changed. An error says why the disk cannot be installed on.
func Install(ctx context.Context, o session.Options, name string) (*Installation, error) {
	n, err := session.Read(o, nil)
	if err != nil {
		return nil, err
	}
	defer n.Close() // only read
	if n.Tracker == nil {
		return nil, n.Unbound
	}
	want, err := namedLoader(n)
	if err != nil {
		return nil, err
	}
	if want == nil {
		return nil, cli.WithHint(fmt.Errorf("fleet:current names no loader for %s", runtime.GOARCH),
			"'caisson loader' publishes one; 'caisson-agent sync' fetches it")
	}
	if err := loader.Check(*want); err != nil {
		return nil, err
	}
	f := &disk.Finder{Sys: n.Path("/sys"), Dev: n.Path("/dev"), Fleet: n.Tracker.Bootstrap.Fleet, Say: n.Say}
	if disk.E2fsInstalled() {
		f.Programs = disk.E2fsPrograms{}
	}
	i := &Installation{Loader: *want, look: &following{session: n, want: want, ctx: ctx}}
	if i.Target, err = f.Target(name); err != nil {
		return nil, err
	}
	if i.Target.Holds(n.Boot.Disk) {
		if i.own, err = disk.ESPBeside(f.Sys, f.Dev, n.Boot.Disk); err != nil {
			return nil, err
		}
		if i.own.Device != "" {
			return nil, fmt.Errorf("%s has a loader, which this node keeps up to date", i.Target.Device)
		}
	}
	return i, nil
}

// Own reports whether the disk is this node's state disk, which stays as it is: it gets a
// partition beside it.
func (i *Installation) Own() bool { return i.own != nil }

// Check is that of the disk.
func (i *Installation) Check(wipe bool) error {
	if i.Own() {
		return nil
	}
	err := i.Target.Check(wipe)
	if errors.Is(err, disk.ErrNotEmpty) {
		err = cli.WithHint(err, "--wipe erases what is on it")
	}
	return err
}

// Run installs. The loader is fetched onto the disk, and verified on the way: of what was there
// nothing is erased before it comes.
func (i *Installation) Run() error {
	if i.Own() {
		return i.look.install(i.own)
	}
	body, err := i.look.bring(oci.TypeESP)(i.Loader.ESP)
	if err != nil {
		return err
	}
	err = i.Target.Install(func(w io.WriterAt) error {
		_, err := io.Copy(io.NewOffsetWriter(w, 0), loader.Verified(body, i.Loader.ESP))
		return err
	})
	return errors.Join(err, body.Close())
}
