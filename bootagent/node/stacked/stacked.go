// SPDX-License-Identifier: Apache-2.0

// Package stacked says which layers a root can have without being stacked again: the one
// that it is made of, and those that differ from it in accounts only, which are put over
// it. What a layer changes is read from its images once and kept as long as the root.
//
// It needs the images of both; [Root.Bring] fetches what is not here. The images that services
// have beside the layers are kept by [Services].
package stacked

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Root is the root that runs, and the layers that it can have.
type Root struct {
	Dir     string // prefix of every path, for tests
	ID      string
	Alone   bool // no other process looks or acts: what is found is kept
	Owner   *record.Owner
	Journal *journal.Journal
	Tracker *track.Tracker                // nil where no key is trusted
	Store   func() (*layers.Store, error) // of the layers of a root that caisson made
	Log     func(event string, fields ...events.Field)
	Say     func(format string, args ...any)

	layers map[string]*Beside // by digest
}

// Beside is a layer that this root can have without being stacked again: it differs from
// the one that is stacked in accounts only.
type Beside struct {
	Root    string            `json:"root"` // id of the root that this is about
	Version string            `json:"version"`
	Changes []accounts.Change `json:"changes"`
}

// otherLayer is an error for a layer that needs another root.
type otherLayer string

func (o otherLayer) Error() string { return string(o) }

// Layer is the layer whose images this root is made of.
func (r *Root) Layer() string { return layerOf(r.Owner.Boot()) }

func layerOf(b *record.Boot) string { return cmp.Or(b.Live.Stacked, b.Generation.Layer) }

// SetGeneration notes in the record of a boot by which generation its root goes. Its layer may be
// another one than the root is made of.
func SetGeneration(b *record.Boot, g state.Generation) { b.Live.Stacked, b.Generation = layerOf(b), g }

// Arrive notes that this root runs a generation that is older than the one that it came up
// with.
func (r *Root) Arrive(at state.Generation) error {
	return r.Owner.Commit(record.Change{Boot: func(b *record.Boot) {
		if b.Mode != spec.ModeAttached {
			SetGeneration(b, at)
		}
	}})
}

// RunsHere reports whether this root can have a layer as it is.
func (r *Root) RunsHere(layer string) bool {
	var other otherLayer
	_, err := r.Beside(layer)
	return !errors.As(err, &other)
}

// LayersHere are the layers of what ran well that this root can have as it is.
func (r *Root) LayersHere(s *state.State) (here []string) {
	for _, g := range s.Kept() {
		if !slices.Contains(here, g.Layer) && r.RunsHere(g.Layer) {
			here = append(here, g.Layer)
		}
	}
	return here
}

// Beside returns what a layer changes of the one that is stacked. It is read from images
// that are here once, and kept for as long as this root: what was put in effect is known
// whatever becomes of the store.
func (r *Root) Beside(layer string) (*Beside, error) {
	if boot := r.Owner.Boot(); layer == layerOf(boot) || boot.Mode == spec.ModeAttached {
		return &Beside{Version: boot.Layer.Version}, nil
	}
	if b := r.layers[layer]; b != nil {
		return b, nil
	}
	b, err := r.keptBeside(layer)
	if b == nil && err == nil {
		var store *layers.Store
		if store, err = r.Store(); err == nil {
			b, err = r.compareAccounts(store, layer)
		}
		if err == nil && r.Alone {
			err = r.keepBeside(layer, b)
		}
	}
	if err != nil {
		return nil, err
	}
	r.know(layer, b)
	return b, nil
}

func (r *Root) besideName(layer string) string {
	return filepath.Join(r.Dir, paths.RunAccounts, digest.Hex(layer)+".json")
}

// maxBeside caps the file of one layer, which only the agent writes.
const maxBeside = 64 << 20

func (r *Root) keptBeside(layer string) (*Beside, error) {
	data, err := ownfiles.ReadFile(r.besideName(layer), maxBeside)
	if err != nil {
		return nil, fault.In(fault.But(err, fs.ErrNotExist), "read what layer %s changes", layer)
	}
	b := new(Beside)
	if json.Unmarshal(data, b) != nil || b.Root != r.ID {
		return nil, nil // it is of another root, or of another release: it is made again
	}
	return b, nil
}

