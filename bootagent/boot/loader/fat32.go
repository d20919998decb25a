// SPDX-License-Identifier: Apache-2.0

// The file system of an EFI system partition is changed so that a power cut at any write leaves what firmware
// could start before. See "FAT: General Overview of On-Disk Format", Microsoft.
//
// A file's bytes come first, then its clusters in the tables, and last its name: the records of
// a name are put into one sector, which no power cut tears, and every step is on the disk
// before the next one begins. A kernel's vfat keeps no such order. What a cut leaves is clusters
// that no name leads to; they are free, and the next change says so in the tables.
//
// A file system that is not whole is read and never written.

package loader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/internal/fatentry"
	"github.com/caisson-os/caisson/internal/fault"
)

// Device holds a file system from its first byte on.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// ErrNoRoom is returned where a file does not fit; nothing is changed then.
var ErrNoRoom = errors.New("no room")

// Volume is a file system that was found whole.
type Volume struct {
	d        Device
	cluster  int64 // bytes of one
	tableAt  int64 // first byte of the first table
	tableLen int64 // bytes of one
	tables   int64
	dataAt   int64
	infoAt   int64
	root     uint32
	table    []byte // as the first one is on the disk
	used     []bool // clusters that a name leads to
}

const (
	sector     = 512
	fat32First = 2          // number of the first cluster
	bits       = 0x0fffffff // of an entry of the table
	ended      = 0x0ffffff8 // and above: the last cluster of a file
	deleted    = 0xe5
	most       = 4 << 20 // clusters: 16 GiB of 4 KiB each
)

// OpenVolume reads a file system of at most size bytes, and wants all of it whole.
func OpenVolume(d Device, size int64) (*Volume, error) {
	b := make([]byte, sector)
	if _, err := d.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read the file system: %w", err)
	}
	le := binary.LittleEndian
	v := &Volume{d: d, cluster: int64(b[13]) * sector, tables: int64(b[16]), tableAt: int64(le.Uint16(b[14:])) * sector,
		tableLen: int64(le.Uint32(b[36:])) * sector, root: le.Uint32(b[44:]), infoAt: int64(le.Uint16(b[48:])) * sector}
	total := int64(le.Uint32(b[32:])) * sector
	v.dataAt = v.tableAt + v.tables*v.tableLen
	switch {
	case b[510] != 0x55 || b[511] != 0xaa || string(b[82:87]) != "FAT32" || le.Uint16(b[11:]) != sector:
		return nil, errors.New("it is not FAT32 with sectors of 512 bytes")
	case b[13] == 0 || b[13]&(b[13]-1) != 0 || v.tables != 2 || v.tableAt == 0 || v.tableLen == 0 || total > size || v.dataAt >= total:
		return nil, errors.New("it is damaged: its first sector describes no file system")
	}
	clusters := min((total-v.dataAt)/v.cluster, v.tableLen/4-fat32First)
	if clusters < 1 || clusters > most {
		return nil, fmt.Errorf("it is damaged: it has %d clusters", clusters)
	}
	v.table, v.used = make([]byte, 4*(clusters+fat32First)), make([]bool, clusters+fat32First)
	if _, err := d.ReadAt(v.table, v.tableAt); err != nil {
		return nil, fmt.Errorf("read the file system: %w", err)
	}
	if err := v.walk(); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	return v, nil
}

func (v *Volume) next(cluster uint32) uint32 {
	return binary.LittleEndian.Uint32(v.table[4*cluster:]) & bits
}

func (v *Volume) set(cluster, to uint32) {
	at := v.table[4*cluster:]
	binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)&^bits|to&bits)
}

func (v *Volume) at(cluster uint32) int64 { return v.dataAt + int64(cluster-fat32First)*v.cluster }

