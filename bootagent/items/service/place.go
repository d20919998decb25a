// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// maxOriginal caps a file that is kept as an original, in bytes.
const maxOriginal = 256 << 10

// Kinds of what was at a place.
const (
	absent    = ""
	regular   = "file"
	link      = "link"
	empty     = "directory"
	directory = "full directory" // that is mounted over
)

// prior holds the former content of a place.
type prior struct {
	Service string   `json:"service"` // whose place it became
	Kind    string   `json:"kind,omitempty"`
	Content []byte   `json:"content,omitempty"`
	Target  string   `json:"target,omitempty"`
	Mode    uint32   `json:"mode,omitempty"` // permission bits
	UID     int      `json:"uid,omitempty"`
	GID     int      `json:"gid,omitempty"`
	Missing []string `json:"missing,omitempty"` // directories that had to be made
}

func (p prior) String() string {
	switch p.Kind {
	case absent:
		return "absent"
	case link:
		return "link to " + p.Target
	}
	return p.Kind
}

// linkTarget returns the target of the link at a place.
func (i *Item) linkTarget(s spec.Service, d spec.ServiceDirectory) string {
	return filepath.Join(i.imagesDir(s.Name), activeLink, d.From)
}

// isInstalled reports whether a place has the service's files.
func (i *Item) isInstalled(s spec.Service, d spec.ServiceDirectory) (bool, error) {
	if e, known := i.entry(d.To); known && item.Was[prior](e).Kind == directory {
		return i.isCovered(s, d)
	}
	p, err := i.readPlace(d)
	return p.Kind == link && p.Target == i.linkTarget(s, d), err
}

// readPlace returns what is at a place.
func (i *Item) readPlace(d spec.ServiceDirectory) (p prior, err error) {
	at := filepath.Join(i.places.Root, d.To)
	in, err := safepath.Hold(filepath.Dir(at))
	if errors.Is(err, fs.ErrNotExist) {
		return prior{Missing: missingDirs(i.places.Root, d.To)}, nil
	}
	if err != nil {
		return p, err
	}
	defer in.Close() // only read
	t, err := in.Look(filepath.Base(at), maxOriginal)
	if err != nil {
		return p, err
	}
	if p = priorOf(t); p.Kind == absent && t.Mode != 0 {
		return p, errors.New("what is there is neither a file nor a directory")
	}
	if p.Kind != empty {
		return p, nil
	}
	on, err := in.Below(filepath.Base(at))
	if err != nil {
		return p, err
	}
	defer on.Close() // only read
	bare, err := on.Empty()
	if !bare {
		p.Kind = directory
	}
	switch {
	case err != nil:
		return p, err
	case isMountRoot(on):
		return p, fmt.Errorf("something is mounted on %s", d.To)
	case d.File:
		return p, fmt.Errorf("%s is a directory, and is to be a file", d.To)
	}
	return p, nil
}

// priorOf returns the kept form of a thing; a directory counts as an empty one.
func priorOf(t safepath.Thing) prior {
	p := prior{Mode: t.Mode & 0o7777, UID: t.UID, GID: t.GID, Content: t.Content, Target: t.Target}
	p.Kind = map[uint32]string{unix.S_IFLNK: link, unix.S_IFREG: regular, unix.S_IFDIR: empty}[t.Type()]
	return p
}

// thing returns the thing to put back.
func (p prior) thing() safepath.Thing {
	kind := map[string]uint32{link: unix.S_IFLNK, regular: unix.S_IFREG, empty: unix.S_IFDIR}[p.Kind]
	return safepath.Thing{Mode: kind | p.Mode, UID: p.UID, GID: p.GID, Content: p.Content, Target: p.Target}
}

// missingDirs lists the directories above a path that are not there, topmost first.
func missingDirs(root, to string) (out []string) {
	for dir := filepath.Dir(to); dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(root, dir)); err == nil {
			break
		}
		out = slices.Insert(out, 0, dir)
	}
	return out
}