func (r *Root) keepBeside(layer string, b *Beside) error {
	data, err := spec.Encode(b)
	if err == nil {
		err = os.MkdirAll(filepath.Join(r.Dir, paths.RunAccounts), 0o700)
	}
	if err == nil {
		err = durable.WriteFile(r.besideName(layer), data, 0o600)
	}
	return fault.In(err, "keep what layer %s changes", layer)
}

// Accounts returns the changes from this root's accounts to those of a layer.
func (r *Root) Accounts(layer string) accounts.Want {
	if layer == "" {
		return accounts.Want{}
	}
	b, err := r.Beside(layer)
	var other otherLayer
	switch {
	case errors.As(err, &other): // a reboot brings it
		return accounts.Want{}
	case err != nil:
		return accounts.Want{Err: err}
	}
	return accounts.Want{Changes: b.Changes}
}

// Fits says why the accounts of a layer cannot be put over this root now, nil where they
// can.
func (r *Root) Fits(layer string) error {
	if _, err := r.Beside(layer); err != nil {
		return err
	}
	drift, err := accounts.New(r.Accounts(layer), cmp.Or(r.Dir, "/"), nil, r.Journal).Check(context.Background())
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRefuse }); i >= 0 {
		return fmt.Errorf("%s cannot be changed on the running root: %s", drift[i].Key, drift[i].Reason)
	}
	return nil
}

// Version is the version of the layer that a root has.
func (r *Root) Version(layer string) string {
	if b, err := r.Beside(layer); err == nil && b.Version != "" {
		return b.Version
	}
	return r.Owner.Boot().Layer.Version
}

// SayLeft says which users left with a change, and that their processes go on.
func (r *Root) SayLeft(from, to *track.Found, result items.Result) {
	rows := append(r.Accounts(from.Generation.Layer).Changes, r.Accounts(to.Generation.Layer).Changes...)
	passwd, err := say.Host{Root: r.Dir}.Read("/etc/passwd")
	if err != nil {
		r.Say("%v", err)
		return
	}
	for _, d := range result.Changes {
		name, ok := strings.CutPrefix(d.Key, "/etc/passwd:")
		if d.Item != accounts.Name || !ok || hasShell(string(passwd), name) {
			continue
		}
		for _, c := range rows {
			f := strings.Split(cmp.Or(c.From.Row, c.To.Row), ":")
			if c.Key == d.Key && len(f) > 2 {
				r.Log("user-left", events.With("user", name), events.With("uid", f[2]), events.With("processes", r.processesOf(f[2])),
					events.With("generation", to.Generation.Generation), events.With("why", "processes that run go on"))
				break
			}
		}
	}
}

// hasShell reports whether a user of passwd(5) has a shell to come in by.
func hasShell(passwd, name string) bool {
	for line := range strings.Lines(passwd) {
		if f := strings.Split(strings.TrimSpace(line), ":"); f[0] == name && len(f) > 6 {
			return f[6] != "/usr/sbin/nologin"
		}
	}
	return false
}

// processesOf counts the processes of a user.
func (r *Root) processesOf(uid string) (count int) {
	list, err := os.ReadDir(filepath.Join(r.Dir, "/proc"))
	if err != nil {
		return 0 // a figure for people
	}
	for _, e := range list {
		if strings.Trim(e.Name(), "0123456789") != "" {
			continue
		}
		if info, err := e.Info(); err == nil && fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid) == uid {
			count++
		}
	}
	return count
}

// Bring fetches what this root needs of a layer that differs in accounts only, and
// what a boot needs where there is a disk. What cannot be had now is tried again.
func (r *Root) Bring(ctx context.Context, layer string) {
	boot := r.Owner.Boot()
	if layer == "" || layer == layerOf(boot) || boot.Mode == spec.ModeAttached || r.layers[layer] != nil || boot.Layer.Accounted() == nil {
		return
	}
	if b, err := r.keptBeside(layer); err == nil && b != nil {
		return
	}
	fault.Say(r.Say, fault.In(r.FetchLayer(ctx, layer), "layer %s", layer))
}

