// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// maxOriginal caps a file that is kept as an original, in bytes.
const maxOriginal = 256 << 10

// Kinds of what stood at a place.
const (
	absent    = ""
	regular   = "file"
	link      = "link"
	empty     = "directory"
	directory = "full directory" // that is mounted over
)

// prior is what stood at a place before.
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

func decodePrior(e item.Entry) (p prior) {
	_ = json.Unmarshal(e.Prior, &p) // the journal's checksum covers it
	return p
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

// through is what a link at a place leads to.
func (i *Item) through(s spec.Service, d spec.ServiceDirectory) string {
	return filepath.Join(i.dir(s.Name), current, d.From)
}

// has reports whether a place has the service's files.
func (i *Item) has(s spec.Service, d spec.ServiceDirectory) (bool, error) {
	at := filepath.Join(i.places.Root, d.To)
	if e, known := i.entry(d.To); known && decodePrior(e).Kind == directory {
		return isMounted(at) && sameFile(at, filepath.Join(i.mountPoint(s), d.From)), nil
	}
	p, err := i.stands(d)
	return p.Kind == link && p.Target == i.through(s, d), err
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// stands returns what stands at a place.
func (i *Item) stands(d spec.ServiceDirectory) (p prior, err error) {
	at := filepath.Join(i.places.Root, d.To)
	var w safepath.Walk
	defer w.Close()
	err = w.At(at, func(name string) error {
		p, err = read(name)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return prior{Missing: missing(i.places.Root, d.To)}, nil
	case err != nil:
		return p, err
	case p.Kind == directory && isMounted(at):
		return p, fmt.Errorf("something is mounted on %s", d.To)
	case p.Kind == directory && d.File, p.Kind == empty && d.File:
		return p, fmt.Errorf("%s is a directory, and is to be a file", d.To)
	}
	return p, nil
}

// missing lists the directories above a path that are not there, topmost first.
func missing(root, to string) (out []string) {
	for dir := filepath.Dir(to); dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(root, dir)); err == nil {
			break
		}
		out = slices.Insert(out, 0, dir)
	}
	return out
}

func read(name string) (p prior, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); errors.Is(err, fs.ErrNotExist) {
		return p, nil
	} else if err != nil {
		return p, err
	}
	p = prior{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		p.Kind, p.Mode = link, 0
		p.Target, err = os.Readlink(name)
	case unix.S_IFREG:
		p.Kind = regular
		p.Content, err = readFile(name)
	case unix.S_IFDIR:
		p.Kind = directory
		var list []string
		if list, err = readNames(name); err == nil && len(list) == 0 {
			p.Kind = empty
		}
	default:
		err = errors.New("what is there is neither a file nor a directory")
	}
	return p, err
}

func readFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxOriginal+1))
	if err == nil && len(data) > maxOriginal {
		err = fmt.Errorf("the file that is there has more than %d bytes: it could not be kept", maxOriginal)
	}
	return data, err
}