// install makes a place lead to the service's files, its original first.
func (i *Item) install(ctx context.Context, s spec.Service, d spec.ServiceDirectory) error {
	if has, err := i.isInstalled(s, d); err != nil || has {
		return err
	}
	e, known := i.entry(d.To)
	over := item.Was[prior](e).Kind == directory
	if !over {
		was, err := i.readPlace(d)
		if err != nil {
			return err
		}
		if over = was.Kind == directory; known && over {
			if err := i.abandonOriginal(e); err != nil {
				return err
			}
			known = false
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		was.Service, was.Missing = s.Name, i.addSharedDirs(d.To, was.Missing)
		if !known {
			if err := i.journal.Record(item.Entry{Item: Name, Key: d.To, Prior: item.Raw(was), Scope: item.Root}); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if over {
		return i.coverDir(s, d)
	}
	if err := i.makeDirs(s, d); err != nil {
		return err
	}
	return i.write(d.To, prior{Kind: link, Target: i.linkTarget(s, d)})
}

// abandonOriginal forgets the original of a place where somebody has put a directory with
// files since: that is the original from now on. An original that was a file or a link is
// not lost for it: then it is an error.
func (i *Item) abandonOriginal(e item.Entry) error {
	if p := item.Was[prior](e); p.Kind != absent && p.Kind != empty {
		return fmt.Errorf("a directory was put in the place of the %s that was there: move it away", p.Kind)
	}
	return i.journal.Forget(e)
}

// addSharedDirs adds to missing the directories that were made for another place: whichever
// leaves last removes them.
func (i *Item) addSharedDirs(to string, missing []string) []string {
	for _, e := range i.journal.Entries(Name) {
		for _, dir := range item.Was[prior](e).Missing {
			if strings.HasPrefix(to, dir+"/") && !slices.Contains(missing, dir) {
				missing = append(missing, dir)
			}
		}
	}
	slices.Sort(missing) // a directory sorts before what is in it
	return missing
}

// makeDirs makes the directories that lead to a place; they belong to the service's user.
func (i *Item) makeDirs(s spec.Service, d spec.ServiceDirectory) error {
	dirs := missingDirs(i.places.Root, d.To)
	if len(dirs) == 0 {
		return nil
	}
	owner, err := i.owner(s.User)
	if err != nil {
		return err
	}
	var w safepath.Walk
	defer w.Close()
	return w.MkdirAllFor(filepath.Join(i.places.Root, dirs[len(dirs)-1]), owner[0], owner[1])
}

// write replaces what is at a place by p, by one rename.
func (i *Item) write(to string, p prior) error {
	at := filepath.Join(i.places.Root, to)
	in, err := safepath.Hold(filepath.Dir(at))
	if err != nil {
		return err
	}
	defer in.Close() // what matters was synced
	return in.Put(filepath.Base(at), p.thing())
}

// restorePlace restores what was at a place.
func (i *Item) restorePlace(ctx context.Context, e item.Entry) error {
	p := item.Was[prior](e)
	at := filepath.Join(i.places.Root, e.Key)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.restorePrior(at, e.Key, p); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if slices.ContainsFunc(i.want, func(s spec.Service) bool { return s.Name == p.Service }) { // its unit is to know
		if err := i.journal.Record(item.Entry{Item: Name, Key: pendingKey(p.Service), Prior: item.Raw(struct{}{}),
			Scope: item.Root}); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return i.journal.Forget(e)
}

func (i *Item) restorePrior(at, to string, p prior) error {
	switch p.Kind {
	case directory:
		return uncoverDir(at)
	case absent:
		var w safepath.Walk
		defer w.Close()
		if err := w.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, dir := range slices.Backward(p.Missing) {
			if err := w.Remove(filepath.Join(i.places.Root, dir)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
				return err
			}
		}
		return nil
	}
	return i.write(to, p)
}
