// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// inode is a file, a directory or a link: as it is on the disk, and what came since.
type inode struct {
	mode   fs.FileMode // of files as on the disk; of the rest as it is
	target string      // of a link
	data   []byte      // of a file, on the disk
	since  []change    // of a file, not on the disk
	names  map[string]*inode
	lasts  map[string]*inode // of a directory: those of names that are on the disk
}

// change is one of a file.
type change struct {
	at   int64
	data []byte
	size int64 // that it is cut or grown to; -1
	mode fs.FileMode
	mod  bool // mode is set
}

func (c change) of(data []byte, mode fs.FileMode) ([]byte, fs.FileMode) {
	switch {
	case c.mod:
		return data, c.mode
	case c.size >= 0:
		return resize(data, c.size), mode
	}
	if end := c.at + int64(len(c.data)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[c.at:], c.data)
	return data, mode
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

// entry is a name in a directory and what it leads to then, nil for nothing.
type entry struct {
	dir  *inode
	name string
	to   *inode
}

// link is one change of entries that is not on the disk yet; a rename has two.
type link []entry

func (l link) shares(m link) bool {
	return slices.ContainsFunc(l, func(a entry) bool {
		return slices.ContainsFunc(m, func(b entry) bool { return a.dir == b.dir && a.name == b.name })
	})
}

// disk is the model.
type disk struct {
	root  *inode
	links []link // that are not on the disk, in their order
	files []*inode
}

func newDisk(mode fs.FileMode) *disk {
	return &disk{root: &inode{mode: mode, names: map[string]*inode{}, lasts: map[string]*inode{}}}
}

// find returns what is at a path below the root, nil for nothing.
func (d *disk) find(name string) *inode {
	at := d.root
	if name == "." {
		return at
	}
	for part := range strings.SplitSeq(name, "/") {
		if at == nil || at.names == nil {
			return nil
		}
		at = at.names[part]
	}
	return at
}

// do changes entries, in memory.
func (d *disk) do(l link) {
	for _, e := range l {
		if e.to == nil {
			delete(e.dir.names, e.name)
		} else {
			e.dir.names[e.name] = e.to
		}
	}
	d.links = append(d.links, l)
}

// add makes a new inode at a path, where its directory is there and the name is free.
func (d *disk) add(name string, n *inode) {
	dir := d.find(path.Dir(name))
	if dir == nil || dir.names == nil || dir.names[path.Base(name)] != nil {
		return
	}
	if n.mode.IsRegular() {
		d.files = append(d.files, n)
	}
	d.do(link{{dir, path.Base(name), n}})
}

// modify changes a file.
func (d *disk) modify(n *inode, c change) {
	if n == nil || n.mode&fs.ModeSymlink != 0 {
		return
	}
	if n.names != nil {
		if c.mod {
			n.mode = c.mode | fs.ModeDir
		}
		return
	}
	n.since = append(n.since, c)
}

// sync puts on the disk what is known of a file or directory.
func (d *disk) sync(n *inode) {
	switch {
	case n == nil:
	case n.names == nil:
		n.data, n.mode = n.now(len(n.since))
		n.since = nil
	default:
		d.settle(func(l link) bool { return slices.ContainsFunc(l, func(e entry) bool { return e.dir == n }) })
	}
}

// now returns a file with the first of its changes.
func (n *inode) now(changes int) ([]byte, fs.FileMode) {
	data, mode := slices.Clone(n.data), n.mode
	for _, c := range n.since[:changes] {
		data, mode = c.of(data, mode)
	}
	return data, mode
}

// settle puts links on the disk, and what they need: earlier ones of the same names.
func (d *disk) settle(which func(link) bool) {
	goes := make([]bool, len(d.links))
	for n := len(d.links) - 1; n >= 0; n-- {
		goes[n] = which(d.links[n])
		for m := n + 1; m < len(d.links) && !goes[n]; m++ {
			goes[n] = goes[m] && d.links[m].shares(d.links[n])
		}
	}
	var stay []link
	for n, l := range d.links {
		if !goes[n] {
			stay = append(stay, l)
			continue
		}
		for _, e := range l {
			if e.to == nil {
				delete(e.dir.lasts, e.name)
			} else {
				e.dir.lasts[e.name] = e.to
			}
		}
	}
	d.links = stay
}

// syncAll puts everything on the disk.
func (d *disk) syncAll() {
	for _, n := range d.files {
		d.sync(n)
	}
	d.settle(func(link) bool { return true })
}
