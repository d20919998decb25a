// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of bpf(2).
const (
	mapCreate  = 0
	mapUpdate  = 2
	progLoad   = 5
	progAttach = 8
	progDetach = 9
	progFdByID = 13
	mapFdByID  = 14
	infoByFd   = 15
	progQuery  = 16
	linkCreate = 28

	hashMap  = 1
	arrayMap = 2
	ringMap  = 27

	typeSysctl   = 23 // BPF_PROG_TYPE_CGROUP_SYSCTL
	attachSysctl = 18 // BPF_CGROUP_SYSCTL
	allowMulti   = 2
	license      = "GPL" // of the helpers that are called: the kernel asks for it
)

// call is bpf(2).
func call(cmd int, attr unsafe.Pointer, size uintptr) (int, error) {
	for {
		fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(cmd), uintptr(attr), size)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			if cmd == progLoad { // the verifier was interrupted by a signal
				continue
			}
		}
		return -1, errno
	}
}

// pointer is where something is, for attributes: it stays there until it is unpinned.
func pointer[T any](pin *runtime.Pinner, to *T) uint64 {
	pin.Pin(to)
	return uint64(uintptr(unsafe.Pointer(to)))
}

// objectName is a name as the kernel keeps it.
func objectName(s string) (n [16]byte) {
	copy(n[:15], s)
	return n
}

func newMap(name string, kind, key, value, entries uint32) (int, error) {
	attr := struct {
		Kind, Key, Value, Entries, Flags, Inner, Node uint32
		Name                                          [16]byte
	}{Kind: kind, Key: key, Value: value, Entries: entries, Name: objectName(name)}
	fd, err := call(mapCreate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return -1, fmt.Errorf("create BPF map %s: %w", name, err)
	}
	return fd, nil
}

type element struct {
	FD         uint32
	_          uint32
	Key, Value uint64
	Flags      uint64
}

// update sets a value of a map.
func update[K, V any](fd int, key K, value V) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	attr := element{FD: uint32(fd), Key: pointer(&pin, &key), Value: pointer(&pin, &value)}
	_, err := call(mapUpdate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	return err
}

func load(name string, code []byte) (int, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	text := []byte(license + "\x00")
	attr := struct {
		Kind, Count          uint32
		Code, License        uint64
		LogLevel, LogSize    uint32
		Log                  uint64
		KernelVersion, Flags uint32
		Name                 [16]byte
		Ifindex, Attach      uint32
	}{Kind: typeSysctl, Count: uint32(len(code) / 8), Code: pointer(&pin, &code[0]), License: pointer(&pin, &text[0]),
		Name: objectName(name), Attach: attachSysctl}
	fd, err := call(progLoad, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err == nil || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	log := make([]byte, 64<<10) // what the verifier has against it
	attr.Log, attr.LogSize, attr.LogLevel = pointer(&pin, &log[0]), uint32(len(log)), 1
	if _, err := call(progLoad, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		lines := strings.Split(strings.TrimSpace(string(bytes.TrimRight(log, "\x00"))), "\n")
		return -1, fmt.Errorf("load BPF program %s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-3):], "; "))
	}
	return -1, fmt.Errorf("load BPF program %s: %w", name, err)
}

// link attaches a program for as long as the returned descriptor is open.
func link(prog int, cgroup *os.File) (int, error) {
	attr := struct{ Prog, Target, Attach, Flags uint32 }{uint32(prog), uint32(cgroup.Fd()), attachSysctl, 0}
	return call(linkCreate, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

type attachment struct{ Target, Prog, Attach, Flags, Replace uint32 }

// attach attaches a program until it is detached, or its cgroup goes.
func attach(prog int, cgroup *os.File) error {
	attr := attachment{uint32(cgroup.Fd()), uint32(prog), attachSysctl, allowMulti, 0}
	_, err := call(progAttach, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	return err
}

func detach(prog int, cgroup *os.File) error {
	attr := attachment{uint32(cgroup.Fd()), uint32(prog), attachSysctl, 0, 0}
	_, err := call(progDetach, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	return err
}

// attached returns descriptors of the programs of a name at a cgroup, and of their maps.
func attached(name string, cgroup *os.File) (found []loaded, err error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	ids := make([]uint32, 64) // the kernel lets no more be attached
	attr := struct {
		Target, Attach, Flags, AttachFlags uint32
		IDs                                uint64
		Count                              uint32
		_                                  uint32
		ProgFlags                          uint64
	}{Target: uint32(cgroup.Fd()), Attach: attachSysctl, IDs: pointer(&pin, &ids[0]), Count: uint32(len(ids))}
	if _, err := call(progQuery, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return nil, err
	}
	for _, id := range ids[:min(int(attr.Count), len(ids))] {
		p, err := byID(progFdByID, id)
		if err != nil {
			continue // it has gone since
		}
		maps, named, err := info(p)
		if err != nil || named != name {
			unix.Close(p) // another's
			continue
		}
		l := loaded{prog: p}
		for _, id := range maps {
			if m, err := byID(mapFdByID, id); err == nil {
				l.maps = append(l.maps, m)
			}
		}
		found = append(found, l)
	}
	return found, nil
}

// loaded is a program with its maps, in the order in which its code names them.
type loaded struct {
	prog int
	maps []int
}

func (l loaded) close() {
	for _, fd := range append(l.maps, l.prog) {
		unix.Close(fd) // nothing was written
	}
}

func byID(cmd int, id uint32) (int, error) {
	attr := struct{ ID, Next, Flags uint32 }{ID: id}
	return call(cmd, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
}

// info returns the maps and the name of a program.
func info(prog int) (maps []uint32, name string, err error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	maps = make([]uint32, 8)
	out := struct {
		Kind, ID          uint32
		Tag               [8]byte
		Jited, Xlated     uint32
		JitedAt, XlatedAt uint64
		LoadTime          uint64
		UID, MapCount     uint32
		Maps              uint64
		Name              [16]byte
	}{MapCount: uint32(len(maps)), Maps: pointer(&pin, &maps[0])}
	attr := struct {
		FD, Size uint32
		Info     uint64
	}{uint32(prog), uint32(unsafe.Sizeof(out)), pointer(&pin, &out)}
	if _, err := call(infoByFd, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); err != nil {
		return nil, "", err
	}
	return maps[:min(int(out.MapCount), len(maps))], strings.TrimRight(string(out.Name[:]), "\x00"), nil
}