// FetchLayer fetches what this root, and a boot of it, needs of a layer.
func (r *Root) FetchLayer(ctx context.Context, layer string) error {
	ctx, end := context.WithTimeout(ctx, download.FetchTime)
	defer end()
	store, err := r.Store()
	if err != nil {
		return err
	}
	if !r.Alone { // who only looks keeps nothing
		dir, err := os.MkdirTemp("", "caisson-layer-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // what is left is in the temporary directory
		if store, err = layers.OpenStore(dir); err != nil {
			return err
		}
	}
	boot := r.Owner.Boot()
	s := stage.Stager{Store: store, From: r.Tracker.Source, Kept: []string{layerOf(boot)}, Talk: 10 * time.Second, Say: r.Say}
	to, err := s.Describe(ctx, layer)
	if err != nil {
		return err
	}
	if class, _ := spec.LayerMove(&boot.Layer, &to); !spec.Live(class) {
		return nil // it is staged as others are
	}
	if err := trust.ForMachine(to, r.Tracker.Bootstrap, runtime.GOARCH); err != nil {
		return err
	}
	parts := stage.Images(to)
	if r.Alone && boot.Disk != "" && !boot.ReadOnly { // all else is here, as it is the same
		if err := s.Missing(ctx, append(parts, stage.Kernel(to)...)...); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(parts, func(p stage.Part) bool { return p.Name == spec.ImageAccounts })
	if err := s.Verified(ctx, parts[i]); err != nil || r.Alone {
		return err
	}
	b, err := r.compareAccounts(store, layer)
	if err == nil {
		r.know(layer, b)
	}
	return err
}

func (r *Root) know(layer string, b *Beside) {
	if r.layers == nil {
		r.layers = map[string]*Beside{}
	}
	r.layers[layer] = b
}

// compareAccounts compares the accounts of a layer with those that are stacked.
func (r *Root) compareAccounts(store *layers.Store, layer string) (*Beside, error) {
	boot := r.Owner.Boot()
	ctx, end := context.WithTimeout(context.Background(), download.FetchTime)
	defer end()
	to, err := stage.Stager{Store: store, Talk: download.FetchTime, Say: r.Say}.Describe(ctx, layer)
	if err != nil {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why) // what it is has not come yet
	}
	if class, _ := spec.LayerMove(&boot.Layer, &to); !spec.Live(class) {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why)
	}
	own, err := r.Store()
	if err != nil {
		return nil, err
	}
	from, err := r.showAccounts(own, &boot.Layer, "from")
	if err != nil {
		return nil, err
	}
	defer from.leave()
	next, err := r.showAccounts(store, &to, "to")
	if err != nil {
		return nil, err
	}
	defer next.leave()
	below, err := r.below(&boot.Layer)
	if err != nil {
		return nil, err
	}
	changes, err := accounts.Difference(from.at, next.at, below)
	if err != nil {
		return nil, otherLayer("its accounts cannot be put over the running root: " + err.Error())
	}
	return &Beside{r.ID, to.Version, changes}, nil
}

// below are the directories on which the images under the stacked accounts are mounted. A
// root that was made by a soft-reboot has none of them.
func (r *Root) below(l *spec.Layer) (dirs []string, err error) {
	for i, image := range l.Images {
		if image.Name == spec.ImageAccounts {
			break
		}
		dir := filepath.Join(r.Dir, paths.RunImages, fmt.Sprint(i))
		if entries, err := os.ReadDir(dir); err != nil || len(entries) == 0 {
			return nil, otherLayer("the images under its accounts are not mounted, so nothing can be compared with them")
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// mounted is an image of accounts that is mounted for a moment.
type mounted struct {
	at  string
	say func(format string, args ...any)
}

func (r *Root) showAccounts(store *layers.Store, l *spec.Layer, as string) (*mounted, error) {
	image := l.Accounted()
	if err := store.Verify(image.Digest); err != nil {
		return nil, fmt.Errorf("the accounts of layer %s: %w", l.Version, err)
	}
	if !r.Alone { // others may look at the same time
		as = fmt.Sprintf("%s-%d", as, os.Getpid())
	}
	at := filepath.Join(r.Dir, paths.RunAccounts, as)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	for unix.Unmount(at, unix.MNT_DETACH) == nil { // one who mounted it was killed
	}
	if err := (layers.Image{Path: store.Path(image.Digest), Type: image.MediaType}).Mount(at); err != nil {
		return nil, err
	}
	return &mounted{at, r.Say}, nil
}

func (m *mounted) leave() {
	err := errors.Join(unix.Unmount(m.at, unix.MNT_DETACH), os.Remove(m.at))
	fault.Say(m.say, fault.In(err, "unmount accounts")) // the next one who looks unmounts it
}