// chain returns the clusters of a file or folder, and claims them. Of two names for one file,
// which a cut between both leaves, the second claims nothing.
func (v *Volume) chain(from uint32) (list []uint32, err error) {
	for c := from; ; c = v.next(c) {
		switch {
		case c >= ended && len(list) > 0:
			return list, nil
		case c < fat32First || int(c) >= len(v.used):
			return nil, fmt.Errorf("invalid cluster %d", c)
		case v.used[c]:
			return nil, fmt.Errorf("cluster %d belongs to two files", c)
		}
		v.used[c] = true
		list = append(list, c)
	}
}

// deepest is how many folders may be in one another.
const deepest = 16

// walk claims the clusters of all files, and finds out whether they are whole.
func (v *Volume) walk() error {
	clear(v.used)
	return v.walkFolder(v.root, "", 0)
}

func (v *Volume) walkFolder(at uint32, name string, depth int) error {
	if depth > deepest {
		return errors.New("folders without an end")
	}
	list, err := v.chain(at)
	if err != nil {
		return fmt.Errorf("folder /%s: %w", name, err)
	}
	f, err := v.read(list)
	if err != nil {
		return err
	}
	seen := map[uint32]File{}
	for _, e := range f.files() {
		below := name + "/" + e.Name
		if e.folder {
			if err := v.walkFolder(e.first, below, depth+1); err != nil {
				return err
			}
			continue
		}
		if twin, twice := seen[e.first]; e.first == 0 && e.Size == 0 || twice && twin.Size == e.Size {
			continue
		}
		seen[e.first] = e
		clusters, err := v.chain(e.first)
		if err == nil && int64(len(clusters)) != (e.Size+v.cluster-1)/v.cluster {
			err = fmt.Errorf("%d clusters for %d bytes", len(clusters), e.Size)
		}
		if err != nil {
			return fmt.Errorf("file %s: %w", below, err)
		}
	}
	return nil
}

// take returns free clusters, as many, or ErrNoRoom.
func (v *Volume) take(n int64) (list []uint32, err error) {
	for c := uint32(fat32First); int(c) < len(v.used) && int64(len(list)) < n; c++ {
		if !v.used[c] {
			list = append(list, c)
		}
	}
	if int64(len(list)) < n {
		return nil, ErrNoRoom
	}
	return list, nil
}

// Room is how many bytes a file may have.
func (v *Volume) Room() (n int64) {
	for _, used := range v.used[fat32First:] {
		if !used {
			n += v.cluster
		}
	}
	return n
}

// link makes clusters a chain in the tables. The free ones that a cut left taken are given
// back with it.
func (v *Volume) link(list []uint32) error {
	for i, c := range list {
		v.used[c] = true
		if i+1 < len(list) {
			v.set(c, list[i+1])
		} else {
			v.set(c, bits)
		}
	}
	return v.store()
}

// store writes both tables, where they differ from what they should be: a cut between the two
// leaves a second one that is older, and nobody reads that one where the first can be read.
func (v *Volume) store() error {
	for c := range v.used {
		if c >= fat32First && !v.used[c] && v.next(uint32(c)) != 0 && v.next(uint32(c)) != bad {
			v.set(uint32(c), 0)
		}
	}
	for copies := range v.tables {
		at := v.tableAt + copies*v.tableLen
		old := make([]byte, len(v.table))
		if _, err := v.d.ReadAt(old, at); err != nil {
			return err
		}
		for from := 0; from < len(old); from += sector {
			to := min(from+sector, len(old))
			if bytes.Equal(old[from:to], v.table[from:to]) {
				continue
			}
			if _, err := v.d.WriteAt(v.table[from:to], at+int64(from)); err != nil {
				return err
			}
		}
		if err := v.d.Sync(); err != nil {
			return err
		}
	}
	return v.info()
}

// bad marks a cluster that cannot be read.
const bad = 0x0ffffff7

// info notes how much is free, for those who do not count themselves.
func (v *Volume) info() error {
	b := make([]byte, sector)
	if _, err := v.d.ReadAt(b, v.infoAt); err != nil {
		return err
	}
	if v.infoAt == 0 || v.infoAt >= v.tableAt || string(b[:4]) != "RRaA" || string(b[484:488]) != "rrAa" {
		return nil // it has no such note
	}
	binary.LittleEndian.PutUint32(b[488:], uint32(v.Room()/v.cluster))
	if _, err := v.d.WriteAt(b, v.infoAt); err != nil {
		return err
	}
	return v.d.Sync()
}

