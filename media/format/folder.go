// SPDX-License-Identifier: Apache-2.0

package format

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/fatentry"
)

// folder is a folder and what is in it, in the order of names.
type folder struct {
	entries []*entry
	first   int64 // cluster
	parent  *folder
}

// entry is a file or a folder in another.
type entry struct {
	name    string
	short   string // 11 characters
	folder  *folder
	file    FATFile
	cluster int64
}

// grow makes folders of the names of files.
func grow(files []FATFile) (*folder, error) {
	root := &folder{}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b FATFile) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		at := root
		parts := strings.Split(f.Name, "/")
		for _, part := range parts[:len(parts)-1] {
			e, err := at.add(part)
			if err != nil {
				return nil, err
			}
			if e.folder == nil {
				if e.file.Name != "" {
					return nil, fmt.Errorf("%s is a file and a folder", part)
				}
				e.folder = &folder{parent: at}
			}
			at = e.folder
		}
		e, err := at.add(parts[len(parts)-1])
		switch {
		case err != nil:
			return nil, err
		case e.folder != nil || e.file.Name != "":
			return nil, fmt.Errorf("%s is there twice", f.Name)
		case f.Size > maxFile:
			return nil, fmt.Errorf("%s has %d bytes, and a file on FAT32 has less than 4 GiB", f.Name, f.Size)
		}
		e.file = f
	}
	return root, nil
}

// add returns the entry of a name, and makes it where there is none. Names differ by more
// than their case.
func (d *folder) add(name string) (*entry, error) {
	for _, e := range d.entries {
		switch {
		case e.name == name:
			return e, nil
		case strings.EqualFold(e.name, name):
			return nil, fmt.Errorf("%s and %s are one name on FAT32", e.name, name)
		}
	}
	if err := fatentry.CheckName(name); err != nil {
		return nil, err
	}
	e := &entry{name: name, short: fatentry.Shorten(name, d.has)}
	d.entries = append(d.entries, e)
	return e, nil
}

func (d *folder) has(short string) bool {
	return slices.ContainsFunc(d.entries, func(e *entry) bool { return e.short == short })
}

// bytes returns what the folder itself takes.
func (d *folder) bytes() int64 {
	n := int64(1) // the label, or "." and ".."
	if d.parent != nil {
		n = 2
	}
	for _, e := range d.entries {
		n += int64(fatentry.Slots(e.name))
	}
	return n * fatentry.Slot
}

// clusters counts those of the folder and of all below it.
func (d *folder) clusters(size int64) int64 {
	n := fatUp(d.bytes(), size)
	for _, e := range d.entries {
		if e.folder != nil {
			n += e.folder.clusters(size)
		} else {
			n += fatUp(e.file.Size, size)
		}
	}
	return n
}

// place gives the folder, what is below it, and all their files their clusters.
func (d *folder) place(size int64, take func(clusters int64) (first int64)) {
	d.first = take(fatUp(d.bytes(), size))
	for _, e := range d.entries {
		if e.folder != nil {
			e.folder.place(size, take)
			e.cluster = e.folder.first
		} else {
			e.cluster = take(fatUp(e.file.Size, size))
		}
	}
}

// write writes the folder, what is below it, and all their files.
func (d *folder) write(w io.WriterAt, g geometry, v FATVolume) error {
	var list []byte
	add := func(name, short string, kind byte, cluster, size int64) {
		list = append(list, fatentry.Entry{Name: name, Short: short, Kind: kind, Cluster: cluster, Size: size, Date: v.Date}.Records()...)
	}
	if d.parent == nil {
		add("LABEL", fatentry.Padded(v.Label, 11), fatentry.Label, 0, 0)
	} else {
		above := d.parent.first
		if d.parent.parent == nil {
			above = 0 // the root is called so
		}
		add("SELF", fatentry.Padded(".", 11), fatentry.Folder, d.first, 0)
		add("ABOVE", fatentry.Padded("..", 11), fatentry.Folder, above, 0)
	}
	for _, e := range d.entries {
		if e.folder != nil {
			add(e.name, e.short, fatentry.Folder, e.cluster, 0)
		} else {
			add(e.name, e.short, fatentry.File, e.cluster, e.file.Size)
		}
	}
	if _, err := w.WriteAt(list, g.start(d.first)); err != nil {
		return err
	}
	for _, e := range d.entries {
		if e.folder != nil {
			if err := e.folder.write(w, g, v); err != nil {
				return err
			}
		} else if err := e.file.copy(io.NewOffsetWriter(w, g.start(e.cluster))); err != nil {
			return fmt.Errorf("%s: %w", e.file.Name, err)
		}
	}
	return nil
}

// copy copies a file, and wants it to have the bytes that it was said to have.
func (f FATFile) copy(w io.Writer) error {
	if f.Size == 0 {
		return nil
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close() // only read
	n, err := io.Copy(w, io.LimitReader(r, f.Size))
	if err == nil && n != f.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != nil && !errors.Is(err, io.EOF) {
		return errors.Join(fmt.Errorf("it has more than %d bytes", f.Size), err)
	}
	return nil
}
