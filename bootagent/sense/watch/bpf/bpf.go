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

// Protect has the kernel refuse writes of keys from now on, by everybody but the exempt
// process, and no longer those of other keys. It holds until it is asked for something
// else, whichever process runs; without keys nothing is left of it. The new program is attached
// before the one that was there goes: no key is unprotected in between.
func Protect(cgroup *os.File, keys []string) error {
	old, err := attached(protectorName, cgroup)
	if err != nil {
		if len(keys) == 0 {
			return nil // a kernel that cannot say what is attached has nothing attached
		}
		return fmt.Errorf("ask for BPF programs: %w", err)
	}
	defer func() {
		for _, l := range old {
			l.close()
		}
	}()
	if len(keys) > 0 {
		if err := protect(cgroup, keys); err != nil {
			return err
		}
	}
	var errs []error
	for _, l := range old {
		errs = append(errs, detach(l.prog, cgroup))
	}
	return errors.Join(errs...)
}

func protect(cgroup *os.File, keys []string) error {
	if i := slices.IndexFunc(keys, func(k string) bool { return len(k) > MaxKey }); i >= 0 {
		return fmt.Errorf("protect %s: its name is too long", keys[i])
	}
	table, own, err := tables(keys, func(string) uint32 { return flagProtected })
	if err != nil {
		return err
	}
	l := loaded{maps: []int{table, own}, prog: -1}
	defer func() { l.close() }()
	if err := exempt(own, os.Getpid()); err != nil {
		return err
	}
	if l.prog, err = load(protectorName, protector(table, own)); err != nil {
		return err
	}
	if err := attach(l.prog, cgroup); err != nil {
		return fmt.Errorf("attach BPF program %s: %w", protectorName, err)
	}
	return nil
}

// Protects reports whether something is protected.
func Protects(cgroup *os.File) bool {
	found, err := attached(protectorName, cgroup)
	for _, l := range found {
		l.close()
	}
	return err == nil && len(found) > 0
}

// Exempt lets a process write what is protected, and nobody else; 0 is none.
func Exempt(cgroup *os.File, pid int) error {
	found, err := attached(protectorName, cgroup)
	if err != nil {
		return nil // nothing is attached where that cannot be asked
	}
	var errs []error
	for _, l := range found {
		if len(l.maps) == 2 { // the keys, and whom they do not bind
			errs = append(errs, exempt(l.maps[1], pid))
		}
		l.close()
	}
	return errors.Join(errs...)
}

// handleOfKernfs is the type of a file handle that is an inode's number, FILEID_KERNFS.
const handleOfKernfs = 0xfe

// owner is the process that a program lets do as it likes. Its cgroup belongs to it: where
// it was killed, another process may have its number.
type owner struct {
	pid, _ uint32
	cgroup uint64
}

// exempt puts a process into the map of a program; 0 is none.
func exempt(own, pid int) error {
	o := owner{pid: uint32(pid)}
	if pid != 0 {
		var err error
		if o.cgroup, err = cgroupOf(pid); err != nil {
			return err
		}
	}
	return update(own, uint32(0), o)
}

// cgroupOf returns the number of a process's cgroup, which is that of its inode.
func cgroupOf(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue // of cgroup v1
		}
		root, err := Root()
		if err != nil {
			return 0, err
		}
		defer root.Close() // only read
		var st unix.Stat_t
		if err := unix.Stat(root.Name()+path, &st); err != nil {
			return 0, fmt.Errorf("look at cgroup %s: %w", path, err)
		}
		return st.Ino, nil
	}
	return 0, fmt.Errorf("process %d is in no cgroup", pid)
}

// Path returns the path of a cgroup below the root of the tree, by its number. It is an
// error when the cgroup is gone.
func Path(root *os.File, id uint64) (string, error) {
	handle := unix.NewFileHandle(handleOfKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(root.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd) // only looked at
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return strings.TrimPrefix(path, root.Name()), err
}
