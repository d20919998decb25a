// SPDX-License-Identifier: Apache-2.0

package node

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

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// beside is a layer that this root can have without being stacked anew: it differs from
// the one that is stacked in accounts only.
type beside struct {
	Root    string            `json:"root"` // id of the root that this is about
	Version string            `json:"version"`
	Changes []accounts.Change `json:"changes"`
}

// otherLayer is an error for a layer that needs another root.
type otherLayer string

func (o otherLayer) Error() string { return string(o) }

// stacked is the layer whose images this root is made of.
func (n *Node) stacked() string { return cmp.Or(n.boot.Live.Stacked, n.boot.Generation.Layer) }

// goBy notes by which generation this root goes. Its layer may be another one than the
// root is made of.
func (n *Node) goBy(g state.Generation) {
	n.boot.Live.Stacked = n.stacked()
	n.boot.Generation = g
}

// runsHere reports whether this root can have a layer as it is.
func (n *Node) runsHere(layer string) bool {
	var other otherLayer
	_, err := n.beside(layer)
	return !errors.As(err, &other)
}

// layersHere are the layers of what ran well that this root can have as it is.
func (n *Node) layersHere(s *state.State) (here []string) {
	for _, g := range s.Kept() {
		if !slices.Contains(here, g.Layer) && n.runsHere(g.Layer) {
			here = append(here, g.Layer)
		}
	}
	return here
}

// beside returns what a layer changes of the one that is stacked. It is read from images
// that are here once, and kept for as long as this root: what was put in effect is known
// whatever becomes of the store.
func (n *Node) beside(layer string) (*beside, error) {
	if layer == n.stacked() || n.boot.Mode == spec.ModeAttached {
		return &beside{Version: n.boot.Layer.Version}, nil
	}
	if b := n.layers[layer]; b != nil {
		return b, nil
	}
	b, err := n.keptBeside(layer)
	if b == nil && err == nil {
		var store *layers.Store
		if store, err = n.store(); err == nil {
			b, err = n.compareAccounts(store, layer)
		}
		if err == nil && n.lock != nil {
			err = n.keepBeside(layer, b)
		}
	}
	if err != nil {
		return nil, err
	}
	if n.layers == nil {
		n.layers = map[string]*beside{}
	}
	n.layers[layer] = b
	return b, nil
}

func (n *Node) besideName(layer string) string {
	return filepath.Join(n.path(paths.RunAccounts), digest.Hex(layer)+".json")
}

// maxBeside caps the file of one layer, which only the agent writes.
const maxBeside = 64 << 20

func (n *Node) keptBeside(layer string) (*beside, error) {
	data, err := ownfiles.ReadFile(n.besideName(layer), maxBeside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what layer %s changes: %w", layer, err)
	}
	b := new(beside)
	if json.Unmarshal(data, b) != nil || b.Root != n.scopes.Root {
		return nil, nil // it is of another root, or of another release: it is made anew
	}
	return b, nil
}

func (n *Node) keepBeside(layer string, b *beside) error {
	data, err := spec.Encode(b)
	if err == nil {
		err = os.MkdirAll(n.path(paths.RunAccounts), 0o700)
	}
	if err == nil {
		err = durable.WriteFile(n.besideName(layer), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep what layer %s changes: %w", layer, err)
	}
	return nil
}

// compareAccounts compares the accounts of a layer with those that are stacked.
func (n *Node) compareAccounts(store *layers.Store, layer string) (*beside, error) {
	ctx, end := context.WithTimeout(context.Background(), fetchTime)
	defer end()
	to, err := stage.Stager{Store: store, Talk: fetchTime, Say: n.say}.Describe(ctx, layer)
	if err != nil {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why) // what it is has not come yet
	}
	if class, _ := spec.LayerMove(&n.boot.Layer, &to); !spec.Live(class) {
		return nil, otherLayer(spec.EffectOf(spec.PartLayer).Why)
	}
	own, err := n.store()
	if err != nil {
		return nil, err
	}
	from, err := n.showAccounts(own, &n.boot.Layer, "from")
	if err != nil {
		return nil, err
	}
	defer from.leave()
	next, err := n.showAccounts(store, &to, "to")
	if err != nil {
		return nil, err
	}
	defer next.leave()
	below, err := n.below()
	if err != nil {
		return nil, err
	}
	changes, err := accounts.Difference(from.at, next.at, below)
	if err != nil {
		return nil, otherLayer("its accounts cannot be put over the running root: " + err.Error())
	}
	return &beside{n.scopes.Root, to.Version, changes}, nil
}

