// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"fmt"
)

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
