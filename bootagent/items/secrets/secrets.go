// SPDX-License-Identifier: Apache-2.0

// Package secrets keeps a node's secrets opened, and the key that opens them, an [Identity]: one file each in a directory that is a ramfs
// of its own, for root alone. A tmpfs would be swapped out, and a ramfs never is.
//
// What is there has no originals: the journal has no rows of this kind, and what no overlay
// wants any more is removed. Drift never has a value, or a digest of one: a short password
// would follow from that. A secret of the overlay was sealed to a recipient that an operator has
// accepted for this node: that it cannot be opened is a fault. One that the overlay does not
// have, since none is accepted yet, is not. The kinds that use secrets learn it by [Item.Lacks],
// and have copies of their own in the directory, below [Copies].
package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "secrets"

// Copies is a folder beside the secrets: files of them with other owners and modes.
const Copies = ".files"

// Own is the folder of those that the agent itself shows.
const Own = spec.OwnSecrets

// Place is where secrets are opened.
type Place struct {
	Dir string
	Ram bool // a ramfs is mounted there, and nothing is written before that; else it is a directory of a test
}

// Item keeps the wanted secrets open.
type Item struct {
	want  []spec.Secret
	place Place
	open  func(spec.Secret) ([]byte, error)
	own   map[string]string // names of secrets by files in [Own]
	known map[string]opened
}

type opened struct {
	value []byte
	err   error
}

// New returns the item; open opens a secret, and is nil where this node has no key.
func New(want []spec.Secret, p Place, open func(spec.Secret) ([]byte, error)) *Item {
	if open == nil {
		open = func(spec.Secret) ([]byte, error) { return nil, errors.New("this node has none") }
	}
	return &Item{want: want, place: p, open: open, known: map[string]opened{}}
}

// WithOwn has secrets kept for the agent itself, by the names of their files in [Own].
func (i *Item) WithOwn(own map[string]string) *Item {
	i.own = own
	return i
}

