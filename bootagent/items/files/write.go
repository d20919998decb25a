// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// maxOriginal caps a file that is kept as an original, in bytes.
const maxOriginal = 256 << 10

// directory opens a directory below etc without following a link on the way.
func (i *Item) directory(rel string) (safepath.Dir, error) {
	fd, err := unix.Open(i.etc, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return safepath.Dir{}, &fs.PathError{Op: "open", Path: i.etc, Err: err}
	}
	etc := safepath.Dir{File: os.NewFile(uintptr(fd), i.etc)}
	defer etc.Close() // only held
	dir, err := etc.Below(rel)
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("open /etc/%s: a symbolic link is on the way", rel)
	}
	return dir, err
}

// read returns what stands at a path of the overlay.
func (i *Item) read(path string) (state, error) {
	rel, err := below(path)
	if err != nil {
		return state{}, err
	}
	dir, err := i.directory(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return i.missing(rel)
	}
	if err != nil {
		return state{}, err
	}
	defer dir.Close() // read only
	t, err := dir.Look(filepath.Base(rel), maxOriginal)
	if err != nil {
		return state{}, err
	}
	s := state{Content: string(t.Content), Target: t.Target, Mode: t.Mode & 0o7777, UID: t.UID, GID: t.GID}
	switch t.Type() {
	case unix.S_IFREG:
		s.Kind = regular
	case unix.S_IFLNK:
		s.Kind = link
	case 0: // nothing is there
	default:
		err = fmt.Errorf("%s is there and is not a file", path)
	}
	return s, err
}

// missing is the state of a path whose directory is not there.
func (i *Item) missing(rel string) (state, error) {
	var s state
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		d, err := i.directory(dir)
		if err == nil {
			return s, d.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		s.Missing = slices.Insert(s.Missing, 0, dir)
	}
	return s, nil
}

// write makes what stands at a path to be s, as a part of a pass.
func (i *Item) write(b *safepath.Batch, path string, s state) error {
	rel, err := below(path)
	if err != nil {
		return err
	}
	if s.Kind == absent {
		return i.remove(b, rel, s.Missing)
	}
	dir, err := i.make(b, filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close() // only held
	kind := map[string]uint32{regular: unix.S_IFREG, link: unix.S_IFLNK}[s.Kind]
	return b.Put(dir, filepath.Base(rel), safepath.Thing{Mode: kind | s.Mode, UID: s.UID, GID: s.GID, Content: []byte(s.Content),
		Target: s.Target})
}

// make opens a directory below etc and makes what is missing of it.
func (i *Item) make(b *safepath.Batch, rel string) (safepath.Dir, error) {
	dir, err := i.directory(rel)
	if !errors.Is(err, fs.ErrNotExist) || rel == "." {
		return dir, err
	}
	above, err := i.make(b, filepath.Dir(rel))
	if err != nil {
		return safepath.Dir{}, err
	}
	err = b.MakeDir(above, filepath.Base(rel), 0o755, -1, -1)
	_ = above.Close() // only held
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return safepath.Dir{}, &fs.PathError{Op: "mkdir", Path: "/etc/" + rel, Err: err}
	}
	return i.directory(rel)
}

