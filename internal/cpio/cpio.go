// SPDX-License-Identifier: Apache-2.0

// Package cpio writes archives in the one form of cpio that a kernel unpacks into its
// first root: newc, see the kernel's initramfs buffer format. The builder makes initrds
// of them, and a loader hands its site's file to the next one in another.
package cpio

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// File modes of an archive, see inode(7).
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeChar = 0o020000
)

// entry is one file of an archive.
type entry struct {
	mode         uint32
	major, minor uint32
	data         []byte
}

// Archive is an archive in the making. Everything belongs to root and has no date: the
// same files give the same bytes.
type Archive struct{ files map[string]entry }

// New returns an empty archive.
func New() *Archive { return &Archive{files: map[string]entry{}} }

// Dir adds a directory and those above it.
func (a *Archive) Dir(name string, perm uint32) {
	name = clean(name)
	if name == "." {
		return
	}
	if _, there := a.files[name]; !there {
		a.Dir(path.Dir(name), 0o755)
	}
	a.files[name] = entry{mode: modeDir | perm}
}

// File adds a regular file.
func (a *Archive) File(name string, data []byte, perm uint32) {
	a.add(name, entry{mode: modeFile | perm, data: data})
}

// Char adds a character device.
func (a *Archive) Char(name string, perm, major, minor uint32) {
	a.add(name, entry{mode: modeChar | perm, major: major, minor: minor})
}

func (a *Archive) add(name string, e entry) {
	name = clean(name)
	if dir := path.Dir(name); dir != "." {
		if _, there := a.files[dir]; !there {
			a.Dir(dir, 0o755)
		}
	}
	a.files[name] = e
}

// clean is a name without a slash at its beginning; that of the root itself is ".".
func clean(name string) string { return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".") }

// WriteTo writes the archive, directories before what is in them.
func (a *Archive) WriteTo(w io.Writer) (int64, error) {
	c := &counter{w: w}
	for i, name := range slices.Sorted(maps.Keys(a.files)) {
		c.entry(uint32(i+1), name, a.files[name])
	}
	c.entry(0, "TRAILER!!!", entry{})
	c.pad(512)
	return c.n, c.err
}

// Bytes returns the archive.
func (a *Archive) Bytes() []byte {
	var b bytes.Buffer
	_, _ = a.WriteTo(&b) // a buffer takes all
	return b.Bytes()
}

// counter writes entries and remembers the first error.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) write(p []byte) {
	if c.err == nil {
		var n int
		n, c.err = c.w.Write(p)
		c.n += int64(n)
	}
}

func (c *counter) pad(to int64) { c.write(Pad(c.n, to)) }

// Pad returns the zeros that bring n bytes to a multiple of another number: the kernel
// looks for an archive behind another at a multiple of four.
func Pad(n, to int64) []byte { return make([]byte, (to-n%to)%to) }

func (c *counter) entry(ino uint32, name string, e entry) {
	links := 1
	if e.mode&modeDir != 0 {
		links = 2
	}
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		ino, e.mode, 0, 0, links, 0, len(e.data), 0, 0, e.major, e.minor, len(name)+1, 0)
	c.write([]byte(head + name + "\x00"))
	c.pad(4)
	c.write(e.data)
	c.pad(4)
}