// Used reports whether there is anything to say of this kind: it is wanted, or something of it
// is there. Most nodes have none.
func (i *Item) Used() bool {
	left, err := os.ReadDir(i.place.Dir)
	return len(i.want) > 0 || err == nil && len(left) > 0
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// Lacks says why there is no secret of a name, "" where there is one, or will be.
func (i *Item) Lacks(name string) string {
	n := slices.IndexFunc(i.want, func(s spec.Secret) bool { return s.Name == name })
	if n < 0 {
		return item.NoKey
	}
	if _, err := i.value(i.want[n]); err != nil {
		return item.NoKey + ": " + err.Error()
	}
	return ""
}

// Open returns the value of a secret, or why there is none, as [Item.Lacks] does.
func (i *Item) Open(name string) (value []byte, why string) {
	if why := i.Lacks(name); why != "" {
		return nil, why
	}
	return i.known[name].value, ""
}

// value opens a secret, once: items live as long as a pass.
func (i *Item) value(s spec.Secret) ([]byte, error) {
	o, ok := i.known[s.Name]
	if !ok {
		if o.err = rules.Secret(s.Name); o.err == nil {
			o.value, o.err = i.open(s)
		}
		i.known[s.Name] = o
	}
	return o.value, o.err
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	for _, s := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := spec.Drift{Item: Name, Key: s.Name, To: "sealed as " + digest.Short([]byte(s.Sealed)), Action: spec.ActionAdd}
		value, err := i.value(s)
		if err != nil {
			d.Action, d.Reason = spec.ActionRefuse, item.NoKey+": "+err.Error()
			drift = append(drift, d)
			continue
		}
		now, err := i.read(s.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case bytes.Equal(now, value):
			continue
		default:
			d.Action, d.From = spec.ActionChange, "another value"
		}
		drift = append(drift, d)
	}
	for _, file := range i.owns() {
		value, _ := i.Open(i.own[filepath.Base(file)]) // there is one
		now, err := i.read(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err != nil || !bytes.Equal(now, value) {
			drift = append(drift, spec.Drift{Item: Name, Key: file, To: "secret " + i.own[filepath.Base(file)], Action: spec.ActionChange})
		}
	}
	left, err := i.left()
	for _, name := range left {
		drift = append(drift, spec.Drift{Item: Name, Key: name, From: "opened", Action: spec.ActionRemove})
	}
	return drift, err
}

// owns are the files in [Own] that can be had, by their paths in the directory.
func (i *Item) owns() (files []string) {
	for _, file := range slices.Sorted(maps.Keys(i.own)) {
		if i.Lacks(i.own[file]) == "" {
			files = append(files, filepath.Join(Own, file))
		}
	}
	return files
}

// read returns what is open, fs.ErrNotExist where that is nothing, or is not as it was written.
func (i *Item) read(name string) ([]byte, error) {
	file := filepath.Join(i.place.Dir, name)
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o400 || i.place.Ram && !i.mounted() {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(file)
}

// left are the names of what is there and not wanted, or cannot be had any more.
func (i *Item) left() (names []string, err error) {
	entries, err := os.ReadDir(i.place.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Name() != Copies && e.Name() != Own && i.Lacks(e.Name()) != "" {
			names = append(names, e.Name())
		}
	}
	if err != nil {
		return names, err
	}
	entries, err = os.ReadDir(filepath.Join(i.place.Dir, Own))
	if errors.Is(err, fs.ErrNotExist) {
		return names, nil
	}
	wanted := i.owns()
	for _, e := range entries {
		if file := filepath.Join(Own, e.Name()); !slices.Contains(wanted, file) {
			names = append(names, file)
		}
	}
	if err == nil && len(wanted) == 0 {
		names = append(names, Own)
	}
	return names, err
}

// mounted reports whether the directory is on a ramfs.
func (i *Item) mounted() bool {
	var st unix.Statfs_t
	return unix.Statfs(i.place.Dir, &st) == nil && st.Type == unix.RAMFS_MAGIC
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	var errs []error
	due := item.Due(drift, spec.ActionAdd, spec.ActionChange)
	for _, s := range i.want {
		if !due[s.Name] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		value, err := i.value(s)
		if err == nil {
			err = i.Make()
		}
		if err == nil {
			err = write(filepath.Join(i.place.Dir, s.Name), value)
		}
		errs = append(errs, fault.In(err, "open secret %q", s.Name))
	}
	if own := slices.DeleteFunc(i.owns(), func(file string) bool { return !due[file] }); len(own) > 0 {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, i.writeOwn(own))
	}
	return errors.Join(errs...)
}

// OpenOwn opens what is the agent's own and nothing else: a loader reaches its registry by it.
func (i *Item) OpenOwn() error { return i.writeOwn(i.owns()) }

func (i *Item) writeOwn(files []string) error {
	if len(files) == 0 {
		return nil
	}
	if err := i.Make(); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(i.place.Dir, Own), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var errs []error
	for _, file := range files {
		value, _ := i.Open(i.own[filepath.Base(file)]) // there is one
		errs = append(errs, fault.In(write(filepath.Join(i.place.Dir, file), value), "open secret %q", i.own[filepath.Base(file)]))
	}
	return errors.Join(errs...)
}

// Make makes the directory, and mounts it.
func (i *Item) Make() error {
	if err := os.MkdirAll(i.place.Dir, 0o711); err != nil {
		return err
	}
	if i.place.Ram && !i.mounted() {
		if err := unix.Mount("ramfs", i.place.Dir, "ramfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0711"); err != nil {
			return fmt.Errorf("mount a ramfs at %s: %w", i.place.Dir, err)
		}
	}
	return os.Chmod(i.place.Dir, 0o711)
}

// write replaces a file that is root's alone. None of this outlives the power.
func write(name string, value []byte) error { return item.Renew(name, value, 0o400, -1, -1) }

// Restore implements item.Item: what is not wanted is removed, whatever the journal says.
func (i *Item) Restore(ctx context.Context, _ []item.Entry) error {
	left, err := i.left()
	errs := []error{err}
	for _, name := range left {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := fault.But(os.Remove(filepath.Join(i.place.Dir, name)), fs.ErrNotExist)
		errs = append(errs, fault.In(err, "close secret %q", strings.TrimPrefix(name, ".")))
	}
	return errors.Join(errs...)
}
