// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Layout of an event, and of the process that may, in bytes.
const (
	nameSize  = 128 // of a parameter's path, with the zero that ends it
	valueSize = 64
	commSize  = 16

	atCgroup  = 0
	atPid     = 8
	atFlags   = 12
	atComm    = 16
	atName    = atComm + commSize
	atValue   = atName + nameSize
	eventSize = atValue + valueSize

	// Of an owner.
	ownCgroup = 8
	ownSize   = 16
)

// observer tells the ring of each attempt to write a parameter of table, unless the
// process of own makes it. Own may be forgotten where there is none: then it is 0.
func observer(table, own, ring int) []byte {
	var p program
	p.find(table)
	p.load(word, r7, r0, 0)
	p.skipOwn(own)
	p.table(r1, ring)
	p.set(r2, eventSize)
	p.set(r3, 0)
	p.call(ringReserve)
	p.ifZero(r0, "allow") // it is full: the reader looks at everything then
	p.move(r9, r0)
	p.store(word, r9, atPid, r8)
	p.store(word, r9, atFlags, r7)
	p.call(currentCgroup)
	p.store(double, r9, atCgroup, r0)
	p.move(r1, r9)
	p.add(r1, atComm)
	p.set(r2, commSize)
	p.call(currentComm)
	for at := int16(0); at < nameSize; at += 8 {
		p.load(double, r1, fp, at-nameSize)
		p.store(double, r9, atName+at, r1)
	}
	for at := int16(0); at < valueSize; at += 8 {
		p.zero(double, r9, atValue+at)
	}
	p.move(r1, r6)
	p.move(r2, r9)
	p.add(r2, atValue)
	p.set(r3, valueSize)
	p.call(sysctlNewValue) // a value that is too long is cut
	p.move(r1, r9)
	p.set(r2, 0)
	p.call(ringSubmit)
	p.label("allow")
	p.set(r0, 1)
	p.exit()
	return p.bytes()
}

// protector lets nobody but the process of own write a parameter of table.
func protector(table, own int) []byte {
	var p program
	p.find(table)
	p.skipOwn(own)
	p.set(r0, 0) // the writer sees EPERM
	p.exit()
	p.label("allow")
	p.set(r0, 1)
	p.exit()
	return p.bytes()
}

// find looks the parameter that is written up in a table: r0 is its value. r6 is the
// context from here on, and the name is at the end of the stack.
func (p *program) find(table int) {
	p.move(r6, r1)
	p.load(word, r0, r6, 0) // 1 for a write
	p.ifZero(r0, "allow")
	for at := int16(0); at < nameSize; at += 8 {
		p.zero(double, fp, at-nameSize)
	}
	p.move(r1, r6)
	p.move(r2, fp)
	p.add(r2, -nameSize)
	p.set(r3, nameSize)
	p.set(r4, 0)
	p.call(sysctlName)
	p.ifNegative(r0, "allow") // a name that is too long is not in the table
	p.table(r1, table)
	p.move(r2, fp)
	p.add(r2, -nameSize)
	p.call(mapLookup)
	p.ifZero(r0, "allow")
}

// skipOwn lets the process of own do as it likes. r8 is the process from here on.
func (p *program) skipOwn(own int) {
	p.call(currentPidTgid)
	p.shift(r0, 32)
	p.move(r8, r0)
	p.zero(word, fp, -nameSize-8)
	p.table(r1, own)
	p.move(r2, fp)
	p.add(r2, -nameSize-8)
	p.call(mapLookup)
	p.ifZero(r0, "allow") // there always is one
	p.load(double, r9, r0, ownCgroup)
	p.load(word, r1, r0, 0)
	p.ifOther(r1, r8, "others")
	p.call(currentCgroup)
	p.ifSame(r0, r9, "allow")
	p.label("others")
}

// Registers, see the kernel's Documentation/bpf/standardization/instruction-set.rst.
const (
	r0 = iota
	r1
	r2
	r3
	r4
	_
	r6
	r7
	r8
	r9
	fp // of the stack, which grows down from it
)

// Helpers of the kernel, see bpf-helpers(7).
const (
	mapLookup      = 1
	currentPidTgid = 14
	currentComm    = 16
	currentCgroup  = 80
	sysctlName     = 101
	sysctlNewValue = 103
	ringReserve    = 131
	ringSubmit     = 132
)

// Sizes of loads and stores.
const (
	word   = 0x00
	double = 0x18
)

// program is machine code in the making. Jumps name a label; bytes puts in how far it is.
type program struct {
	code   []byte
	jumps  map[int]string // by the instruction that jumps
	labels map[string]int
}

func (p *program) put(op, dst, src uint8, off int16, imm int32) {
	p.code = append(p.code, op, dst|src<<4)
	p.code = binary.NativeEndian.AppendUint16(p.code, uint16(off))
	p.code = binary.NativeEndian.AppendUint32(p.code, uint32(imm))
}

func (p *program) move(dst, src uint8)         { p.put(0xbf, dst, src, 0, 0) }
func (p *program) set(dst uint8, imm int32)    { p.put(0xb7, dst, 0, 0, imm) }
func (p *program) add(dst uint8, imm int32)    { p.put(0x07, dst, 0, 0, imm) }
func (p *program) shift(dst uint8, bits int32) { p.put(0x77, dst, 0, 0, bits) } // to the right
func (p *program) call(helper int32)           { p.put(0x85, 0, 0, 0, helper) }
func (p *program) exit()                       { p.put(0x95, 0, 0, 0, 0) }

// load reads size bytes at an address into dst, store writes them, zero writes none.
func (p *program) load(size, dst, src uint8, off int16) { p.put(0x61|size, dst, src, off, 0) }
func (p *program) store(size, dst uint8, off int16, src uint8) {
	p.put(0x63|size, dst, src, off, 0)
}
func (p *program) zero(size, dst uint8, off int16) { p.put(0x62|size, dst, 0, off, 0) }

// table loads a map of which there is a file descriptor.
func (p *program) table(dst uint8, fd int) {
	p.put(0x18, dst, 1, 0, int32(fd))
	p.put(0, 0, 0, 0, 0)
}

// ifZero, ifNegative, ifSame and ifOther jump to a label.
func (p *program) ifZero(reg uint8, label string)     { p.jump(0x15, reg, 0, label) }
func (p *program) ifNegative(reg uint8, label string) { p.jump(0xc5, reg, 0, label) }
func (p *program) ifSame(a, b uint8, label string)    { p.jump(0x1d, a, b, label) }
func (p *program) ifOther(a, b uint8, label string)   { p.jump(0x5d, a, b, label) }

func (p *program) jump(op, dst, src uint8, label string) {
	if p.jumps == nil {
		p.jumps = map[int]string{}
	}
	p.jumps[p.len()] = label
	p.put(op, dst, src, 0, 0)
}

func (p *program) label(name string) {
	if p.labels == nil {
		p.labels = map[string]int{}
	}
	p.labels[name] = p.len()
}

// len is the number of instructions.
func (p *program) len() int { return len(p.code) / 8 }

func (p *program) bytes() []byte {
	for at, label := range p.jumps {
		to, ok := p.labels[label]
		if !ok {
			panic(fmt.Sprintf("bpf: no label %q", label)) // of this package's own code
		}
		binary.NativeEndian.PutUint16(p.code[8*at+2:], uint16(to-at-1))
	}
	return p.code
}

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