// Create writes a file into a folder that is there. It gets its name once all its bytes are
// on the disk, and none where from fails or has fewer or more than size.
func (v *Volume) Create(folder, name string, from io.Reader, size int64) error {
	if err := fatentry.CheckName(name); err != nil {
		return err
	}
	f, err := v.folder(folder)
	if err != nil {
		return err
	}
	if f.find(name) != nil {
		return fmt.Errorf("%s/%s is there already", folder, name)
	}
	need := (size + v.cluster - 1) / v.cluster
	slots, more, err := f.place(fatentry.Slots(name), nil)
	if err != nil {
		return err
	}
	list, err := v.take(need + int64(more))
	if err != nil || size <= 0 || size >= 1<<32 {
		return fmt.Errorf("%s has %d bytes, and %d are free: %w", name, size, v.Room(), ErrNoRoom)
	}
	if more > 0 {
		if err := v.extend(f, list[need]); err != nil {
			return err
		}
	}
	list = list[:need]
	if err := v.fill(list, from, size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := v.link(list); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f.put(slots, fatentry.Entry{Name: name, Short: fatentry.Shorten(name, f.has), Kind: fatentry.File, Cluster: int64(list[0]), Size: size})
	return fault.In(v.write(f), "%s", name)
}

// fill writes the bytes of a file.
func (v *Volume) fill(list []uint32, from io.Reader, size int64) error {
	buffer := make([]byte, v.cluster)
	left := size
	for _, c := range list {
		clear(buffer)
		n := min(left, v.cluster)
		if _, err := io.ReadFull(from, buffer[:n]); err != nil {
			return err
		}
		if left -= n; left == 0 { // the end of what comes is its verdict
			if n, err := from.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				return errors.Join(fmt.Errorf("it does not end after %d bytes", size), err)
			}
		}
		if _, err := v.d.WriteAt(buffer, v.at(c)); err != nil {
			return err
		}
	}
	return v.d.Sync()
}

// Rename gives a file of a folder another name, which is free.
func (v *Volume) Rename(folder, from, to string) error {
	if err := fatentry.CheckName(to); err != nil {
		return err
	}
	f, err := v.folder(folder)
	if err != nil {
		return err
	}
	e := f.find(from)
	switch {
	case e == nil:
		return fmt.Errorf("%s/%s is not there", folder, from)
	case f.find(to) != nil:
		return fmt.Errorf("%s/%s is there already", folder, to)
	}
	slots, more, err := f.place(fatentry.Slots(to), e)
	if err != nil {
		return err
	}
	if more > 0 {
		list, err := v.take(1)
		if err != nil {
			return err
		}
		if err := v.extend(f, list[0]); err != nil {
			return err
		}
	}
	renamed := fatentry.Entry{Name: to, Short: fatentry.Shorten(to, f.has), Kind: fatentry.File, Cluster: int64(e.first), Size: e.Size}
	if sectorOf(e.from) == sectorOf(slots) && sectorOf(e.record) == sectorOf(slots) { // one write does both
		f.drop(*e)
		f.put(slots, renamed)
		return v.write(f)
	}
	f.put(slots, renamed)
	if err := v.write(f); err != nil {
		return err
	}
	f.drop(*e)
	return v.write(f)
}

// Remove removes a file of a folder.
func (v *Volume) Remove(folder, name string) error {
	f, err := v.folder(folder)
	if err != nil {
		return err
	}
	e := f.find(name)
	if e == nil {
		return fmt.Errorf("%s/%s is not there", folder, name)
	}
	f.drop(*e)
	if err := v.write(f); err != nil {
		return err
	}
	if err := v.walk(); err != nil {
		return err
	}
	return v.store()
}
