// SPDX-License-Identifier: Apache-2.0

// Package bpf sees who writes kernel parameters, and can keep them from it: with two
// small programs of type BPF_PROG_TYPE_CGROUP_SYSCTL at the root of the cgroup tree,
// which the kernel runs before each access to a file of /proc/sys, through whichever
// mount of it and in whichever network namespace. No other way of watching /proc/sys
// holds: inotify goes deaf when the kernel frees an inode.
//
// An [Observer] tells of attempts to write. It ends with its process. A protector
// refuses them with EPERM, and stays attached until [Protect] is asked for something
// else: what is protected stays so while the agent restarts. Both let the process that
// [Exempt] names do as it likes, while it is in the cgroup that it was in then. What the kernel changes by itself neither sees.
//
// The instructions are assembled here and handed to bpf(2): no compiler, no BTF, no
// library. They need Linux 6.1 or newer, cgroup v2, CAP_SYS_ADMIN and CAP_NET_ADMIN. Only
// bootagent/sense/watch and bootagent/node/policy import it.
package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Names of the programs in the kernel, as bpftool(8) lists them.
const (
	observerName  = "caisson_observe"
	protectorName = "caisson_protect"
)

const (
	flagWatched   = 1
	flagProtected = 2
)

// MaxKey is the length of the longest key that can be watched or protected.
const MaxKey = nameSize - 1

// Root opens the root of the cgroup tree.
func Root() (*os.File, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if i := slices.Index(f, "-"); i >= 5 && len(f) > i+1 && f[i+1] == "cgroup2" && f[3] == "/" {
			return os.Open(f[4])
		}
	}
	return nil, errors.New("no cgroup v2 is mounted")
}

// Observer tells of attempts to write parameters.
type Observer struct {
	loaded
	ring   *ring
	link   int
	cgroup *os.File
}

// Observe begins to watch keys; those of them for which protected is true are marked in
// their events. The caller closes the observer.
func Observe(cgroup *os.File, keys []string, protected func(key string) bool) (*Observer, error) {
	o := &Observer{loaded: loaded{prog: -1}, link: -1, cgroup: cgroup}
	err := o.begin(keys, protected)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

func (o *Observer) begin(keys []string, protected func(key string) bool) (err error) {
	table, own, err := tables(keys, func(key string) uint32 {
		if protected(key) {
			return flagWatched | flagProtected
		}
		return flagWatched
	})
	if err != nil {
		return err
	}
	o.maps = []int{table, own}
	if err := exempt(own, os.Getpid()); err != nil {
		return err
	}
	if o.ring, err = newRing(); err != nil {
		return err
	}
	if o.prog, err = load(observerName, observer(table, own, o.ring.fd)); err != nil {
		return err
	}
	if o.link, err = link(o.prog, o.cgroup); err != nil {
		return fmt.Errorf("attach BPF program %s: %w", observerName, err)
	}
	return nil
}

// Close ends the watch.
func (o *Observer) Close() error {
	if o.link >= 0 {
		unix.Close(o.link) // that detaches it
	}
	if o.ring != nil {
		o.ring.close()
	}
	if o.prog >= 0 {
		o.maps = append(o.maps, o.prog)
	}
	for _, fd := range o.maps {
		unix.Close(fd) // nothing was written
	}
	return nil
}

// FD is readable, for poll(2), when there are events.
func (o *Observer) FD() int { return o.ring.fd }

// Next returns an event, and whether there was one. It does not wait.
func (o *Observer) Next() (Event, bool) {
	record := o.ring.next()
	if record == nil {
		return Event{}, false
	}
	return parse(record), true
}

// tables makes the maps of a program: flags by key, and the process that may.
func tables(keys []string, flags func(key string) uint32) (table, own int, err error) {
	if table, err = newMap("caisson_keys", hashMap, nameSize, 4, uint32(max(1, len(keys)))); err != nil {
		return -1, -1, err
	}
	for _, key := range keys {
		var name [nameSize]byte
		if copy(name[:MaxKey], key) < len(key) {
			continue // the kernel would tell the program that it is too long
		}
		if err := update(table, name, flags(key)); err != nil {
			unix.Close(table) // nobody has it yet
			return -1, -1, fmt.Errorf("add %s to a BPF map: %w", key, err)
		}
	}
	if own, err = newMap("caisson_own", arrayMap, 4, ownSize, 1); err != nil {
		unix.Close(table) // nobody has it yet
		return -1, -1, err
	}
	return table, own, nil
}

// ringSize is a power of two and of pages: room for some four hundred events.
const ringSize = 128 << 10

// Of a record's header.
const (
	headerSize = 8
	busy       = 1 << 31
	discarded  = 1 << 30
)

// ring is the reader's end of a BPF ring buffer, see Documentation/bpf/ringbuf.rst: two
// positions that only grow, in a page each, and the data, which is mapped twice in a row
// so that no record is torn.
type ring struct {
	fd       int
	read     []byte // the page of the reader's position
	rest     []byte // that of the writer's, then the data
	position uint64
}

func newRing() (*ring, error) {
	fd, err := newMap("caisson_events", ringMap, 0, 0, ringSize)
	if err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	r := &ring{fd: fd}
	if r.read, err = unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		r.rest, err = unix.Mmap(fd, int64(page), page+2*ringSize, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("map a BPF ring buffer: %w", err)
	}
	return r, nil
}

func (r *ring) close() {
	for _, b := range [][]byte{r.read, r.rest} {
		if b != nil {
			_ = unix.Munmap(b) // only fails for what is not mapped
		}
	}
	unix.Close(r.fd) // only read
}

// next returns a copy of the next record, nil when there is none.
func (r *ring) next() []byte {
	written := (*uint64)(unsafe.Pointer(&r.rest[0]))
	data := r.rest[os.Getpagesize():]
	for r.position < atomic.LoadUint64(written) {
		at := r.position & (ringSize - 1)
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&data[at])))
		if head&busy != 0 {
			return nil // it is being written
		}
		size := uint64(head &^ discarded)
		var out []byte
		if head&discarded == 0 && size == eventSize {
			out = append(out, data[at+headerSize:at+headerSize+size]...)
		}
		r.position += (headerSize + size + 7) &^ 7
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.read[0])), r.position)
		if out != nil {
			return out
		}
	}
	return nil
}

// Event is an attempt to write a parameter. The kernel begins some writes again and again,
// while others hold a lock: each is an attempt.
type Event struct {
	Key       string // the parameter's path below /proc/sys
	Value     string // what was written, at most 64 bytes
	PID       int
	Comm      string // name of the process's program, as in comm of proc(5)
	Cgroup    uint64
	Protected bool
}

func parse(record []byte) Event {
	text := func(at, size int) string { return unix.ByteSliceToString(record[at : at+size]) }
	return Event{
		Key: text(atName, nameSize), Value: text(atValue, valueSize), Comm: text(atComm, commSize),
		PID: int(binary.NativeEndian.Uint32(record[atPid:])), Cgroup: binary.NativeEndian.Uint64(record[atCgroup:]),
		Protected: binary.NativeEndian.Uint32(record[atFlags:])&flagProtected != 0,
	}
}
