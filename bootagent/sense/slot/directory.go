// SPDX-License-Identifier: Apache-2.0

package slot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// take makes the first file of 0, 1, … below the group's directory that there is not.
// It is made whole elsewhere and linked, which is one step on a network file system,
// too: a slot never has two holders, nor one without a name.
func (h Holder) take(group string, s spec.Slot) (err error) {
	at := filepath.Join(s.Directory, group)
	var walk safepath.Walk
	defer walk.Close()
	if err := walk.MkdirAll(at); err != nil {
		return err
	}
	d, err := walk.Hold(at)
	if err != nil {
		return err
	}
	defer d.Close() // only held
	dir := safepath.Name(int(d.Fd()))
	if at, err := h.held(dir); err != nil || at != "" {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(h.Node + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	for n := range s.Max {
		err := os.Link(f.Name(), filepath.Join(dir, strconv.FormatInt(n, 10)))
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	names, err := holders(dir)
	if err != nil {
		return err
	}
	by := slices.Sorted(maps.Values(names))
	return fmt.Errorf("all %d slots of %s are held, by %s", s.Max, at, plain.Line(strings.Join(by, ", ")))
}

func (h Holder) release(group string, s spec.Slot) error {
	var walk safepath.Walk
	defer walk.Close()
	d, err := walk.Hold(filepath.Join(s.Directory, group))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close() // only held
	at, err := h.held(safepath.Name(int(d.Fd())))
	if err != nil || at == "" {
		return err
	}
	return os.Remove(at)
}

// held returns the file of the slot that the node has.
func (h Holder) held(dir string) (string, error) {
	all, err := holders(dir)
	if err != nil {
		return "", err
	}
	for at, name := range all {
		if name == h.Node {
			return at, nil
		}
	}
	return "", nil
}

// maxName caps what is read of a slot's file.
const maxName = 1 << 10

// holders returns who has which file.
func holders(dir string) (map[string]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string]string{}
	for _, e := range list {
		if _, err := strconv.ParseUint(e.Name(), 10, 32); err != nil || !e.Type().IsRegular() {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back meanwhile
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(f, maxName))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		out[filepath.Join(dir, e.Name())] = strings.TrimSpace(string(data))
	}
	return out, nil
}