// remove deletes a file, and those of the directories that are empty then.
func (i *Item) remove(b *safepath.Batch, rel string, made []string) error {
	dir, err := i.directory(filepath.Dir(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return i.unmake(b, made)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(b.Remove(dir, filepath.Base(rel)), dir.Close()); err != nil {
		return err
	}
	return i.unmake(b, made)
}

// unmake removes directories, innermost first, as far as they are empty.
func (i *Item) unmake(b *safepath.Batch, made []string) error {
	for _, rel := range slices.Backward(made) {
		dir, err := i.directory(filepath.Dir(rel))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = b.RemoveDir(dir, filepath.Base(rel))
		_ = dir.Close() // only held
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			return nil // another user's by now, or another file's
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return &fs.PathError{Op: "rmdir", Path: "/etc/" + rel, Err: err}
		}
	}
	return nil
}

// Kinds of what can stand at a path.
const (
	absent  = "" // nothing
	regular = "file"
	link    = "link"
)

// state describes the present or the wanted content of a path.
type state struct {
	Kind    string   `json:"kind,omitempty"`
	Content string   `json:"content,omitempty"` // of a file
	Target  string   `json:"target,omitempty"`  // of a link
	Mode    uint32   `json:"mode,omitempty"`    // permission bits
	UID     int      `json:"uid,omitempty"`
	GID     int      `json:"gid,omitempty"`
	Missing []string `json:"missing,omitempty"` // directories above that were not there, outermost first
}

// String says briefly what a state is, without a file's content.
func (s state) String() string {
	switch s.Kind {
	case absent:
		return ""
	case link:
		return "link to " + s.Target
	}
	return fmt.Sprintf("%04o %d:%d %s", s.Mode, s.UID, s.GID, digest.Short([]byte(s.Content)))
}

// said is String for what a file of the overlay asks for.
func (s state) said(f Want) string {
	if f.Secret == "" {
		return s.String()
	}
	return fmt.Sprintf("%04o %d:%d secret %s", s.Mode, s.UID, s.GID, f.Secret)
}

// is reports whether two states are the same but for the directories above.
func (s state) is(o state) bool {
	return s.Kind == o.Kind && s.Content == o.Content && s.Target == o.Target && s.Mode == o.Mode && s.UID == o.UID && s.GID == o.GID
}

// wanted returns the state that a file of the overlay asks for. Names of owners
// are those of the root that the item acts on.
func (i *Item) wanted(f Want) (state, error) {
	if f.Absent {
		return state{}, nil
	}
	if f.Link != "" {
		return state{Kind: link, Target: f.Link}, nil
	}
	s := state{Kind: regular, Content: f.Content, Mode: 0o644}
	check := rules.File
	if i.name != Name {
		check = rules.OwnFile
	}
	if err := check(f.File); err != nil {
		return s, err
	}
	if f.Mode != "" {
		mode, err := strconv.ParseUint(f.Mode, 8, 32)
		if err != nil || mode > 0o777 {
			return s, fmt.Errorf("mode %q is not octal, or sets more than permissions", f.Mode)
		}
		s.Mode = uint32(mode)
	}
	var err error
	if s.UID, err = ID(i.etc, "passwd", f.Owner, i.makes); err == nil {
		s.GID, err = ID(i.etc, "group", f.Group, i.makes)
	}
	return s, err
}

// ID looks a name up in passwd(5) or group(5) of a directory; a number stands for itself, and
// an empty name for root.
func ID(etc, database, name string, makes item.Makes) (int, error) {
	if name == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	data, err := os.ReadFile(filepath.Join(etc, database))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Split(line, ":"); len(fields) > 2 && fields[0] == name {
			return strconv.Atoi(fields[2])
		}
	}
	return 0, makes.NoAccount("/etc/"+database, name)
}

// below returns a path relative to /etc.
func below(path string) (string, error) {
	rel, ok := strings.CutPrefix(path, "/etc/")
	if !ok || rel == "" || filepath.Clean(path) != path || strings.ContainsAny(path, "\x00\n") {
		return "", fmt.Errorf("%q is not a clean path below /etc", path)
	}
	return rel, nil
}

// warn says which limits have no effect: pam_limits reads a file after theirs that sets the
// same domain, type and item.
func (i *Limits) warn(limits []spec.Drift) {
	sets := map[[3]string][]string{}                          // by what is set, the files that do, in the order that they are read
	files, _ := filepath.Glob(filepath.Join(i.dir, "*.conf")) // the pattern is valid
	for _, path := range files {
		if slices.Contains(i.leaving, path) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) > maxFile {
			continue
		}
		for text := range strings.Lines(string(data)) {
			text, _, _ = strings.Cut(text, "#")
			if words := strings.Fields(text); len(words) == 4 {
				what := [3]string(words)
				sets[what] = append(sets[what], filepath.Base(path))
			}
		}
	}
	for _, d := range limits {
		readers := sets[[3]string(strings.Fields(d.To))]
		if n := sort.Search(len(readers), func(n int) bool { return readers[n] > limitFile(d.Key) }); n < len(readers) {
			i.log("limit %q has no effect: %s is read later and sets the same", d.Key, readers[n])
		}
	}
}
