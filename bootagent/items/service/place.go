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
	"github.com/caisson-os/caisson/internal/fault"
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

// What is mounted at a place, and taken away from it, goes by the descriptor of the
// directory that was looked at, or of the top of what is mounted on it: the one above it may
// be a user's, who can put another in its place at any moment.

// isMountRoot reports whether a directory is that of a mount.
func isMountRoot(d safepath.Dir) bool {
	var st unix.Statx_t
	err := unix.Statx(int(d.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// checkIsImage reports whether a directory is of an image, or why that is not known. No user can
// mount one, and no other program has a reason to mount one there.
func checkIsImage(d safepath.Dir) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return &fs.PathError{Op: "look at", Path: d.Name(), Err: err}
	}
	if st.Type != unix.SQUASHFS_MAGIC {
		return fmt.Errorf("something else is mounted on %s: unmount it", d.Name())
	}
	return nil
}

// openSource opens what of a service's image is shown at a place. A link in the image leads
// nowhere else.
func (i *Item) openSource(s spec.Service, d spec.ServiceDirectory) (fd int, err error) {
	image, err := safepath.Hold(i.mountPoint(s))
	if err != nil {
		return -1, err
	}
	defer image.Close() // only read
	fd, err = safepath.Beneath(int(image.Fd()), d.From, unix.O_PATH, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: filepath.Join(image.Name(), d.From), Err: err}
	}
	return fd, nil
}

// isCovered reports whether a place with a directory is covered with the service's.
func (i *Item) isCovered(s spec.Service, d spec.ServiceDirectory) (bool, error) {
	on, err := safepath.Hold(filepath.Join(i.places.Root, d.To))
	if err != nil {
		return false, fault.But(err, fs.ErrNotExist)
	}
	defer on.Close() // only read
	from, err := i.openSource(s, d)
	if err != nil {
		return false, fault.But(err, fs.ErrNotExist) // the image is not mounted yet
	}
	defer unix.Close(from) // an O_PATH descriptor has nothing to lose
	var a, b unix.Stat_t
	if err := errors.Join(unix.Fstat(from, &a), unix.Fstat(int(on.Fd()), &b)); err != nil {
		return false, err
	}
	return isMountRoot(on) && a.Dev == b.Dev && a.Ino == b.Ino, nil
}

// coverDir shows the service's directory at a place that has another one. Who is in what
// was mounted before stays in it; nobody sees what lies below either.
func (i *Item) coverDir(s spec.Service, d spec.ServiceDirectory) error {
	on, err := safepath.Hold(filepath.Join(i.places.Root, d.To))
	if err != nil {
		return err
	}
	defer on.Close() // only held
	from, err := i.openSource(s, d)
	if err != nil {
		return err
	}
	defer unix.Close(from) // an O_PATH descriptor has nothing to lose
	tree, err := unix.OpenTree(from, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return &fs.PathError{Op: "open tree", Path: d.From, Err: err}
	}
	defer unix.Close(tree) // what was attached stays
	const byDescriptors = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if isMountRoot(on) {
		if err := checkIsImage(on); err != nil {
			return err
		}
		const beneath = 0x200 // MOVE_MOUNT_BENEATH, Linux 6.5
		if err := unix.MoveMount(tree, "", int(on.Fd()), "", byDescriptors|beneath); err == nil {
			return unix.Unmount(safepath.Name(int(on.Fd())), unix.MNT_DETACH)
		}
	}
	if err := unix.MoveMount(tree, "", int(on.Fd()), "", byDescriptors); err != nil {
		return &fs.PathError{Op: "mount over", Path: d.To, Err: err}
	}
	return nil
}

// uncoverDir takes away all images that are mounted on a place.
func uncoverDir(at string) error {
	for {
		on, err := safepath.Hold(at)
		if err != nil {
			return fault.But(err, fs.ErrNotExist)
		}
		mounted := isMountRoot(on)
		if mounted {
			err = checkIsImage(on)
		}
		if mounted && err == nil {
			err = unix.Unmount(safepath.Name(int(on.Fd())), unix.MNT_DETACH)
		}
		_ = on.Close() // only held
		if err != nil || !mounted {
			return err
		}
	}
}