// below are the directories on which the images under the stacked accounts are mounted. A
// root that was made by a soft-reboot has none of them.
func (n *Node) below() (dirs []string, err error) {
	for i, image := range n.boot.Layer.Images {
		if image.Name == spec.ImageAccounts {
			break
		}
		dir := filepath.Join(n.path(paths.RunImages), fmt.Sprint(i))
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

func (n *Node) showAccounts(store *layers.Store, l *spec.Layer, as string) (*mounted, error) {
	image := l.Accounted()
	if err := store.Verify(image.Digest); err != nil {
		return nil, fmt.Errorf("the accounts of layer %s: %w", l.Version, err)
	}
	if n.lock == nil { // others may look at the same time
		as = fmt.Sprintf("%s-%d", as, os.Getpid())
	}
	at := filepath.Join(n.path(paths.RunAccounts), as)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	for unix.Unmount(at, unix.MNT_DETACH) == nil { // one who mounted it was killed
	}
	if err := (layers.Image{Path: store.Path(image.Digest), Type: image.MediaType}).Mount(at); err != nil {
		return nil, err
	}
	return &mounted{at, n.say}, nil
}

func (m *mounted) leave() {
	if err := errors.Join(unix.Unmount(m.at, unix.MNT_DETACH), os.Remove(m.at)); err != nil {
		m.say("unmount accounts: %v", err) // the next one who looks unmounts it
	}
}

// bringLayer fetches what this root needs of a layer that differs in accounts only, and
// what a boot needs where there is a disk. What cannot be had now is tried again.
func (n *Node) bringLayer(ctx context.Context, layer string) {
	if layer == "" || layer == n.stacked() || n.boot.Mode == spec.ModeAttached || n.layers[layer] != nil || n.boot.Layer.Accounted() == nil {
		return
	}
	if b, err := n.keptBeside(layer); err == nil && b != nil {
		return
	}
	if err := n.fetchLayer(ctx, layer); err != nil {
		n.say("layer %s: %v", layer, err)
	}
}

func (n *Node) fetchLayer(ctx context.Context, layer string) error {
	ctx, end := context.WithTimeout(ctx, fetchTime)
	defer end()
	store, err := n.store()
	if err != nil {
		return err
	}
	if n.lock == nil { // who only looks keeps nothing
		dir, err := os.MkdirTemp("", "caisson-layer-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) // what is left is in the temporary directory
		if store, err = layers.OpenStore(dir); err != nil {
			return err
		}
	}
	s := stage.Stager{Store: store, From: n.follower.Source, Kept: []string{n.stacked()}, Talk: 10 * time.Second, Say: n.say}
	to, err := s.Describe(ctx, layer)
	if err != nil {
		return err
	}
	if class, _ := spec.LayerMove(&n.boot.Layer, &to); !spec.Live(class) {
		return nil // it is staged as others are
	}
	if err := trust.ForMachine(to, n.follower.Bootstrap, runtime.GOARCH); err != nil {
		return err
	}
	parts := stage.Images(to)
	if n.lock != nil && n.boot.Disk != "" && !n.boot.ReadOnly { // all else is here, as it is the same
		if err := s.Missing(ctx, append(parts, stage.Kernel(to)...)...); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(parts, func(p stage.Part) bool { return p.Name == spec.ImageAccounts })
	if err := s.Verified(ctx, parts[i]); err != nil || n.lock != nil {
		return err
	}
	b, err := n.compareAccounts(store, layer)
	if err != nil {
		return err
	}
	if n.layers == nil {
		n.layers = map[string]*beside{}
	}
	n.layers[layer] = b
	return nil
}

// accountsOf is what an item needs to know of a layer.
func (n *Node) accountsOf(layer string) accounts.Want {
	if layer == "" {
		return accounts.Want{}
	}
	b, err := n.beside(layer)
	var other otherLayer
	switch {
	case errors.As(err, &other): // a reboot brings it
		return accounts.Want{}
	case err != nil:
		return accounts.Want{Err: err}
	}
	return accounts.Want{Changes: b.Changes}
}

// fits says why the accounts of a layer cannot be put over this root now, nil where they
// can.
func (n *Node) fits(layer string) error {
	if _, err := n.beside(layer); err != nil {
		return err
	}
	drift, err := accounts.New(n.accountsOf(layer), cmp.Or(n.o.Root, "/"), nil, n.journal).Check(context.Background())
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRefuse }); i >= 0 {
		return fmt.Errorf("%s cannot be changed on the running root: %s", drift[i].Key, drift[i].Reason)
	}
	return nil
}

// leaveToBoot has a generation with other accounts wait for a reboot: something else of it
// could not even be begun on this root, as a file of a user who is not there before the
// change.
func (n *Node) leaveToBoot(ctx context.Context, next *track.Found, why error) (*spec.Status, error) {
	n.boot.Live.ForBoot = &state.ForBoot{Overlay: next.Generation.Overlay, Reason: why.Error()}
	if err := errors.Join(n.endTrial(), n.wait(next, "a reboot: "+why.Error())); err != nil {
		return nil, err
	}
	return n.Status(ctx)
}

// layerVersion is the version of the layer that a root has.
func (n *Node) layerVersion(layer string) string {
	if b, err := n.beside(layer); err == nil && b.Version != "" {
		return b.Version
	}
	return n.boot.Layer.Version
}

// sayLeft says which users left with a change, and that their processes go on.
func (n *Node) sayLeft(from, to *track.Found, result items.Result) {
	rows := append(n.accountsOf(from.Generation.Layer).Changes, n.accountsOf(to.Generation.Layer).Changes...)
	passwd, err := n.host().Read("/etc/passwd")
	if err != nil {
		n.say("%v", err)
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
				n.record("user-left", events.With("user", name), events.With("uid", f[2]), events.With("processes", n.processesOf(f[2])),
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
func (n *Node) processesOf(uid string) (count int) {
	list, err := os.ReadDir(n.path("/proc"))
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