func readNames(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	list, err := f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

// place makes a place lead to the service's files, its original first.
func (i *Item) place(ctx context.Context, s spec.Service, d spec.ServiceDirectory) error {
	if has, err := i.has(s, d); err != nil || has {
		return err
	}
	e, known := i.entry(d.To)
	over := decodePrior(e).Kind == directory
	if !over {
		was, err := i.stands(d)
		if err != nil {
			return err
		}
		if over = was.Kind == directory; known && over {
			if err := i.instead(e); err != nil {
				return err
			}
			known = false
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		was.Service, was.Missing = s.Name, i.made(d.To, was.Missing)
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
		return mountOver(filepath.Join(i.mountPoint(s), d.From), filepath.Join(i.places.Root, d.To))
	}
	if err := i.makeWay(s, d); err != nil {
		return err
	}
	return i.write(d.To, prior{Kind: link, Target: i.through(s, d)})
}

// instead forgets the original of a place where somebody has put a directory with files
// since: that is the original from now on. Where there was more than nothing, it is not
// to be lost.
func (i *Item) instead(e item.Entry) error {
	if p := decodePrior(e); p.Kind != absent && p.Kind != empty {
		return fmt.Errorf("somebody has put a directory there, and a %s stood there before: move the directory away", p.Kind)
	}
	return i.journal.Forget(e)
}

// made adds to missing the directories on the way that were made for another place:
// whichever leaves last removes them.
func (i *Item) made(to string, missing []string) []string {
	for _, e := range i.journal.Entries(Name) {
		for _, dir := range decodePrior(e).Missing {
			if strings.HasPrefix(to, dir+"/") && !slices.Contains(missing, dir) {
				missing = append(missing, dir)
			}
		}
	}
	slices.Sort(missing) // a directory sorts before what is in it
	return missing
}

// makeWay makes the directories that lead to a place; they belong to the service's user.
func (i *Item) makeWay(s spec.Service, d spec.ServiceDirectory) error {
	dirs := missing(i.places.Root, d.To)
	if len(dirs) == 0 {
		return nil
	}
	owner, err := i.owner(s.User)
	if err != nil {
		return err
	}
	var w safepath.Walk
	defer w.Close()
	for _, dir := range dirs {
		at := filepath.Join(i.places.Root, dir)
		if err := w.MkdirAll(at); err != nil {
			return err
		}
		err := w.At(at, func(name string) error { return os.Lchown(name, owner[0], owner[1]) })
		if err != nil {
			return err
		}
	}
	return nil
}

// write makes what stands at a place be p, by one rename.
func (i *Item) write(to string, p prior) error {
	var w safepath.Walk
	defer w.Close()
	at := filepath.Join(i.places.Root, to)
	return w.At(at, func(name string) error {
		next := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".caisson")
		if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // what a run left that was cut
			return err
		}
		if err := fill(next, p); err != nil {
			return err
		}
		var st unix.Stat_t
		err := unix.Lstat(name, &st)
		if err == nil && (st.Mode&unix.S_IFMT == unix.S_IFDIR || p.Kind == empty) { // which rename(2) puts in no other's place
			if err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE); err != nil {
				return &fs.PathError{Op: "exchange", Path: to, Err: err}
			}
			if err := os.Remove(next); err != nil { // something was put into it just now
				return errors.Join(err, unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE), os.Remove(next))
			}
			return durable.SyncDir(filepath.Dir(name))
		}
		return durable.Rename(next, name)
	})
}

// fill makes a new file, link or directory.
func fill(name string, p prior) error {
	switch p.Kind {
	case link:
		if err := os.Symlink(p.Target, name); err != nil {
			return err
		}
		return os.Lchown(name, p.UID, p.GID)
	case empty:
		if err := os.Mkdir(name, 0o700); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(name, p.Content, 0o600); err != nil {
			return err
		}
	}
	return errors.Join(os.Lchown(name, p.UID, p.GID), unix.Chmod(name, p.Mode)) // in this order: chown(2) drops set-user-ID
}

// giveBack puts back what stood at a place.
func (i *Item) giveBack(ctx context.Context, e item.Entry) error {
	p := decodePrior(e)
	at := filepath.Join(i.places.Root, e.Key)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.putBack(at, e.Key, p); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if slices.ContainsFunc(i.want, func(s spec.Service) bool { return s.Name == p.Service }) { // its unit is to know
		if err := i.journal.Record(item.Entry{Item: Name, Key: told(p.Service), Prior: item.Raw(struct{}{}), Scope: item.Root}); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return i.journal.Forget(e)
}

func (i *Item) putBack(at, to string, p prior) error {
	switch p.Kind {
	case directory:
		return leave(at, unix.MNT_DETACH)
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

// mountOver shows a directory at a place that has another one. Who is in what was
// mounted before stays in it; nobody sees what lies below either.
func mountOver(from, to string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &fs.PathError{Op: "open tree", Path: from, Err: err}
	}
	defer unix.Close(tree) // what was attached stays
	if isMounted(to) {
		const beneath = 0x200 // MOVE_MOUNT_BENEATH, Linux 6.5
		if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH|beneath); err == nil {
			return unix.Unmount(to, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "mount over", Path: to, Err: err}
	}
	return nil
}
