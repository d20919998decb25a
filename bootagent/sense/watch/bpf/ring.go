// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

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
	text := func(at, size int) string {
		b := record[at : at+size]
		for i, c := range b {
			if c == 0 {
				return string(b[:i])
			}
		}
		return string(b)
	}
	return Event{
		Key: text(atName, nameSize), Value: text(atValue, valueSize), Comm: text(atComm, commSize),
		PID: int(binary.NativeEndian.Uint32(record[atPid:])), Cgroup: binary.NativeEndian.Uint64(record[atCgroup:]),
		Protected: binary.NativeEndian.Uint32(record[atFlags:])&flagProtected != 0,
	}
}
