// SPDX-License-Identifier: Apache-2.0

// A FAT32 file system is the partition that UEFI firmware starts programs from. It is written once, from a list
// of files that is complete, so every file lies in one piece and the same list makes the same bytes. See "FAT:
// General Overview of On-Disk Format", Microsoft, and chapter 13.3 of the UEFI specification.

package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/fatentry"
)

// FATFile is a file of a volume.
type FATFile struct {
	Name string // "EFI/BOOT/BOOTX64.EFI": folders are made as they are named
	Size int64
	Open func() (io.ReadCloser, error)
}

// FATVolume is a file system to write.
type FATVolume struct {
	Label  string    // at most 11 capitals and digits
	Serial uint32    // what tells it from others
	Date   time.Time // of all files, in UTC; FAT begins with 1980
	Size   int64     // bytes
	Files  []FATFile
}

// Numbers of the format.
const (
	sector   = 512
	reserved = 32    // sectors before the tables
	tables   = 2     // the second is a copy
	least    = 65525 // clusters: a reader takes a volume with fewer for FAT16
	most     = 0x0ffffff5
	ended    = 0x0fffffff // in a table: the last cluster of a file
	maxFile  = 1<<32 - 1
)

// FATRoom returns the size of the smallest volume that holds files, rounded up to whole MiB,
// with free bytes to spare.
func FATRoom(files []FATFile, free int64) (int64, error) {
	root, err := grow(files)
	if err != nil {
		return 0, err
	}
	const mebibyte = 1 << 20
	for size := int64(34 << 20); ; size += mebibyte {
		g := shape(size)
		if need := root.clusters(g.cluster) + fatUp(free, g.cluster); g.clusters >= max(need, least) {
			return size, nil
		}
		if size > 1<<40 {
			return 0, fmt.Errorf("files of more than a terabyte")
		}
	}
}

// Used returns how many bytes at the volume's beginning say all that it holds: what follows
// is free.
func (v FATVolume) Used() (int64, error) {
	root, err := grow(v.Files)
	if err != nil {
		return 0, err
	}
	g := shape(v.Size)
	return g.start(2 + root.clusters(g.cluster)), nil
}

// geometry says how a volume of a size is divided.
type geometry struct {
	cluster  int64 // bytes of one
	table    int64 // sectors of one table
	clusters int64
}

// shape takes the largest clusters, up to 4 KiB, of which the volume has enough.
func shape(size int64) (g geometry) {
	for g.cluster = 8 * sector; ; g.cluster /= 2 {
		per := g.cluster / sector
		data := size/sector - reserved
		g.table = fatUp(4*(data/per+2), sector)
		g.clusters = (data - tables*g.table) / per
		if g.clusters >= least || g.cluster == sector {
			return g
		}
	}
}

// start is the first byte of a cluster.
func (g geometry) start(cluster int64) int64 {
	return (reserved+tables*g.table)*sector + (cluster-2)*g.cluster
}

// Write writes the volume at the beginning of w, which reads as zeros.
func (v FATVolume) Write(w io.WriterAt) error {
	g := shape(v.Size)
	if g.clusters < least || g.clusters > most {
		return fmt.Errorf("a FAT32 file system of %d bytes has %d clusters", v.Size, g.clusters)
	}
	root, err := grow(v.Files)
	if err != nil {
		return err
	}
	used := root.clusters(g.cluster)
	if used > g.clusters {
		return fmt.Errorf("the files take %d MB, and a FAT32 file system of %d MB is too small", used*g.cluster/1e6, v.Size/1e6)
	}
	table := make([]byte, 4*(used+2))
	binary.LittleEndian.PutUint32(table, 0x0ffffff8)
	binary.LittleEndian.PutUint32(table[4:], ended)
	next := int64(2)
	root.place(g.cluster, func(n int64) int64 { return chain(table, &next, n) })
	for copies := range int64(tables) {
		if _, err := w.WriteAt(table, (reserved+copies*g.table)*sector); err != nil {
			return err
		}
	}
	for _, at := range []int64{0, 6} { // the second is a copy
		if _, err := w.WriteAt(append(v.boot(g), fatInfo(g.clusters-used, next)...), at*sector); err != nil {
			return err
		}
	}
	return root.write(w, g, v)
}

// chain links n clusters from next on and returns the first, 0 where n is 0.
func chain(table []byte, next *int64, n int64) int64 {
	if n == 0 {
		return 0
	}
	first := *next
	for i := range n {
		value := uint32(first + i + 1)
		if i == n-1 {
			value = ended
		}
		binary.LittleEndian.PutUint32(table[4*(first+i):], value)
	}
	*next += n
	return first
}

// boot is the sector that describes the volume.
func (v FATVolume) boot(g geometry) []byte {
	b := make([]byte, sector)
	le := binary.LittleEndian
	copy(b, "\xeb\x58\x90caisson ")
	le.PutUint16(b[11:], sector)
	b[13] = byte(g.cluster / sector)
	le.PutUint16(b[14:], reserved)
	b[16] = tables
	b[21] = 0xf8 // a fixed disk
	le.PutUint16(b[24:], 63)
	le.PutUint16(b[26:], 255)
	le.PutUint32(b[32:], uint32(v.Size/sector))
	le.PutUint32(b[36:], uint32(g.table))
	le.PutUint32(b[44:], 2) // the root's cluster
	le.PutUint16(b[48:], 1) // info
	le.PutUint16(b[50:], 6) // the copy
	b[64], b[66] = 0x80, 0x29
	le.PutUint32(b[67:], v.Serial)
	copy(b[71:], fatentry.Padded(v.Label, 11))
	copy(b[82:], "FAT32   ")
	b[510], b[511] = 0x55, 0xaa
	return b
}

// fatInfo is the sector that says what is free.
func fatInfo(free, next int64) []byte {
	b := make([]byte, sector)
	le := binary.LittleEndian
	copy(b, "RRaA")
	copy(b[484:], "rrAa")
	le.PutUint32(b[488:], uint32(free))
	le.PutUint32(b[492:], uint32(next))
	b[510], b[511] = 0x55, 0xaa
	return b
}

func fatUp(n, to int64) int64 { return (n + to - 1) / to }

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
