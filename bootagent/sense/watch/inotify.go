// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// changes are the events asked of inotify: of content, names, owners and modes.
const changes = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// moves are those after which a place may be another file, or in another directory.
const moves = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED

// maxWatches is well below the kernel's own limit for a user.
const maxWatches = 4096

// inotify watches the directories of places: a file that is replaced by another is not
// watched by its inode. A directory that is not there yet is waited for in the nearest
// one that is.
type inotify struct {
	number  int
	root    string
	places  []place
	watches map[int]*names
}

// names are the files of a watched directory that matter, with their kinds; "" is the file that
// is watched itself.
type names struct {
	path string
	of   map[string][]string
}

func newInotify(w *Watch) (source, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &inotify{number: fd, root: w.root, watches: map[int]*names{}}, nil
}

func (i *inotify) fd() int { return i.number }
func (i *inotify) close()  { unix.Close(i.number) } // only read

// follow watches these places and no others.
func (i *inotify) follow(all []place) error {
	i.places = all
	return i.arm()
}

// arm watches the directories as they are now.
func (i *inotify) arm() error {
	old := i.watches
	i.watches = map[int]*names{}
	var errs []error
	for _, p := range i.places {
		path := filepath.Join(i.root, p.path)
		if p.itself {
			_, err := i.add(path, "", p.kind)
			errs = append(errs, err)
		}
		errs = append(errs, i.near(path, p.kind))
	}
	for number := range old {
		if i.watches[number] == nil {
			_, _ = unix.InotifyRmWatch(i.number, uint32(number)) // it may have gone by itself
		}
	}
	return errors.Join(errs...)
}

// near watches the nearest directory of a path that is there. One that comes or goes
// before its watch begins raises no event, so it looks again.
func (i *inotify) near(path, kind string) error {
	for range maxWatches {
		dir, name := nearest(path)
		there, err := i.add(dir, name, kind)
		if err != nil {
			return err
		}
		if now, _ := nearest(path); there && now == dir {
			return nil
		}
	}
	return fmt.Errorf("watch %s: its directories come and go", path)
}

// nearest returns the nearest directory of a path, and what is looked for in it.
func nearest(path string) (dir, name string) {
	dir, name = filepath.Dir(path), filepath.Base(path)
	for !isDir(dir) && dir != "/" {
		dir, name = filepath.Dir(dir), filepath.Base(dir)
	}
	return dir, name
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// add watches a path, if it is there. One that is not is found by its directory.
func (i *inotify) add(path, name, kind string) (there bool, err error) {
	if len(i.watches) >= maxWatches {
		return false, fmt.Errorf("more than %d directories", maxWatches)
	}
	number, err := unix.InotifyAddWatch(i.number, path, changes)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("watch %s: %w", path, err)
	}
	w := i.watches[number]
	if w == nil {
		w = &names{path, map[string][]string{}}
		i.watches[number] = w
	}
	if !slices.Contains(w.of[name], kind) {
		w.of[name] = append(w.of[name], kind)
	}
	return true, nil
}

func (i *inotify) drain() (kinds []string, lost bool) {
	moved := false
	buffer := make([]byte, 16<<10)
	for range most {
		n, err := unix.Read(i.number, buffer)
		if err != nil || n <= 0 {
			break // EAGAIN: that is all
		}
		for _, e := range events(buffer[:n]) {
			if e.mask&unix.IN_Q_OVERFLOW != 0 {
				lost = true
			}
			w := i.watches[e.watch]
			if w == nil {
				continue
			}
			of := w.of[e.name]
			if e.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 { // with all that is in it
				for _, k := range w.of {
					of = append(of, k...)
				}
			}
			kinds = append(kinds, of...)
			moved = moved || len(of) > 0 && e.mask&moves != 0
		}
	}
	if moved {
		lost = i.arm() != nil || lost
	}
	return kinds, lost
}

type event struct {
	watch int
	mask  uint32
	name  string
}

// events reads what the kernel has written, see inotify(7).
func events(b []byte) (out []event) {
	for len(b) >= unix.SizeofInotifyEvent {
		size := int(binary.NativeEndian.Uint32(b[12:]))
		e := event{watch: int(int32(binary.NativeEndian.Uint32(b))), mask: binary.NativeEndian.Uint32(b[4:])}
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return out
		}
		e.name = strings.TrimRight(string(b[:size]), "\x00")
		b = b[size:]
		out = append(out, e)
	}
	return out
}
